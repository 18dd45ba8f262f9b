"""Packs what a bare machine lacks for `bench.gpu.run`: llama.cpp's source, Shepherd's packages. Needs a network, once.

    uv run python -m bench.gpu.pack [--python 3.12]

    bench/out/gpu-pack/   llama.tar.xz   llama.cpp without what is not compiled: tests, models, documents, other GPUs
                          site.tar.xz    the locked packages of a plain run for that Python, gguf, the bindings
                          pack.json      versions, and the sums of both

The folder is ignored by git: it is carried beside the copy of the tree. Both together must be small (`LIMIT_MIB`).
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distribution, version
from pathlib import Path, PurePosixPath

from bench.gpu.run import CONTENTS, PACK, ROOT, SITE, SOURCE
from bench.rig import llama_tools

LIMIT_MIB = 64.0
"""Of the tree and the pack together: what those that lend machines carry in one call."""
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_34"

TOP = (
    "CMakeLists.txt", "LICENSE", "cmake", "common", "ggml", "include", "scripts/ui-assets.cmake", "src", "tools",
    "vendor",
)  # fmt: skip
"""Of llama.cpp, what CMake reads."""
LEFT_OUT = (
    *(f"ggml/src/ggml-{name}/*" for name in (
        "blas", "cann", "et", "hexagon", "hip", "metal", "musa", "opencl", "openvino", "sycl", "virtgpu", "vulkan",
        "webgpu", "zdnn", "zendnn",
    )),
    "tools/ui/src/*", "tools/ui/static/*", "tools/ui/tests/*", "tools/ui/scripts/*", "tools/ui/*.json",
    "tools/*/tests/*", "tools/server/bench/*", "tools/mtmd/test-*",
    "*.md", "*.py",
)  # fmt: skip
"""Nothing of these is compiled for a CPU and CUDA."""
SITE_LEFT_OUT = (
    "*/tests/*", "*/__pycache__/*", "*.pyi", "*.a", "bin/*", "*/include/*",
    "hf_xet/*",  # downloads from the Hub
)  # fmt: skip


def pack_source(tree: Path, target: Path) -> None:
    """The part of llama.cpp's tree that is compiled."""
    names = [path for top in TOP for path in _below(tree, top) if not _is_any(path, LEFT_OUT)]
    _archive(tree, names, target)


def pack_site(python: str, target: Path) -> None:
    """Packages for another Python, as uv unpacks them; the bindings come without a library."""
    with tempfile.TemporaryDirectory(prefix="shepherd-pack-") as folder:
        site, wanted = Path(folder) / "site", Path(folder) / "wanted.txt"
        export = (
            "uv", "export", "--frozen", "--no-default-groups", "--no-emit-project", "--no-emit-package",
            "llama-cpp-python", "--no-hashes", "--no-annotate", "--no-header", "--quiet",
        )  # fmt: skip
        locked = subprocess.run(export, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        wanted.write_text(f"{locked}\ngguf=={version('gguf')}\n", encoding="utf-8")
        install = (
            "uv", "pip", "install", "--quiet", "--target", site, "--python-version", python, "--python-platform",
            PLATFORM, "--no-deps", "--only-binary", ":all:", "--link-mode", "copy", "-r", wanted,
        )  # fmt: skip
        subprocess.run(install, check=True)
        for name in ("shepherd", "llama-cpp-python"):
            _copy_facts(name, site)
        bindings = Path(str(distribution("llama-cpp-python").locate_file("llama_cpp")))
        for file in bindings.glob("*.py"):
            (site / "llama_cpp").mkdir(exist_ok=True)
            shutil.copy(file, site / "llama_cpp")
        _archive(site, [path for path in _below(site, ".") if not _is_any(path, SITE_LEFT_OUT)], target)


def _copy_facts(name: str, site: Path) -> None:
    """Version and entry points of an installed package."""
    found = distribution(name)
    folder = site / f"{name.replace('-', '_')}-{found.version}.dist-info"
    folder.mkdir()
    for file in ("METADATA", "entry_points.txt"):
        said = found.read_text(file)
        if said is not None:
            (folder / file).write_text(said, encoding="utf-8")


def _below(root: Path, top: str) -> Iterator[str]:
    """The files of a folder, or a file, by their names from `root` on."""
    start = root / top
    found = [start] if start.is_file() else sorted(start.rglob("*"))
    return (path.relative_to(root).as_posix() for path in found if path.is_file())


def _is_any(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _archive(root: Path, names: list[str], target: Path) -> None:
    """The same bytes from the same files."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = 0
        return entry

    new = target.with_suffix(".new")
    with tarfile.open(new, "w:xz") as tar:
        for name in sorted(names, key=lambda name: (PurePosixPath(name).suffix, name)):  # likes beside likes
            tar.add((root / name).resolve(), name, filter=plain)
    new.replace(target)


def tree_bytes() -> int:
    """Of the files that travel with a copy of the working tree."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    names = subprocess.run(listing, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.decode().split("\0")
    return sum((ROOT / name).stat().st_size for name in names if name and (ROOT / name).is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=PYTHON, help="version of Python on that machine (default: %(default)s)")
    parser.add_argument("--to", type=Path, default=PACK, help=f"the folder (default: {PACK})")
    said = parser.parse_args()
    if not re.fullmatch(r"3\.\d\d?", said.python):
        parser.error(f"--python {said.python} is no version such as {PYTHON}")
    if shutil.which("uv") is None:
        parser.error("uv is not there, and it unpacks the packages: install it")
    said.to.mkdir(parents=True, exist_ok=True)
    (said.to / CONTENTS).unlink(missing_ok=True)  # a pack that is half made is none
    try:
        pack_source(llama_tools.source(), said.to / SOURCE)
        pack_site(said.python, said.to / SITE)
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(map(str, error.cmd[:3]))} ended with status {error.returncode}", file=sys.stderr)
        return 1
    sums = {name: hashlib.sha256((said.to / name).read_bytes()).hexdigest() for name in (SOURCE, SITE)}
    contents = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": [int(part) for part in said.python.split(".")],
        "llama-cpp-python": version("llama-cpp-python"),
        "sha256": sums,
        "key": hashlib.sha256("".join(sums.values()).encode()).hexdigest()[:16],
    }
    (said.to / CONTENTS).write_text(json.dumps(contents, indent=2) + "\n", encoding="utf-8")
    sizes = {name: (said.to / name).stat().st_size / 2**20 for name in sums} | {"the tree": tree_bytes() / 2**20}
    print(*(f"{name}: {size:.1f} MiB" for name, size in sizes.items()), sep="\n")
    whole = sum(sizes.values())
    print(f"{whole:.1f} of {LIMIT_MIB:.0f} MiB; carry {said.to} beside the tree")
    if whole > LIMIT_MIB:
        print("That is too much for one call.", file=sys.stderr)
    return int(whole > LIMIT_MIB)


if __name__ == "__main__":
    sys.exit(main())
