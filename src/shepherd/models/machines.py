"""Machines by name: memory, bandwidth and arithmetic as their makers state them, and what of it programs reach. Pure.

    4090 | 2x3090 | h100 | ram=64GiB,bandwidth=90,tflops=2 ── parse ──▶ Machine        10G | 1G,0.5ms ──▶ Network

The figures of a row are a maker's peaks, so a plan for it is an estimate; for this machine they are measured
(`measure/speed.py`).
"""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from shepherd.core import InvalidRequest
from shepherd.models.plan import ANY, GPU_SHARE, Machine, Network, Rates

THIS = "this"
MOST_DEVICES = 1024
READS = 0.65
"""Of the stated bandwidth, what a step reaches. llama-bench, a 7B model: F16 on an RTX 4090 0.82, Q8_0 0.70 (llama.cpp
pull request 4766), Q4_0 on an RTX 3090 Ti 0.48 (4812), on an M2 Ultra F16 0.70, Q8_0 0.55 (2891)."""
COMPUTES = 0.5
"""Of the stated arithmetic, what a prompt reaches: on an RTX 4090 F16 0.88, Q4_0 0.64 (4766), on a 3090 Ti Q4_0 0.67
(4812), on an M2 Ultra F16 0.61 (3084); cards for data centres reach less."""
LAYER_S = 10e-6
"""Of a layer on a card: a dozen kernels that start from one graph."""
_UNIFIED = 0.75
"""Of memory that a card shares with the system, what the card may take by default (macOS, Linux's GTT)."""


class Row(NamedTuple):
    name: str
    gib: int
    gb_s: float
    """10^9 bytes per second."""
    fp16: float
    """Dense, 10^12 operations per second, added up in FP32 where the maker states both."""
    int8: float
    """The same of 8-bit numbers, FP8 alike; 0 = not stated, as fp16."""
    source: str
    share: float = GPU_SHARE
    can_serve: bool = True

    @property
    def is_card(self) -> bool:
        """Of which a machine may have several; the others are machines themselves."""
        return self.share == GPU_SHARE


_GA102 = "NVIDIA Ampere GA102 whitepaper"
_AD102 = "NVIDIA Ada GPU architecture whitepaper"
_GB202 = "NVIDIA RTX Blackwell GPU architecture whitepaper"
_APPLE = "Apple's technical specifications; arithmetic: cores x 256 x clock"

MACHINES = (
    Row("3060", 12, 360, 25.6, 102, "NVIDIA GeForce RTX 3060 specifications; tensor cores as in the " + _GA102),
    Row("3080", 10, 760, 59.5, 238, _GA102),
    Row("3090", 24, 936, 71, 284, _GA102),
    Row("4080", 16, 717, 97.5, 390, _AD102),
    Row("4090", 24, 1008, 165.2, 660.6, _AD102),
    Row("5080", 16, 960, 112.6, 450.2, _GB202),
    Row("5090", 32, 1792, 209.5, 838, _GB202),
    Row("t4", 16, 320, 65, 130, "NVIDIA T4 data sheet"),
    Row("v100", 32, 900, 125, 0, "NVIDIA V100 data sheet"),
    Row("a10", 24, 600, 125, 250, "NVIDIA A10 data sheet"),
    Row("a100-40", 40, 1555, 312, 624, "NVIDIA A100 data sheet"),
    Row("a100", 80, 2039, 312, 624, "NVIDIA A100 data sheet, SXM"),
    Row("l4", 24, 300, 121, 242, "NVIDIA L4 data sheet"),
    Row("l40s", 48, 864, 362, 733, "NVIDIA L40S data sheet"),
    Row("h100-pcie", 80, 2000, 756, 1513, "NVIDIA H100 data sheet, PCIe"),
    Row("h100", 80, 3350, 989, 1979, "NVIDIA H100 data sheet, SXM"),
    Row("h200", 140, 4800, 989, 1979, "NVIDIA H200 data sheet, SXM"),
    Row("b200", 179, 7700, 2250, 4500, "NVIDIA HGX B200 data sheet"),
    Row("mi300x", 192, 5300, 1307, 2615, "AMD Instinct MI300X data sheet"),
    Row("7900xtx", 24, 960, 122.8, 0, "AMD Radeon RX 7900 XTX specifications"),
    Row("m1-max", 64, 400, 10.4, 0, "Apple newsroom, October 2021", _UNIFIED, False),
    Row("m2-ultra", 192, 800, 27.2, 0, "Apple newsroom, June 2023", _UNIFIED, False),
    Row("m3-ultra", 512, 819, 28.2, 0, _APPLE, _UNIFIED, False),
    Row("m4", 32, 120, 4.3, 0, _APPLE, _UNIFIED, False),
    Row("m4-pro", 64, 273, 9.2, 0, _APPLE, _UNIFIED, False),
    Row("m4-max", 128, 546, 18.4, 0, _APPLE, _UNIFIED, False),
    Row(
        "dgx-spark",
        128,
        273,
        125,
        250,
        "NVIDIA DGX Spark data sheet: 1 PFLOP of sparse FP4, an eighth of it in FP16",
        0.9,
    ),
    Row("ryzen-ai-max", 128, 256, 59.4, 0, "AMD Ryzen AI Max+ 395: 40 compute units at 2.9 GHz", _UNIFIED, False),
)
"""By family and size. Of a name with several sizes of memory, the largest."""

_BY_NAME = {row.name.replace("-", ""): row for row in MACHINES}
_PREFIX = re.compile(r"^(?:nvidia|geforce|tesla|apple|amd|radeon|rtx|rx|gb10)+")
_COUNT = re.compile(r"(\d+)\s*[x×*]\s*(\S.*)", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
FORMS = "ram=64GiB,bandwidth=90,tflops=2 (10^9 bytes, 10^12 operations per second; gpu=yes for a card)"


def parse(text: str) -> Machine:
    """The machine that `text` names; not `this`. Raises: `InvalidRequest`, with the names that there are."""
    text = text.strip()
    if "=" in text:
        return _described(text)
    n, name, row = 1, text, _find(text)
    if row is None and (match := _COUNT.fullmatch(text)):
        n, name, row = int(match[1]) if len(match[1]) < 5 else 0, match[2], _find(match[2])
        if not 1 <= n <= MOST_DEVICES:
            raise _wrong(f"{text[:80]!r} names {match[1][:20]} devices; give a number from 1 to {MOST_DEVICES}")
    if row is not None and n > 1 and not row.is_card:
        raise _wrong(f"{row.name} is a whole machine; for several of them give --machine {row.name} several times")
    if row is None:
        near = difflib.get_close_matches(_plain(name), _BY_NAME, 1, 0.75)
        hint = f"; did you mean {_BY_NAME[near[0]].name}?" if near else ""
        known = ", ".join(each.name for each in MACHINES)
        raise _wrong(
            f"no machine is called {name[:80]!r}{hint or '.'} Known are {THIS}, {known}; or describe one: {FORMS}"
        )
    return machine(row, n)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _find(name: str) -> Row | None:
    plain = _plain(name)
    return _BY_NAME.get(plain) or _BY_NAME.get(_PREFIX.sub("", plain))


def machine(row: Row, n: int = 1) -> Machine:
    """`n` devices of a row."""
    rates = _rates(row.gb_s * READS, row.fp16 * COMPUTES, (row.int8 or row.fp16) * COMPUTES)
    return Machine(row.name, int(row.gib * 2**30 * row.share), rates, n, can_serve=row.can_serve, source=row.source)


def enough(n_bytes: int, *, serves: bool = False) -> str:
    """The smallest machine of the table with memory for so many bytes, as `parse` takes it; empty: none has it.

    serves: one that vLLM and its like run on.
    """
    rows = [row for row in MACHINES if row.can_serve or not serves]
    sized = sorted((row.gib * row.share * n, n, row) for row in rows for n in (1, 2, 4, 8) if n == 1 or row.is_card)
    found = next(((n, row) for gib, n, row in sized if gib * 2**30 >= n_bytes), None)
    return "" if found is None else f"{found[0]}x{found[1].name}" if found[0] > 1 else found[1].name


def _described(text: str) -> Machine:
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() not in {"ram", "bandwidth", "tflops", "gpu", "n"} or key.strip() in given or not value.strip():
            raise _wrong(f"{part[:80]!r} is not understood in {text[:80]!r}; describe a machine like {FORMS}")
        given[key.strip()] = value.strip()
    if missing := [key for key in ("ram", "bandwidth", "tflops") if key not in given]:
        raise _wrong(f"{text[:80]!r} lacks {' and '.join(missing)}; describe a machine like {FORMS}")
    ram = re.fullmatch(r"(\d{1,7}(?:\.\d{1,3})?)\s*(?:(T|G|M)i?B?)?", given["ram"], re.IGNORECASE)
    size = float(ram[1]) * {"T": 2**40, "G": 2**30, "M": 2**20}[(ram[2] or "G").upper()] if ram else 0
    if not 2**20 <= size <= 2**50:
        raise _wrong(f"ram is {given['ram'][:40]!r}; give an amount from 1 MiB to 1024 TiB, such as 64GiB")
    speeds = {key: _number(given[key]) for key in ("bandwidth", "tflops")}
    for key, speed in speeds.items():
        if not 0 < speed <= 1e6:
            raise _wrong(f"{key} is {given[key][:40]!r}; give a number above 0 and up to 1000000")
    if given.get("gpu", "no") not in ("yes", "no"):
        raise _wrong(f"gpu is {given['gpu'][:40]!r}; give yes or no")
    n = _number(given.get("n", "1"))
    is_gpu = given.get("gpu") == "yes"
    if not (1 <= n <= MOST_DEVICES and n == int(n)):
        raise _wrong(f"n is {given['n'][:40]!r}; give a whole number from 1 to {MOST_DEVICES}")
    if n > 1 and not is_gpu:
        raise _wrong(f"n is {given['n']} and gpu is not yes; a machine has several cards, and one memory of its own")
    computes = speeds["tflops"] * COMPUTES
    rates = _rates(speeds["bandwidth"] * READS, computes, computes)
    share = GPU_SHARE if is_gpu else 15 / 16
    name = f"{given['ram']} at {speeds['bandwidth']:g} GB/s"
    return Machine(name, int(size * share), rates, int(n), is_gpu, can_serve=is_gpu, source="as described")


def _rates(gb_s: float, fp16: float, int8: float) -> Rates:
    read, flops = gb_s * 1e9, {ANY: fp16 * 1e12, "i8": int8 * 1e12}
    return Rates({ANY: read}, {}, flops, read, fp16 * 1e12, fp16 * 1e12, LAYER_S)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text) else -1.0


def parse_network(text: str) -> Network:
    """A network by its bits per second, and, behind a comma, the time of a round trip. Raises: `InvalidRequest`."""
    match = re.fullmatch(
        r"\s*(\d{1,6}(?:\.\d{1,3})?)\s*([kmgt]?)(?:bit/s|bps|be)?\s*(?:,\s*(\d{1,6}(?:\.\d{1,3})?)\s*(us|ms|s)\s*)?",
        text, re.IGNORECASE,
    )  # fmt: skip
    bits = float(match[1]) * _UNITS[match[2].lower()] if match else 0.0
    if match is None or not 1e3 <= bits <= 1e15:
        raise InvalidRequest(
            f"network is {text[:80]!r}; give its bits per second from 1k to 1000T, such as 10G, and behind a comma, "
            "if it is known, the time of a round trip: 10G,0.1ms",
            field="network",
        )
    latency_s = float(match[3]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[match[4].lower()] if match[3] else 0.0002
    return Network(bits / 8, latency_s, text.strip())


def _wrong(message: str) -> InvalidRequest:
    return InvalidRequest(message, field="machine")
