"""Models of a registry that speaks Ollama's protocol, which is that of container images.

GET /v2/NAMESPACE/NAME/manifests/TAG ─▶ layers, each with kind, size and SHA-256
GET /v2/NAMESPACE/NAME/blobs/sha256:… ─▶ the bytes of one, often behind a redirect
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import httpx2

from shepherd.core import BadReply, InvalidRequest
from shepherd.models.pull.network import limit, reaching, refuse
from shepherd.models.pull.plan import MAX_FILE_BYTES, Plan
from shepherd.models.pull.source import OllamaSource
from shepherd.models.pulled import ModelFile, Role

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_KIND = "application/vnd.ollama.image."
_ROLES: dict[str, tuple[Role, str]] = {
    "model": ("model", "{name}-{tag}.gguf"),
    "projector": ("projector", "mmproj-{name}-{tag}.gguf"),
    "license": ("other", "license.txt"),
    "params": ("other", "params.json"),
    "system": ("other", "system.txt"),
    "template": ("other", "template.txt"),
}
"""By the kind of a layer: its role, and the name of its file. Other layers are not used here."""
_TENSORS = ("tensor", "json")
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+)(:\d+)?")
MAX_MANIFEST_BYTES = 4 * 2**20


async def plan_ollama(client: httpx2.AsyncClient, source: OllamaSource, *, idle_s: float) -> Plan:
    """The files of a model of a registry; one on this machine is asked without TLS, as container tools do.
    Raises: `NotAllowed`, `InvalidRequest`, `BackendError`."""
    scheme = "http" if _LOOPBACK.fullmatch(source.host) else "https"
    root = f"{scheme}://{source.host}/v2/{source.namespace}/{source.name}"
    name = source.spec.removeprefix("ollama:")
    asked = {"Accept": _MANIFEST, "Accept-Encoding": "identity"}
    with reaching(root):
        async with client.stream(
            "GET", f"{root}/manifests/{source.tag}", headers=asked, timeout=idle_s, follow_redirects=True
        ) as answer:
            refuse(answer, what=f"model {name}", page="")
            limit(answer, MAX_MANIFEST_BYTES)
            content = await answer.aread()
    try:
        manifest = json.loads(content)
        layers = manifest.get("layers", []) if "manifests" in manifest else manifest["layers"]
        kinds = {str(layer["mediaType"]).removeprefix(_KIND): layer for layer in layers}
        files = [file for layer in layers if (file := _file(source, layer)) is not None]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadReply(
            f"{source.host} does not answer like a registry of Ollama, but with a web page or the like; check the "
            "name, and whether this network wants a login",
            backend=source.host,
        ) from error
    if "adapter" in kinds:
        raise InvalidRequest(
            f"{name} is a model with an adapter (LoRA), and a pull brings no adapters: pull the model that it is for, "
            f"get {root}/blobs/{kinds['adapter']['digest']} as a file, and name that in [[models.NAME.adapters]]",
            field="model",
        )
    if all(file.role != "model" for file in files):
        why = "it runs at Ollama only, or is in another format"
        if not kinds.keys().isdisjoint(_TENSORS):
            why = "its weights are in safetensors"
        elif "manifests" in manifest:
            why = "its manifest is a list of others, as images of containers for several machines have it"
        raise InvalidRequest(f"{name} has no GGUF file in {source.host}: {why}; choose another tag", field="model")
    files = list({file.name: file for file in reversed(files)}.values())[::-1]  # of equal names the first
    return Plan(
        name=source.spec,
        origin="ollama",
        address=root,
        revision="sha256:" + hashlib.sha256(content).hexdigest(),
        place=f"ollama/{source.host.replace(':', '+')}/{source.namespace}/{source.name}/{source.tag}",
        files=tuple(files),
        urls={file.name: f"{root}/blobs/sha256:{file.sha256}" for file in files},
    )


def _file(source: OllamaSource, layer: Any) -> ModelFile | None:
    """Raises: `ValueError`, `LookupError` or `TypeError` for a layer that is none."""
    role, pattern = _ROLES.get(str(layer["mediaType"]).removeprefix(_KIND), (None, ""))
    digest, size = layer["digest"], layer["size"]
    match = re.fullmatch(r"sha256:([0-9a-f]{64})", digest)
    if match is None or type(size) is not int or not 0 <= size <= MAX_FILE_BYTES:
        raise ValueError("a layer has a digest or a size that is none")
    if role is None or size == 0:
        return None
    name = pattern.format(name=source.name, tag=source.tag)
    return ModelFile(name, size, match[1], role)
