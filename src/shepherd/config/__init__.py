"""What Shepherd is told to do: TOML or JSON files, environment and flags become one frozen `Config`.

    user file < project file (or --config) < environment < flags          a later layer wins, key by key
    layer ─▶ read by the schema ─▶ {path: value, who said it} ─▶ shorthands ─▶ references checked ─▶ Config

Not here: what a value does (the part that gets it knows), where model files are (`models/catalog.py`), any default that
depends on the machine. `None` = not said.
Every error names the file or variable, the key, what was found, and what would be accepted. Users: `docs/config.md`.
"""

from shepherd.config.layers import search_paths
from shepherd.config.load import load
from shepherd.config.resolve import model_name
from shepherd.config.schema import (
    BACKENDS,
    ENVIRONMENT,
    FLAGS,
    LOCAL_BACKENDS,
    PROVIDER_TYPES,
    SCHEMA,
    CacheConfig,
    ChatConfig,
    CommandToolsConfig,
    Config,
    HttpToolsConfig,
    KeyConfig,
    KvConfig,
    McpServerConfig,
    MemoryConfig,
    ModelConfig,
    Privacy,
    ProviderConfig,
    ProviderType,
    RouteConfig,
    ServerConfig,
    Source,
    ToolsConfig,
)
from shepherd.config.show import to_toml
from shepherd.config.types import SAMPLING, Kind, Table, is_spec

__all__ = [
    "BACKENDS",
    "ENVIRONMENT",
    "FLAGS",
    "LOCAL_BACKENDS",
    "PROVIDER_TYPES",
    "SAMPLING",
    "SCHEMA",
    "CacheConfig",
    "ChatConfig",
    "CommandToolsConfig",
    "Config",
    "HttpToolsConfig",
    "KeyConfig",
    "Kind",
    "KvConfig",
    "McpServerConfig",
    "MemoryConfig",
    "ModelConfig",
    "Privacy",
    "ProviderConfig",
    "ProviderType",
    "RouteConfig",
    "ServerConfig",
    "Source",
    "Table",
    "ToolsConfig",
    "is_spec",
    "load",
    "model_name",
    "search_paths",
    "to_toml",
]
