"""The documentation as a web site: `make docs` writes build/site, and `python -m http.server -d build/site` shows it.

    docs/ and what it links to ─ pages ─▶ Markdown of one folder ─ zensical, strict ─▶ HTML ─ alone ─▶ build/site

The order of the pages is that of docs/README.md. A link to a file that is no page becomes its words. A page asks no
other machine: the theme has no fonts from elsewhere, and a policy in each page makes the browser refuse what a script
may ask for. Not here: how pages are written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build"
PAGES = {
    **{path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))},
    "measurements.md": ROOT / "bench" / "README.md",
}
"""The pages of the site by their names there."""
LINK = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s#:]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self' blob:; manifest-src 'self'"
)
CONFIG = """\
[project]
site_name = "Shepherd"
site_description = "Language models on your own machine"
docs_dir = "pages"
site_dir = "site"
nav = {nav}

[project.theme]
font = false
features = [
    "content.code.copy", "navigation.indexes", "navigation.sections", "navigation.top", "search.highlight", "toc.follow"
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle = {{ icon = "lucide/sun", name = "Use the dark colours" }}

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle = {{ icon = "lucide/moon", name = "Use the light colours" }}

[project.markdown_extensions.toc]
slugify = {{ object = "pymdownx.slugs.slugify", kwds = {{ case = "lower" }} }}

[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
"""


def text(name: str, pages: Mapping[str, Path] = PAGES) -> str:
    """A page as the site has it: its links lead to pages of the site, and its fences name a language only."""
    path = pages[name]
    names = {each.resolve(): its_name for its_name, each in pages.items()}

    def link(found: re.Match[str]) -> str:
        mark, words, target, section = found[1], found[2], found[3], found[4] or ""
        to = (path.parent / target).resolve() if target else path.resolve()
        to = to / "README.md" if (to / "README.md") in names else to
        if mark or not target:
            return found[0]
        if to not in names:
            return words
        return f"[{words}]({os.path.relpath(names[to], Path(name).parent)}{section})"

    return FENCE.sub(r"\1", LINK.sub(link, path.read_text("utf-8")))


def nav() -> str:
    """The pages as docs/README.md groups them, and the decisions."""
    groups = {"Start": ["README.md", "start.md"]}
    index = PAGES["README.md"].read_text("utf-8")
    for title, body in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", index, re.M | re.S):
        groups[title] = [target for target in re.findall(r"\]\(([^)#:]*)\)", body) if target in PAGES]
    groups["Why"].append("measurements.md")
    groups["Decisions"] = [name for name in PAGES if name.startswith("adr/")]
    return "[" + ", ".join(f"{{ {json.dumps(title)} = {json.dumps(pages)} }}" for title, pages in groups.items()) + "]"


def build(folder: Path = FOLDER) -> Path:
    """The folder of the site. Raises: `SystemExit` when a link leads nowhere, or zensical is not installed."""
    shutil.rmtree(folder / "pages", ignore_errors=True)
    for name in PAGES:
        (folder / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pages" / name).write_text(text(name), "utf-8")
    shutil.copytree(ROOT / "docs" / "pictures", folder / "pages" / "pictures")
    (folder / "zensical.toml").write_text(CONFIG.format(nav=nav()), "utf-8")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=folder, check=False)
    if done.returncode:
        sys.exit("the site is not built: uv run --group docs python tests/docs_site.py; what is wrong stands above")
    for file in (folder / "site").rglob("*.html"):
        page = file.read_text("utf-8")
        policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        file.write_text(page.replace("<head>", f"<head>{policy}", 1), "utf-8")
    return folder / "site"


if __name__ == "__main__":
    print(build())
