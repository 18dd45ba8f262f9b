"""The table of providers: what each is called, where it is, which protocol it speaks, and where its key comes from.

    type or name ─ find_kind ─▶ ProviderKind ─┐       KINDS, or a back end of another package
    base URL, key, environment ───────────────┴─ provider_of ─▶ Provider ─ url, headers, codec ─▶ transport

A key goes into a header and nowhere else: never into an address, a message or `repr`. A new provider is one row of
`KINDS`; a new protocol is a module `wire/*/client.py` and one row of `PROTOCOLS`. Which facts hold for a model is in
`models.py`.
"""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, Literal, cast
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from shepherd.backends import registered
from shepherd.core import ConfigError
from shepherd.core.dataclasses import dataclass, field
from shepherd.wire.client import ClientCodec
from shepherd.wire.signature import Protocol

logger = logging.getLogger(__name__)

Framing = Literal["sse", "ndjson"]
EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Paths:
    """Where a protocol's endpoints are, below the base URL; `{model}` is replaced, empty = there is none."""

    codec: str
    """The module that is a `ClientCodec`."""
    answer: str
    models: str
    count: str = ""
    embed: str = ""
    show: str = ""
    """Facts of one model, where the list has none."""
    version: str = "/v1"
    """What a base URL without a version gets."""
    framing: Framing = "sse"


PROTOCOLS: Mapping[Protocol, Paths] = MappingProxyType(
    {
        "openai.chat": Paths("shepherd.wire.openai.client", "/chat/completions", "/models", embed="/embeddings"),
        "openai.responses": Paths(
            "shepherd.wire.openai.responses.client", "/responses", "/models", count="/responses/input_tokens",
            embed="/embeddings",
        ),
        "anthropic": Paths(
            "shepherd.wire.anthropic.client", "/messages", "/models?limit=1000", count="/messages/count_tokens",
        ),
        "gemini": Paths(
            "shepherd.wire.gemini.client", "/models/{model}:streamGenerateContent?alt=sse", "/models?pageSize=1000",
            count="/models/{model}:countTokens", embed="/models/{model}:batchEmbedContents", version="/v1beta",
        ),
        "ollama": Paths(
            "shepherd.wire.ollama.client", "/api/chat", "/api/tags", embed="/api/embed", show="/api/show", version="",
            framing="ndjson",
        ),
    },
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProviderKind:
    name: str
    title: str
    protocols: tuple[Protocol, ...] = ("openai.chat",)
    """The preferred one first; another is tried where the address is the user's and does not have its path."""
    base_url: str = ""
    keys: tuple[str, ...] = ()
    """Variables of the environment that hold the key; the first that is set wins."""
    urls: tuple[str, ...] = ()
    auth: Literal["bearer", "x-api-key", "x-goog-api-key"] = "bearer"
    headers: Mapping[str, str] = field(default_factory=dict)
    header_variables: Mapping[str, str] = field(default_factory=dict)
    """Variables whose value is the value of a header, by the header's name."""
    custom_headers: str = ""
    """A variable that holds lines `Name: value`."""
    models: tuple[str, ...] = ()
    """Globs of the names that are this provider's without saying so."""
    quirks: frozenset[str] = frozenset()
    """How it departs from its protocol, by the names in `QUIRKS` of the codecs."""
    needs_key: bool = True
    health: str = ""
    """The path below its address, without the version, that says whether it takes requests; empty = it has none."""
    make: registered.BackendMaker | None = None
    """Of another package: makes what answers; there is no address and no protocol then."""

    @property
    def stays_here(self) -> bool:
        """Prompts stay on this machine, whatever the address."""
        return getattr(self.make, "is_local", False) is True


def _compatible(name: str, title: str, base_url: str, key: str, *quirks: str) -> ProviderKind:
    return ProviderKind(name, title, base_url=base_url, keys=(key,), quirks=frozenset(quirks))


def _on_this_machine(name: str, title: str, base_url: str, key: str, *quirks: str) -> ProviderKind:
    health = "" if name == "lmstudio" else "/health"
    return ProviderKind(
        name, title, base_url=base_url, keys=(key,), quirks=frozenset(quirks), needs_key=False, health=health
    )


_OPENAI: tuple[Protocol, ...] = ("openai.responses", "openai.chat")

KINDS: Mapping[str, ProviderKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            ProviderKind(
                "openai",
                "OpenAI",
                _OPENAI,
                "https://api.openai.com/v1",
                ("OPENAI_API_KEY",),
                ("OPENAI_BASE_URL",),
                header_variables={"OpenAI-Organization": "OPENAI_ORG_ID", "OpenAI-Project": "OPENAI_PROJECT_ID"},
                custom_headers="OPENAI_CUSTOM_HEADERS",
                models=("gpt-[3-9]*", "chatgpt-*", "o[1-9]", "o[1-9]-*", "codex-*", "text-embedding-[3a]*"),
                quirks=frozenset({"max_completion_tokens", "cache_key", "custom_tools"}),
            ),
            ProviderKind(
                "anthropic",
                "Anthropic",
                ("anthropic",),
                "https://api.anthropic.com",
                ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
                ("ANTHROPIC_BASE_URL",),
                "x-api-key",
                {"anthropic-version": "2023-06-01"},
                custom_headers="ANTHROPIC_CUSTOM_HEADERS",
                models=("claude-*",),
            ),
            ProviderKind(
                "gemini",
                "Gemini",
                ("gemini",),
                "https://generativelanguage.googleapis.com/v1beta",
                ("GOOGLE_API_KEY", "GEMINI_API_KEY"),  # Google's own library prefers the first
                ("GOOGLE_GEMINI_BASE_URL",),
                "x-goog-api-key",
                models=("gemini-*", "models/gemini-*"),
            ),
            ProviderKind(
                "grok",
                "xAI",
                _OPENAI,
                "https://api.x.ai/v1",
                ("XAI_API_KEY", "GROK_API_KEY"),
                ("XAI_BASE_URL",),
                models=("grok-*",),
                quirks=frozenset({"max_completion_tokens", "encrypted_reasoning"}),
            ),
            ProviderKind(
                "ollama",
                "Ollama",
                ("ollama",),
                "http://127.0.0.1:11434",
                ("OLLAMA_API_KEY",),
                ("OLLAMA_HOST",),
                needs_key=False,
            ),
            ProviderKind(
                "openai_compat",
                "a server with OpenAI's protocol",
                _OPENAI[::-1],
                quirks=frozenset({"extra_content"}),
                needs_key=False,
            ),
            _on_this_machine("tensorrt", "TensorRT-LLM", "http://127.0.0.1:8000", "TRTLLM_API_KEY", "samplers"),
            _on_this_machine(
                "vllm", "vLLM", "http://127.0.0.1:8000", "VLLM_API_KEY",
                "samplers", "grammars", "continues", "reasoning_content",
            ),
            _on_this_machine(
                "sglang", "SGLang", "http://127.0.0.1:30000", "SGLANG_API_KEY", "samplers", "reasoning_content"
            ),
            _on_this_machine(
                "llama-server", "llama.cpp's server", "http://127.0.0.1:8080", "LLAMA_API_KEY",
                "samplers", "grammars", "repeat_penalty", "reasoning_content", "flac",
            ),
            _on_this_machine(
                "lmstudio", "LM Studio", "http://127.0.0.1:1234", "LMSTUDIO_API_KEY", "samplers", "repeat_penalty"
            ),
            _on_this_machine(
                "shepherd", "another Shepherd", "http://127.0.0.1:8000", "SHEPHERD_API_KEY",
                "samplers", "grammars", "reasoning_content", "extra_content", "flac",
            ),
            _compatible(
                "openrouter", "OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "reasoning", "flac"
            ),
            _compatible("groq", "Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "reasoning"),
            _compatible(
                "deepseek", "DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY",
                "reasoning_content", "thinking_object",
            ),
            _compatible(
                "mistral", "Mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY",
                "thinking_parts", "short_ids", "document_urls", "audio_text",
            ),
            _compatible("together", "Together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
            _compatible("fireworks", "Fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
            _compatible("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
            _compatible("deepinfra", "DeepInfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
            _compatible("huggingface", "Hugging Face", "https://router.huggingface.co/v1", "HF_TOKEN"),
            _compatible(
                "moonshot", "Moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY",
                "reasoning_content", "thinking_object",
            ),
            _compatible("nvidia", "NVIDIA", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
            _compatible(
                "zai", "Z.ai", "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "reasoning_content", "thinking_object"
            ),
            ProviderKind("ollama-cloud", "Ollama Cloud", ("ollama",), "https://ollama.com", ("OLLAMA_API_KEY",)),
        )
    }
)  # fmt: skip
ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "google": "gemini",
        "xai": "grok",
        "claude": "anthropic",
        "hf": "huggingface",
        "lm-studio": "lmstudio",
        "llamacpp-server": "llama-server",
    }
)


def find_kind(name: str) -> ProviderKind | None:
    """The kind of a name or a type. Raises: `ConfigError` for a package that cannot be imported."""
    word = name.casefold()
    if (kind := KINDS.get(ALIASES.get(word, word))) is not None:
        return kind
    make = registered.find(word)
    return None if make is None else ProviderKind(word, str(getattr(make, "title", word)), needs_key=False, make=make)


def find_model(spec: str) -> tuple[ProviderKind, str] | None:
    """The kind and the model of `-m`: `NAME/model`, or a name that only one provider has."""
    name, slash, model = spec.partition("/")
    if slash and model and (kind := find_kind(name)) is not None:
        return kind, model
    bare = spec.casefold()
    return next(((kind, spec) for kind in KINDS.values() if any(fnmatchcase(bare, glob) for glob in kind.models)), None)


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider, as configured. Its `repr` has no secret."""

    name: str
    kind: ProviderKind
    protocol: Protocol
    root: str
    """The base URL with its version, without a slash at its end."""
    query: str = ""
    """Of the base URL, such as Azure's `api-version=...`."""
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    can_switch: bool = False
    """The base URL is the user's, and no protocol is: another one is tried where the first has no path."""
    model: str | None = None
    """Takes the place of the model that a request names."""
    n_ctx: int | None = None
    """The window that the configuration gives; wins over all that is known."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    quirks: frozenset[str] = frozenset()
    proxy_secret: str = field(default="", repr=False)
    """The password of the proxy on the way."""

    @property
    def paths(self) -> Paths:
        return PROTOCOLS[self.protocol]

    @property
    def is_local(self) -> bool:
        """Whether prompts stay on this machine."""
        return self.kind.stays_here or is_loopback(urlsplit(self.root).hostname or "")

    @property
    def health_url(self) -> str:
        """Where it says whether it takes requests; empty = nowhere."""
        path = self.kind.health
        return f"{re.sub(r'/v[0-9]+[a-z0-9]*$', '', self.root)}{path}" if path else ""

    @property
    def key_hint(self) -> str:
        where = " or ".join(self.kind.keys[:2])
        way = f"run 'shepherd keys set {self.name}'"
        return f"set {where}, or {way}" if where else way

    def codec(self) -> ClientCodec:
        return cast(ClientCodec, importlib.import_module(self.paths.codec))  # modules are codecs

    def url(self, path: str, model: str = "") -> str:
        name = quote(model if "/" in model else f"models/{model}", safe="/")
        path, _, query = path.replace("models/{model}", name).partition("?")
        query = "&".join(filter(None, (self.query, query)))
        return f"{self.root}{path}{'?' if query else ''}{query}"

    def hide(self, text: str) -> str:
        """The text without the key, the values of the headers that the user gave, and the password of the proxy."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    @property
    def secrets(self) -> tuple[str, ...]:
        public = {*self.kind.headers.values()}
        values = (value for value in self.headers.values() if value not in public)
        given = (self.key or "", *values, self.proxy_secret, unquote(self.proxy_secret))
        found = {word for value in given for word in (value, value.removeprefix("Bearer "))}
        # Shorter ones are words such as "EMPTY", which servers without keys get.
        return tuple(sorted((each for each in found if len(each) >= 8), key=len, reverse=True))


def provider_of(
    kind: ProviderKind,
    *,
    name: str = "",
    env: Mapping[str, str] = EMPTY_MAPPING,
    base_url: str | None = None,
    key: str | None = None,
    protocol: Protocol | None = None,
    headers: Mapping[str, str] = EMPTY_MAPPING,
    model: str | None = None,
    n_ctx: int | None = None,
    options: Mapping[str, Any] = EMPTY_MAPPING,
    quirks: frozenset[str] = frozenset(),
) -> Provider:
    """A provider of a kind. What is given wins over `env`, the variables of the environment.

    Raises: `ConfigError` for an address or a key that cannot be used, and where either is missing.
    """
    name = name or kind.name
    if kind.make is not None:
        return Provider(
            name, kind, kind.protocols[0], base_url or "", key=key, model=model, n_ctx=n_ctx, options=options
        )
    given = base_url or next(filter(None, map(env.get, kind.urls)), None)
    if not (address := given or kind.base_url):
        raise ConfigError("the provider needs a base_url", key=f"providers.{name}.base_url")
    can_switch = given is not None and protocol is None
    protocol = protocol or kind.protocols[0]
    root, query = _root(address, PROTOCOLS[protocol], name)
    variables = [] if key else [each for each in kind.keys if env.get(each)]
    if len({env[each] for each in variables}) > 1:
        logger.warning("%s are set; %s is used", " and ".join(variables), variables[0])
    key = _clean_key(key or (env[variables[0]] if variables else ""), name)
    is_default = urlsplit(root).netloc == urlsplit(kind.base_url).netloc
    if key is None and kind.needs_key and is_default:
        raise ConfigError(
            f"{kind.title} needs a key; set {' or '.join(kind.keys)}, or run 'shepherd keys set {name}'",
            key=f"providers.{name}.api_key",
        )
    sent = {**kind.headers, **_lines(env.get(kind.custom_headers, ""))}
    sent |= {header: value for header, word in kind.header_variables.items() if (value := env.get(word))}
    if key is not None:
        plain = kind.auth == "bearer" or any(each.endswith("AUTH_TOKEN") for each in variables[:1])
        sent |= {"Authorization": f"Bearer {key}"} if plain else {kind.auth: key}
    sent |= headers
    for header, value in sent.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header) or not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise ConfigError(
                "a header has a name or a value that HTTP does not allow", key=f"providers.{name}.headers"
            )
    return Provider(
        name, kind, protocol, root, query, key, sent, can_switch, model, n_ctx, options,
        kind.quirks | quirks,
    )  # fmt: skip


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine answer at `host`."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_ENDINGS = ("/chat/completions", "/responses", "/messages", "/api/chat", "/api/generate", "/completions", "/models")
_SECRET_WORDS = re.compile(r"key|token|secret|password|sig", re.IGNORECASE)


def _root(address: str, paths: Paths, name: str) -> tuple[str, str]:
    """The address in one form, and its query: with a scheme and a version, once, and without a slash at its end."""
    key = f"providers.{name}.base_url"
    has_scheme = "://" in address
    parts = urlsplit(address.strip() if has_scheme else f"http://{address.strip()}")
    try:
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError as error:
        raise ConfigError("the port of the address is no number from 1 to 65535", key=key) from error
    if parts.scheme not in ("http", "https") or re.search(r"[\s\\]", parts.netloc):
        raise ConfigError("the address must begin with http:// or https://", key=key)
    if parts.username or parts.password or _SECRET_WORDS.search(re.sub(r"=[^&]*", "", parts.query)):
        raise ConfigError("an address must not hold a secret; use api_key", key=key)
    if not has_scheme and port is None and paths.framing == "ndjson":
        port = 11434
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where a server listens
    path = re.sub(r"/{2,}", "/", parts.path).rstrip("/")
    for ending in _ENDINGS:
        path = path.removesuffix(ending)
    path = re.sub(r"(/v\d+[a-z0-9]*)\1+$", r"\1", path)
    if not paths.version:
        path = re.sub(r"/(v1|api)$", "", path)
    elif not re.search(r"/v\d+[a-z0-9]*(/|$)", path):
        path += paths.version
    where = f"[{host}]" if ":" in host else host
    return urlunsplit((parts.scheme, f"{where}:{port}" if port else where, path, "", "")), parts.query


def _clean_key(text: str, name: str) -> str | None:
    """A key that a header can hold. Raises: `ConfigError`, without the key."""
    key = text.strip().strip("\"'")
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise ConfigError("the key holds blanks or letters that no key has", key=f"providers.{name}.api_key")
    return key or None


def _lines(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {header.strip(): value.strip() for header, _, value in pairs}
