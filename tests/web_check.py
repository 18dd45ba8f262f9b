"""Checks the page's own JavaScript: its types (JSDoc, by the TypeScript compiler) and its format.

    python tests/web_check.py           `make page-check`
    python tests/web_check.py --write   `make page-format`

The two programs and the libraries' types come from the npm registry into a folder of the user's cache. Nothing of
theirs is in the tree, and the page needs none of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).parents[1] / "src" / "shepherd" / "server" / "web"
PROGRAMS = ("typescript@7.0.2", "prettier@3.10.1")
FORMAT = ("--print-width", "120", "--embedded-language-formatting", "off")

COMPILER = {
    "compilerOptions": {
        "allowJs": True,
        "checkJs": True,
        "strict": True,
        "noEmit": True,
        "skipLibCheck": True,  # our files, not those of the libraries
        "preserveSymlinks": True,  # `web` is one; the libraries' types are beside it
        "target": "es2023",
        "module": "esnext",
        "moduleResolution": "bundler",
        "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"],
        "types": [],
    },
    "include": ["web/js/**/*.js", "libraries.d.ts"],
}
LIBRARIES = """\
declare module "highlight.js" {
  const highlighter: {
    registerLanguage(name: string, language: any): void;
    getLanguage(name: string): any;
    highlight(code: string, how: { language: string; ignoreIllegals?: boolean }): { value: string };
  };
  export default highlighter;
}
declare module "highlight.js/*" {
  const language: any;
  export default language;
}
"""


def main() -> None:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shepherd-page"
    folder.mkdir(parents=True, exist_ok=True)
    packages = json.loads((WEB / "vendor" / "vendor.json").read_text())["packages"]
    wanted = [*PROGRAMS, *(f"{each['name']}@{each['version']}" for each in packages if "highlight" not in each["name"])]
    if not (folder / "package.json").exists() or (folder / "wanted").read_text() != "\n".join(wanted):
        (folder / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--save-exact", *wanted], cwd=folder, check=True)
        (folder / "wanted").write_text("\n".join(wanted))
    (folder / "tsconfig.json").write_text(json.dumps(COMPILER))
    (folder / "libraries.d.ts").write_text(LIBRARIES)
    link = folder / "web"
    link.unlink(missing_ok=True)
    link.symlink_to(WEB)
    own = [str(path) for path in sorted(WEB.rglob("*")) if path.suffix in {".js", ".css", ".html"}]
    own = [path for path in own if "/vendor/" not in path]
    mode = "--write" if "--write" in sys.argv else "--check"
    prettier = ["node_modules/.bin/prettier", mode, *FORMAT, *own]
    compiler = ["node_modules/.bin/tsc", "--project", "tsconfig.json"]
    failed = [run for run in (prettier, compiler) if subprocess.run(run, cwd=folder, check=False).returncode]
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
