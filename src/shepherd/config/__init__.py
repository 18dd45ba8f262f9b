"""The configuration: TOML or JSON files, environment and flags become one frozen `Config`.

    user file < project file (or --config) < environment < flags          a later layer wins, key by key
    layer ─▶ read by the schema ─▶ {path: Setting} ─▶ shorthands ─▶ references checked ─▶ Config

A file of the working folder that starts a program or widens a permission counts once the user trusts it (`trust.py`).

Open first: `schema.py` (every key), then `load.py`. *Layer*: one source. *Setting*: a value and its origin. *Kind*:
what a key accepts. `None` = not set. Every error names the file or variable, the key, the value, and what is accepted.
Not here: what a value does, where model files are (`models/catalog.py`), any default that depends on the machine.
"""

from shepherd.config.keys import FoundKey, KeyStore, find_key
from shepherd.config.layers import search_paths
from shepherd.config.load import given_consent, load
from shepherd.config.resolve import model_name
from shepherd.config.schema import (
    ENVIRONMENT,
    AdapterConfig,
    CacheConfig,
    Config,
    KvConfig,
    McpServerConfig,
    MemoryConfig,
    ModelConfig,
    NetworkConfig,
    ProviderConfig,
    RouteConfig,
    ServerConfig,
    Source,
    TensorRTConfig,
)
from shepherd.config.show import to_toml
from shepherd.config.trust import Consent, FolderFile, TrustStore

__all__ = [
    "ENVIRONMENT", "AdapterConfig", "CacheConfig", "Config", "Consent", "FolderFile", "FoundKey", "KeyStore",
    "KvConfig", "McpServerConfig", "MemoryConfig", "ModelConfig", "NetworkConfig", "ProviderConfig", "RouteConfig",
    "ServerConfig", "Source", "TensorRTConfig", "TrustStore", "find_key", "given_consent", "load", "model_name",
    "search_paths", "to_toml",
]  # fmt: skip
