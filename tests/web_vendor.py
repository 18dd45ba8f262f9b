"""Gets the libraries of the page from the npm registry: `make vendor`, or `python tests/web_vendor.py`.

The table is `vendor.json`: of each package its version, the checksum of its archive, its licence, and which of its
files the page loads. Nothing is built: the files are those that the authors publish. A new version is a changed line
there with an empty `integrity`, which this program fills in; it then says what changed.

The address of the registry and what else it needs come from npm's own configuration. Not here: the check of the files
in the tree, offline (`tests/unit/server/test_web_files.py`).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "src" / "shepherd" / "server" / "web" / "vendor"
TABLE = VENDOR / "vendor.json"


def main() -> None:
    table = json.loads(TABLE.read_text())
    with tempfile.TemporaryDirectory() as folder:
        for package in table["packages"]:
            archive = _archive_of(package, Path(folder))
            integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
            if package["integrity"] not in ("", integrity):
                sys.exit(f"{package['name']} {package['version']} has the checksum {integrity}, not the one in {TABLE}")
            package["integrity"] = integrity
            _unpack(package, archive)
    TABLE.write_text(json.dumps(table, indent=2) + "\n")


def _archive_of(package: dict[str, Any], folder: Path) -> bytes:
    """The bytes of the package's archive, as the registry has it."""
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package['name']}@{package['version']}"]
    name = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]
    return (folder / name).read_bytes()


def _unpack(package: dict[str, Any], archive: bytes) -> None:
    """Write the package's files of the table, and their checksums into it."""
    package["sha256"] = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for source, target in sorted(package["files"].items()):
            member = tar.extractfile(f"package/{source}")
            assert member is not None, f"{package['name']} has no file {source}"
            content = member.read()
            path = VENDOR / target
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            package["sha256"][target] = hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    main()
