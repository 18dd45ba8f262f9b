"""Which adapters a request computes with: those that it names, those in the name of its model, or the model's own.

    lora: [{"id": 0, "scale": 0.5}]   these alone, at these scales (llama-server)      the strongest
    model: "qwen:law"                 this one alone, at its scale (vLLM)
    neither                           the defaults: of the configuration, or as `POST /lora-adapters` has set them

The result is a set of (hash, scale) that decides with which cached tokens the prompt may begin (`engine/base.Owner`).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence

from shepherd.core import InvalidRequest, Request
from shepherd.core.request import LoraScale
from shepherd.core.status import AdapterState
from shepherd.engine.base import Adapters
from shepherd.models.adapter import Adapter
from shepherd.wire.names import model_names


class ModelAdapters:
    """The adapters of one model, loaded or not, in the order of the configuration. One event loop."""

    def __init__(self, model: str, adapters: Sequence[Adapter]) -> None:
        """`model`: its name for requests."""
        self.model = model
        self.adapters = tuple(adapters)
        self.scales = tuple(each.scale if each.applies else 0.0 for each in self.adapters)
        """Of requests that choose none."""

    @property
    def names(self) -> dict[str, Adapter]:
        """The name of the model with each adapter alone."""
        return {f"{self.model}:{each.name}": each for each in self.adapters}

    def states(self) -> tuple[AdapterState, ...]:
        """Each adapter, with its scale for requests that choose none."""
        pairs = zip(self.adapters, self.scales, strict=True)
        return tuple(AdapterState(each.name, each.path.name, each.kind, scale) for each, scale in pairs)

    def set_scales(self, chosen: Sequence[LoraScale]) -> None:
        """From now on, requests that choose no adapters get these. Raises: `InvalidRequest`."""
        self.scales = self._scales(chosen)

    def of(self, request: Request, hashes: Sequence[str]) -> Adapters:
        """The set for a request. `hashes`: of each adapter, as it was loaded. Raises: `InvalidRequest`."""
        if request.lora:
            return adapter_set(zip(hashes, self._scales(request.lora), strict=True))
        asked = {name.casefold() for name in model_names(request.model)}
        for (name, adapter), each in zip(self.names.items(), hashes, strict=True):
            if name.casefold() in asked:
                return adapter_set([(each, adapter.scale)])
        return adapter_set(zip(hashes, self.scales, strict=True))

    def _scales(self, chosen: Sequence[LoraScale]) -> tuple[float, ...]:
        scales = [0.0] * len(self.adapters)
        for at, (adapter, scale) in enumerate(chosen):
            scales[self._index(adapter, f"lora[{at}]")] = scale
        return tuple(scales)

    def _index(self, adapter: int | str, path: str) -> int:
        for at, each in enumerate(self.adapters):
            if adapter in (at, each.name):
                return at
        known = ", ".join(f"{at} ({each.name})" for at, each in enumerate(self.adapters)) or "none"
        raise InvalidRequest(f"{path}: model {self.model!r} has no adapter {adapter!r}; known: {known}", field="lora")


def adapter_set(scaled: Iterable[tuple[str, float]]) -> Adapters:
    """Equal sets are equal: scales as the library has them (float32), those of one adapter added up, none of 0."""
    total: dict[str, float] = defaultdict(float)
    for adapter, scale in scaled:
        total[adapter] += scale
    rounded = ((adapter, struct.unpack("<f", struct.pack("<f", scale))[0]) for adapter, scale in total.items())
    return tuple(sorted((adapter, scale) for adapter, scale in rounded if scale))
