"""What the Hugging Face Hub has: the files of a repository with sizes and checksums, and models by words.

`huggingface_hub` asks: it knows the token, HF_ENDPOINT, HF_HUB_OFFLINE and the proxies. It does not move the bytes:
since 2.0 it deletes what it has of a file when a process ends, compares no checksum, and waits as long as a hub asks.
It takes a second to import: every import of it is in a function. Functions block.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import httpx2

from shepherd.core import BadReply, Refused
from shepherd.core.dataclasses import dataclass
from shepherd.models.pull.network import Network, limit, reaching, refuse
from shepherd.models.pull.plan import MAX_FILE_BYTES, Plan, RepoFile, candidates, choose, local_name, projector
from shepherd.models.pull.source import HubSource
from shepherd.models.pulled import ModelFile

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoSibling

TIMEOUT_S = 30.0
"""For one answer of the hub's API."""
MAX_LISTING_BYTES = 16 * 2**20
"""Of one answer: a list of 50,000 files."""


MAX_FILES = 2_000
"""GGUF files of a repository; real ones have some hundreds."""


@dataclass(frozen=True, slots=True)
class Repo:
    name: str
    commit: str
    files: tuple[RepoFile, ...]
    """Those in GGUF."""


@dataclass(frozen=True, slots=True)
class FoundModel:
    name: str
    downloads: int
    """In the last 30 days."""
    licence: str
    """Empty where it names none."""
    is_gated: bool


def endpoint(env: Mapping[str, str]) -> str:
    from huggingface_hub import constants  # noqa: PLC0415

    return (env.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def plan_hub(source: HubSource, *, env: Mapping[str, str], memory_bytes: int | None, network: Network) -> Plan:
    """The files of a model of the hub. Raises: as `list_repo` and `choose`."""
    from huggingface_hub import hf_hub_url  # noqa: PLC0415

    repo = list_repo(source.repo, env=env, network=network)
    found = candidates(repo.files)
    extra = projector(repo.files, found[0]) if found else None
    chosen, why = choose(repo.name, found, source.label, memory_bytes, extra.size_bytes if extra else 0)
    extra = projector(repo.files, chosen)
    host, token = endpoint(env), _token(network)

    wanted = {local_name(file.path, host): file for file in (*chosen.files, *filter(None, (extra,)))}
    urls = {
        name: hf_hub_url(repo.name, file.path, revision=repo.commit, endpoint=host) for name, file in wanted.items()
    }
    return Plan(
        name=f"hf:{repo.name}:{chosen.label}",
        origin="hf",
        address=f"{host}/{repo.name}",
        revision=repo.commit,
        place=f"hf/{repo.name}/{local_name(chosen.folder, host)}",
        files=tuple(
            ModelFile(
                name,
                file.size_bytes,
                file.sha256 or _linked_sha256(urls[name], host, token),
                "projector" if file == extra else "model",
            )
            for name, file in wanted.items()
        ),
        urls=urls,
        why=why,
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )


def _linked_sha256(url: str, host: str, token: str) -> str:
    """The checksum that the hub names for one file, where its listing has none; empty where neither has one.

    For files that it keeps elsewhere, in LFS or in Xet, it is the entity tag of the answer that leads there
    (X-Linked-Etag); the tag of the host that delivers them is another one. Raises: as `list_repo`.
    """
    from huggingface_hub import get_hf_file_metadata  # noqa: PLC0415

    with _hub_errors(host, what=url.rpartition("/")[2], page=""):
        tag = get_hf_file_metadata(url, token=token or False, timeout=TIMEOUT_S, endpoint=host).etag or ""
    return tag if re.fullmatch("[0-9a-f]{64}", tag) else ""


def list_repo(name: str, *, env: Mapping[str, str], network: Network) -> Repo:
    """The files at the newest commit. Raises: `NotAllowed`, `InvalidRequest`, `BackendError`."""
    host = endpoint(env)
    with _hub_errors(host, what=f"repository {name}", page=f"{host}/{name}"):
        found = _api(host, network).model_info(name, files_metadata=True, timeout=TIMEOUT_S)
        files = tuple(filter(None, map(_file, found.siblings or ())))
        if not _is_text(found.sha) or not _is_text(found.id):
            raise ValueError("no commit, or no name")
        if len(files) > MAX_FILES:
            raise BadReply(
                f"{name} has {len(files):,} GGUF files, and the limit is {MAX_FILES:,}; pull one by its address",
                backend=host,
            )
        # A repository that was renamed is known here by the name that the user gave.
        return Repo(found.id if found.id.lower() == name.lower() else name, found.sha, files)


def _file(listed: RepoSibling) -> RepoFile | None:
    """None for what is no GGUF file, or is listed without a size. Raises: `ValueError`, `AttributeError` for a row that
    is none."""
    size, sha256 = listed.size, listed.lfs.sha256 if listed.lfs else ""
    if size is None or (_is_text(listed.rfilename) and not listed.rfilename.lower().endswith(".gguf")):
        return None
    if not _is_text(listed.rfilename) or type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise ValueError("a file has a name or a size that is none")
    if sha256 and not (isinstance(sha256, str) and re.fullmatch("[0-9a-f]{64}", sha256)):
        raise ValueError("a file has a checksum that is none")
    return RepoFile(listed.rfilename, size, sha256 or "")


def _is_text(value: object) -> TypeGuard[str]:
    """Half of a surrogate pair, which JSON can name, is in no address."""
    return isinstance(value, str) and re.fullmatch(r"[^\ud800-\udfff]+", value) is not None


def config_url(repo: str, *, env: Mapping[str, str], network: Network) -> tuple[str, Mapping[str, str]]:
    """Where the `config.json` of a repository is, and the headers with which to ask. Raises: `BackendError`."""
    from huggingface_hub import constants, hf_hub_url  # noqa: PLC0415
    from huggingface_hub.errors import OfflineModeIsEnabled  # noqa: PLC0415

    host, token = endpoint(env), _token(network)
    with _hub_errors(host, what=f"repository {repo}", page=f"{host}/{repo}"):
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled
        url = hf_hub_url(repo, "config.json", endpoint=host)
    return url, {"Authorization": f"Bearer {token}"} if token else {}


def search(words: str, *, env: Mapping[str, str], network: Network, n_most: int = 20) -> list[FoundModel]:
    """Repositories with GGUF files, the most downloaded first. Raises: as `list_repo`."""
    from huggingface_hub import get_session  # noqa: PLC0415

    host = endpoint(env)
    with _hub_errors(host, what="list of models", page=""):
        headers = _api(host, network)._build_hf_headers()
        wanted = {"search": words, "filter": "gguf", "sort": "downloads", "limit": str(n_most)}
        # Not by its `list_models`, which tries a hub that cannot be reached for half a minute, and prints each try.
        answer = get_session().get(f"{host}/api/models", params=wanted, headers=headers)
        refuse(answer, what="list of models", page="", is_hub=True)
        return [*map(_found, answer.json()[:n_most])]


def _found(listed: Mapping[str, Any]) -> FoundModel:
    """Raises: `ValueError`, `TypeError`, `LookupError`, `AttributeError` for a row that is none."""
    name, downloads = listed["id"], listed.get("downloads") or 0
    if not _is_text(name) or type(downloads) is not int:
        raise ValueError("a model has a name or a number of downloads that is none")
    licences = (tag.removeprefix("license:") for tag in listed.get("tags") or () if tag.startswith("license:"))
    return FoundModel(name, downloads, next(licences, ""), bool(listed.get("gated")))


def _api(host: str, network: Network) -> HfApi:
    from huggingface_hub import HfApi, constants  # noqa: PLC0415
    from huggingface_hub.errors import OfflineModeIsEnabled  # noqa: PLC0415

    if constants.is_offline_mode():
        raise OfflineModeIsEnabled
    _reach(network)
    return HfApi(endpoint=host, library_name="shepherd", token=_token(network) or False)


def _token(network: Network) -> str:
    """Empty where there is none."""
    from huggingface_hub import constants, get_token  # noqa: PLC0415

    return (not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN and get_token()) or network.hub_token


@functools.lru_cache(maxsize=1)
def _reach(network: Network) -> None:
    """Replaces the library's client, of which a process has one, where the last one was for another network."""
    from huggingface_hub import set_client_factory  # noqa: PLC0415

    options = network.client_options()
    options |= {"headers": {"Accept-Encoding": "identity"}, "event_hooks": {"response": [_limit]}}
    set_client_factory(lambda: httpx2.Client(follow_redirects=True, timeout=TIMEOUT_S, **options))


def _limit(answer: httpx2.Response) -> None:
    limit(answer, MAX_LISTING_BYTES)
    answer.headers.pop("link", None)  # to a next page: one has all that is asked for, and pages could go on for ever


@contextmanager
def _hub_errors(host: str, *, what: str, page: str) -> Iterator[None]:
    """Translates the library's errors. Raises: `NotAllowed`, `InvalidRequest`, `BackendError`."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled  # noqa: PLC0415

    try:
        with reaching(host):
            yield
    except OfflineModeIsEnabled as error:
        message = f"HF_HUB_OFFLINE is set, so {host} is not asked; unset it to pull a model"
        raise Refused(message, backend=host, status=503) from error
    except HfHubHTTPError as error:
        refuse(error.response, what=what, page=page, is_hub=True)
        raise BadReply(f"{host} answers in an unknown way (HTTP {error.response.status_code})", backend=host) from error
    except HFValidationError as error:
        raise BadReply(f"{what} cannot be a name on {host}", backend=host) from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, httpx2.ResponseNotRead) as error:
        raise BadReply(
            f"{host} does not answer like a hub of Hugging Face, but with a web page or the like; check HF_ENDPOINT, "
            "and whether this network wants a login",
            backend=host,
        ) from error
