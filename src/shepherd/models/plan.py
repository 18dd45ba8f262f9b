"""How much memory a model takes for so many users on machines that are named, how fast it is there, and which way of
running it to take. Pure: from a header alone, nothing is loaded.

    Header ─ work_of ─▶ Work ──┐
    users, context ─▶ Need ────┼─ ways ─▶ [Way(memory, tokens/s, seconds of a prompt)] ─ advise ─▶ Advice(way, reasons)
    [Machine(Rates)], Network ─┘

A step makes one token for each user. It reads every weight that a token needs once, whatever the number of users, and
the cached keys and values of all of them; so its time is bytes / bandwidth, until the arithmetic of many users takes
longer (the roofline of Williams, Waterman and Patterson, 2009; for transformers Pope et al., "Efficiently Scaling
Transformer Inference", 2022). A prompt is computed hundreds of tokens at a time: its time is arithmetic / rate.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from shepherd.core import InvalidRequest
from shepherd.core.dataclasses import dataclass, replace
from shepherd.models import gguf
from shepherd.models.outline import in_format
from shepherd.models.sizing import PADDING, Cells, fit, gib, padded, shape_of

Kind = Literal["one", "several", "rpc", "upstream"]

ANY = ""
"""In a table of rates: every number format that it does not name."""
MOST_SEQUENCES = 64
"""Conversations that a cache of ours computes at the same time (`sequences` of a cache)."""
MOST_USERS, MOST_CONTEXT = 1_000_000, 2**27
"""More is a slip of the keys, not a plan."""
GPU_SHARE = 0.94
"""Of a card's memory for models: the driver, the library's context and its kernels take the rest."""
UPSTREAM_SHARE = 0.9
"""Of a card's memory for a server such as vLLM, which takes it all at its start (`--gpu-memory-utilization` 0.9)."""
UPSTREAM_TENSOR = 0.85
"""What is left of the sum of several cards' speeds where each layer is split over them (tensor parallelism): two sums
over all cards for each layer wait for the link between them."""
UPSTREAM_BATCH = 2048
"""Tokens of prompts that such a server computes at once."""
SMALLER = ("Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
"""Number formats that are proposed for a model that is too large, the best first."""
UPSTREAM_SUM_S = 10e-6
"""Of each of these sums, whatever its size."""
ROUND_TRIPS = 3
"""Of a step through a machine behind RPC: its input is set, it computes, its output is fetched; one behind the other,
since llama.cpp's scheduler waits for each."""
MOST_WORKERS = 16
"""Machines behind RPC; llama.cpp's own limit."""
READING = 10.0
"""Tokens per second that a reader does not wait for: about 450 words a minute."""


class Amount(NamedTuple):
    n_bytes: float = 0
    n_values: float = 0
    """Of matrices."""
    n_rows: float = 0
    """Of the same."""


class Several(NamedTuple):
    """Seconds that a step for several tokens takes beside the step for one and the arithmetic of the others: the
    kernels of llama.cpp for several tokens read weights from memory at a lower rate, and short rows at the lowest."""

    value_s: float = 0.0
    row_s: float = 0.0

    def times(self, factor: float) -> Several:
        return Several(factor * self.value_s, factor * self.row_s)


@dataclass(frozen=True, slots=True)
class Work:
    """What one token costs, by the header of its model."""

    shared: Mapping[str, Amount]
    """Weights that every token is computed with, by their number format, without the last matrix."""
    last: Mapping[str, Amount]
    """The matrix that makes logits: once for each answer's token, and once for a whole prompt."""
    experts: Mapping[str, Amount]
    """Weights of all experts."""
    share: float
    """Of the experts, those that one token uses; 1 where there are none."""
    query: tuple[int, ...]
    """Per layer, the numbers of a query, all heads together; 0 for a layer without attention."""
    windows: tuple[int, ...]
    """Per layer, the tokens that it sees; 0 = all."""
    token_bytes: tuple[int, ...]
    """Per layer, of the keys and values of one token."""
    state_bytes: int
    """Of the state that recurrent layers keep of a conversation."""
    n_layer: int
    n_embd: int

    def used(self, n: int) -> float:
        """The part of the experts that some of `n` tokens use, each choosing on its own: 1 - (1 - k/E)^n."""
        return 1 - (1 - self.share) ** n if self.share < 1 else 1.0

    def seen(self, depth: float) -> float:
        """Sum over the layers of query numbers times the cells that they look at, behind `depth` tokens."""
        return sum(
            q * (min(depth, window) if window else depth) for q, window in zip(self.query, self.windows, strict=True)
        )

    def kept(self, depth: int) -> int:
        """Bytes of keys and values that a token behind `depth` others reads."""
        return sum(
            n * (min(depth, window) if window else depth)
            for n, window in zip(self.token_bytes, self.windows, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Rates:
    """What a device does in a second."""

    weights: Mapping[str, float]
    """Bytes of weights of a number format that a step for one token gets through."""
    several: Mapping[str, Several]
    """By number format; none = nothing."""
    prompt: Mapping[str, float]
    """Operations on these weights in a long prompt, and for each further token of a step."""
    cache: float
    """Bytes of cached keys and values."""
    attention: float
    """Operations of attention in a step, of one token for each cell that is read."""
    attention_prompt: float
    """The same of many tokens for each cell: in a long prompt, and of further users."""
    layer_s: float = 0.0
    """Seconds of a layer that depend on nothing: starting its kernels, waiting for its threads."""


@dataclass(frozen=True, slots=True)
class Machine:
    """`n` equal devices in one box."""

    name: str
    memory_bytes: int
    """Of one device, for models."""
    rates: Rates
    """Of one device."""
    n: int = 1
    is_gpu: bool = True
    can_serve: bool = True
    """Whether vLLM and its like run there."""
    is_measured: bool = False
    source: str = ""

    @property
    def title(self) -> str:
        return f"{self.n} x {self.name}" if self.n > 1 else self.name


@dataclass(frozen=True, slots=True)
class Network:
    bytes_per_s: float
    latency_s: float = 0.0002
    """Of a round trip."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Need:
    users: int
    context: int
    """Tokens that each of them may have."""
    cells: Cells
    """Of our cache for all of them: as the app would make it."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run the model."""

    kind: Kind
    machines: tuple[Machine, ...]
    needed_bytes: int
    """On all devices together."""
    room_bytes: int
    problem: str = ""
    """Why it does not do, as a sentence; empty: it does."""
    alone: float = 0.0
    """Tokens per second of one user when nobody else asks, behind a full context."""
    each: float = 0.0
    """The same of each user when all of them ask at once."""
    prompt_s: float = 0.0
    """Seconds until the first token of a prompt that fills the context."""
    most_users: int = 0
    """With this context, by memory."""
    load_s: float = 0.0
    """Seconds until the weights of the other machines have crossed the network, at each load."""

    @property
    def title(self) -> str:
        names = " + ".join(machine.title for machine in self.machines)
        return f"{names}, {_ENGINES[self.kind]}"


_ENGINES: Mapping[Kind, str] = {
    "one": "llama.cpp", "several": "llama.cpp, layers split", "rpc": "llama.cpp over RPC",
    "upstream": "vLLM or the like",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Advice:
    way: Way | None
    reasons: tuple[str, ...]
    """Sentences; where no way does, what would."""


def check(header: gguf.Header, users: int, context: int) -> None:
    """Raises: `InvalidRequest` for a model, a number of users or of tokens that cannot be planned for."""
    if not header.n_layer or not header.size_bytes:
        raise InvalidRequest(f"{header.path.name} has no layers, so there is nothing to plan", field="model")
    if not 1 <= users <= MOST_USERS:
        raise InvalidRequest(f"users is {users:,}; give a number from 1 to {MOST_USERS:,}", field="users")
    trained = header.n_ctx_train
    if not 1 <= context <= (trained or MOST_CONTEXT):
        most = f"the {trained:,} tokens that {header.path.name} was trained for" if trained else f"{MOST_CONTEXT:,}"
        raise InvalidRequest(f"context is {context:,} tokens; give a number from 1 to {most}", field="context")


# -- one token ---------------------------------------------------------------------------------------------------------


def work_of(header: gguf.Header, cells: Cells) -> Work:
    """What a token of this model costs over such a cache."""
    shape = shape_of(header)
    tied = "output.weight" not in header.tensors
    shared: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    last: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    experts: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, tensor in header.tensors.items():
        if name == "output.weight" or (name == "token_embd.weight" and tied):
            into = last
        elif name.startswith("token_embd"):  # one row is read
            continue
        else:
            into = experts if "_exps." in name else shared
        amount = into[tensor.kind or ANY]
        amount[0] += tensor.n_bytes
        if len(tensor.dims) > 1:
            amount[1] += tensor.n_values
            amount[2] += math.prod(tensor.dims[1:])
    n_expert = max(0, *header.each("expert_count", 1))
    one = fit(header, [replace(cells, n_ctx=PADDING, n_seq=1, swa_full=True)])
    attending = [layer for layer in shape.layers if layer.key]
    numbers = sum(layer.key + layer.value for layer in attending)
    per_number = one.cells / PADDING / numbers if numbers else 0.0
    query = header.n_head * header.key_length
    return Work(
        shared=_amounts(shared),
        last=_amounts(last),
        experts=_amounts(experts),
        share=min(1.0, shape.n_used / n_expert) if n_expert and shape.n_used else 1.0,
        query=tuple(query if layer.key else 0 for layer in shape.layers),
        windows=tuple(shape.window if layer.windowed and not cells.swa_full else 0 for layer in shape.layers),
        token_bytes=tuple(round((layer.key + layer.value) * per_number) for layer in shape.layers),
        state_bytes=one.states,
        n_layer=len(shape.layers),
        n_embd=header.n_embd,
    )


def _amounts(found: Mapping[str, Sequence[float]]) -> dict[str, Amount]:
    return {kind: Amount(*amount) for kind, amount in found.items()}


def step_s(work: Work, rates: Rates, users: int, depth: int, *, is_pooled: bool = True) -> float:
    """Seconds of a step that makes one token for each of so many users, each behind `depth` tokens.

    is_pooled: the users share one pool of cells, and each token is compared with all of them, as llama.cpp does; else
    with its own, as servers with paged attention do.
    """
    used = work.used(users)
    spent = work.n_layer * rates.layer_s
    for found, share, active in (
        (work.shared, 1.0, 1.0), (work.last, 1.0, 1.0), (work.experts, used, work.share),
    ):  # fmt: skip
        for kind, amount in found.items():
            spent += share * amount.n_bytes / _rate(rates.weights, kind)
            if users > 1:
                several = rates.several.get(kind) or rates.several.get(ANY, Several())
                spent += share * (amount.n_values * several.value_s + amount.n_rows * several.row_s)
                spent += (users - 1) * 2 * active * amount.n_values / _rate(rates.prompt, kind)
    read = users * (work.kept(depth) + 2 * work.state_bytes)
    return spent + max(read / rates.cache, looking_s(work, rates, users, depth, is_pooled=is_pooled))


def looking_s(work: Work, rates: Rates, users: int, depth: int, *, is_pooled: bool = True) -> float:
    """Seconds that the arithmetic of attention in a step takes. A pool's cells are read once, for the first token; with
    further ones they are compared together, as in a prompt."""
    of_one = looked(work, users, depth, is_pooled=is_pooled) / users
    others = rates.attention_prompt if is_pooled else rates.attention
    return of_one / rates.attention + (users - 1) * of_one / others


def looked(work: Work, users: int, depth: int, *, is_pooled: bool = True) -> float:
    """Operations of attention in a step: two for each number of a query and a key, two for each of a value."""
    if not is_pooled:
        return users * 4 * work.seen(depth + 1)
    cells = padded(users * depth + 1)  # of all users; the library computes up to a multiple
    return users * users * 4 * work.seen(cells / users)


def prompt_s(work: Work, rates: Rates, n_tokens: int, n_ubatch: int = 512) -> float:
    """Seconds of a prompt of so many tokens in an empty cache, computed `n_ubatch` at a time."""
    n_steps = -(-n_tokens // n_ubatch)
    computed = read = 0.0
    for found, share in ((work.shared, 1.0), (work.experts, work.share)):
        for kind, amount in found.items():
            computed += 2 * share * n_tokens * amount.n_values / _rate(rates.prompt, kind)
            read += n_steps * work.used(n_ubatch) * amount.n_bytes / _rate(rates.weights, kind)
    for kind, amount in work.last.items():
        computed += n_steps * amount.n_bytes / _rate(rates.weights, kind)
    attending = compared(work, n_tokens, n_ubatch) / rates.attention_prompt
    return max(computed, read) + attending + n_steps * work.n_layer * rates.layer_s


def compared(work: Work, n_tokens: int, n_ubatch: int = 512) -> float:
    """Operations of attention in a prompt: each token of a part is compared with all cells up to the part's end."""
    starts = range(0, n_tokens, n_ubatch)
    return sum(4 * min(n_ubatch, n_tokens - at) * work.seen(padded(min(at + n_ubatch, n_tokens))) for at in starts)


def _rate(rates: Mapping[str, float], kind: str) -> float:
    return rates.get(kind) or rates[ANY]


# -- ways --------------------------------------------------------------------------------------------------------------


def ways(header: gguf.Header, need: Need, machines: Sequence[Machine], network: Network) -> list[Way]:
    """Every way to run the model on these machines, by machine, the simplest kind first.

    Raises: `InvalidRequest` for users or a context that cannot be; `ConfigError` for a cache type that does not exist.
    """
    check(header, need.users, need.context)
    asked = _Asked(header, need, network)
    boxes = list({machine.title: machine for machine in machines}.values())
    found = [asked.ours((replace(box, n=1),), "one") for box in boxes]
    found += [asked.ours((box,), "several") for box in boxes if box.n > 1]
    found += [asked.theirs((box,)) for box in boxes if box.can_serve]
    if len(machines) > 1:
        found += [asked.theirs(tuple(machines))] if all(machine.can_serve for machine in machines) else []
        found.append(asked.ours(tuple(machines), "rpc"))
    return found


@dataclass(frozen=True, slots=True)
class _Asked:
    header: gguf.Header
    need: Need
    network: Network

    def ours(self, machines: tuple[Machine, ...], kind: Kind) -> Way:
        """llama.cpp: each device has a part of the layers, by its memory, and a token passes one after the other."""
        devices = [replace(machine, n=1) for machine in machines for _ in range(machine.n)]
        cells = self.need.cells
        cells = replace(cells, flash_attention=cells.flash_attention or all(each.is_gpu for each in devices))
        room = sum(device.memory_bytes for device in devices)
        needed = self._needed(cells, self.need.users, len(devices))
        way = Way(kind, machines, needed, room, most_users=self._most(cells, room, len(devices)))
        if needed > room:
            return replace(way, problem=f"needs {gib(needed)}, and models may take {gib(room)} there")
        if len(machines) > 1 + MOST_WORKERS:
            return replace(way, problem=f"takes at most {MOST_WORKERS} machines beside the first")
        if self.need.users > MOST_SEQUENCES:
            return replace(way, problem=f"computes at most {MOST_SEQUENCES} conversations at once")
        work, context = work_of(self.header, cells), self.need.context
        n_steps = -(-context // cells.n_ubatch)

        def passed(cost: Callable[[Rates], float], n_tokens: int, n_steps: int) -> float:
            here = sum(cost(device.rates) * device.memory_bytes / room for device in devices)
            return here + (len(machines) - 1) * self._hop(n_tokens, n_steps)

        def step(users: int) -> float:
            return passed(lambda rates: step_s(work, rates, users, context), users, 1)

        prompt = passed(lambda rates: prompt_s(work, rates, context, cells.n_ubatch), context, n_steps)
        away = 1 - machines[0].n * machines[0].memory_bytes / room if len(machines) > 1 else 0.0
        load_s = away * self.header.size_bytes / self.network.bytes_per_s
        return replace(way, alone=1 / step(1), each=1 / step(self.need.users), prompt_s=prompt, load_s=load_s)

    def theirs(self, machines: tuple[Machine, ...]) -> Way:
        """A server with paged attention and continuous batching on each box, each layer split over its cards; several
        boxes are replicas, which share the users."""
        work, context = work_of(self.header, replace(self.need.cells, swa_full=False)), self.need.context
        users = -(-self.need.users // len(machines))
        user_bytes, weights = max(1, work.kept(context) + work.state_bytes), self.header.size_bytes
        rooms = [int(box.n * box.memory_bytes / GPU_SHARE * UPSTREAM_SHARE) for box in machines]
        needed = len(machines) * weights + self.need.users * user_bytes
        most = sum(max(0, room - weights) // user_bytes for room in rooms)
        way = Way("upstream", machines, needed, sum(rooms), most_users=most)
        if weights + users * user_bytes > min(rooms):
            where = " on each" if len(machines) > 1 else ""
            what = f"needs {gib(weights + users * user_bytes)}{where}, and models may take {gib(min(rooms))} there"
            return replace(way, problem=what)
        if box := next((box for box in machines if self.header.n_head % box.n), None):
            return replace(way, problem=f"cannot split {self.header.n_head} heads over {box.n} cards")
        rates = [_together(box) for box in machines]

        def step(users: int) -> float:
            return max(step_s(work, each, users, context, is_pooled=False) for each in rates)

        prompt = max(prompt_s(work, each, context, UPSTREAM_BATCH) for each in rates)
        return replace(way, alone=1 / step(1), each=1 / step(users), prompt_s=prompt)

    def _needed(self, cells: Cells, users: int, n_devices: int) -> int:
        """Bytes on all devices: weights and cells once, buffers on each."""
        n_seq = cells.n_seq + min(users, MOST_SEQUENCES) - min(self.need.users, MOST_SEQUENCES)
        taken = fit(self.header, [replace(cells, n_ctx=users * self.need.context, n_seq=max(1, n_seq))])
        return taken.least + n_devices * (taken.needed - taken.least)

    def _most(self, cells: Cells, room: int, n_devices: int) -> int:
        """Users whose cells the room holds, up to the limit of a cache."""
        low, high = 0, MOST_SEQUENCES
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._needed(cells, middle, n_devices) <= room else (low, middle - 1)
        return low

    def _hop(self, n_tokens: int, n_steps: int) -> float:
        """Seconds on the network of one more machine: the state of each token goes there, and comes back."""
        sent = 2 * 4 * n_tokens * self.header.n_embd
        return n_steps * ROUND_TRIPS * self.network.latency_s + sent / self.network.bytes_per_s


def _together(box: Machine) -> Rates:
    """The rates of all cards of a box, where each layer is split over them."""
    if box.n == 1:
        return box.rates
    n, rates = box.n * UPSTREAM_TENSOR, box.rates

    def times(table: Mapping[str, float]) -> dict[str, float]:
        return {kind: n * rate for kind, rate in table.items()}

    return Rates(
        times(rates.weights), {kind: each.times(1 / n) for kind, each in rates.several.items()}, times(rates.prompt),
        n * rates.cache, n * rates.attention, n * rates.attention_prompt, rates.layer_s + 2 * UPSTREAM_SUM_S,
    )  # fmt: skip


# -- advice ------------------------------------------------------------------------------------------------------------


def advise(found: Sequence[Way], header: gguf.Header, need: Need) -> Advice:
    """The way to take: the simplest that lets every user read without waiting; else the fastest. Where none does, what
    would: a change that costs little first."""
    able = [way for way in found if not way.problem]
    if not able:
        largest = max((way for way in found if way.kind != "upstream"), key=lambda way: way.room_bytes)
        refused = [f"Not {way.title}: it {way.problem}." for way in found]
        return Advice(None, (*dict.fromkeys(refused), *_would_do(header, need, largest)))
    fluent = [way for way in able if way.each >= READING]
    simplest = [way for way in fluent if way.kind == fluent[0].kind]
    fewest = min((len(way.machines) for way in simplest), default=0)
    best = max([way for way in simplest if len(way.machines) == fewest] or able, key=lambda way: way.each)
    return Advice(best, tuple(_reasons(best, found, need)))


def _reasons(best: Way, found: Sequence[Way], need: Need) -> Iterator[str]:
    able = [way for way in found if not way.problem]
    fastest = max(able, key=lambda way: way.each)
    users = "one user" if need.users == 1 else f"each of {need.users:,} users"
    tokens = f"{need.context:,} token{'s' if need.context > 1 else ''}"
    yield (
        f"It takes {gib(best.needed_bytes)} of {gib(best.room_bytes)}, and makes {_rounded(best.each)} tokens/s for "
        f"{users} behind {tokens}."
    )
    if best.each < READING:
        yield f"That is slower than most people read ({READING:g} tokens/s); nothing here is faster."
    elif fastest is not best and fastest.each > 1.2 * best.each:
        yield f"{fastest.title} makes {_rounded(fastest.each)} tokens/s for each, and is more to run."
    if best.load_s:
        yield f"Each load sends the weights of the other machines over the network: about {best.load_s:,.0f} s."
    if best.most_users < 2 * need.users:
        yield f"There is room for {best.most_users:,} such users; then it is full."
    refused = (way for way in found if way.problem)
    yield from dict.fromkeys(f"Not {way.title}: it {way.problem}." for way in refused)


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:.3g}"


def _would_do(header: gguf.Header, need: Need, way: Way) -> Iterator[str]:
    """Changes with which this way would do, as sentences."""
    if need.users > MOST_SEQUENCES:
        yield f"For more than {MOST_SEQUENCES} users name machines with cards that vLLM or the like runs on."
        return

    def fits(header: gguf.Header, cells: Cells, context: int) -> bool:
        return fit(header, [replace(cells, n_ctx=need.users * context)]).needed <= way.room_bytes

    usual = replace(need.cells, flash_attention=all(box.is_gpu for box in way.machines))
    small = replace(usual, types=("q8_0", "q8_0"), flash_attention=True)
    if need.cells.types != small.types and fits(header, small, need.context):
        yield "It would fit with a cache in q8_0: --cache-type-k q8_0 --cache-type-v q8_0."
    context = need.context
    while context >= 1024 and not fits(header, usual, context):
        context //= 2
    if 1024 <= context < need.context:
        yield f"It would fit with {context:,} tokens for each user: --context {context}."
    for name in SMALLER:
        other = in_format(header, name)
        if other.size_bytes < 0.9 * header.size_bytes and fits(other, usual, need.context):
            yield f"It would fit in {name} ({gib(other.size_bytes)} of weights): --quant {name}."
            return
