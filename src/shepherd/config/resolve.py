"""From the settings of all layers to a `Config`: shorthands are filled in, names are followed, unknown ones refused."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

from shepherd.backends import registered
from shepherd.backends.cloud.provider import find_kind, find_model, is_loopback
from shepherd.backends.router import Route, Router
from shepherd.config.aliases import Aliases
from shepherd.config.dead_routes import dead_rules
from shepherd.config.kinds import PathBase, Table, is_spec, keys_of
from shepherd.config.layers import UNSET, Entries, Setting, keys_below
from shepherd.config.schema import (
    EMBEDDED,
    LOCAL_BACKENDS,
    PROVIDER_TYPES,
    SHORTHANDS,
    AdapterConfig,
    CacheConfig,
    Config,
    KeyConfig,
    McpServerConfig,
    MemoryConfig,
    ModelConfig,
    NetworkConfig,
    ProviderConfig,
    RouteConfig,
    ServerConfig,
    TensorRTConfig,
)
from shepherd.core import ConfigError, Sampling
from shepherd.core.dataclasses import dataclass, field, replace
from shepherd.wire.names import find_name


@dataclass(slots=True)
class Resolver:
    settings: Mapping[tuple[str, ...], Setting]
    env: Mapping[str, str]
    base: PathBase
    warnings: list[str]
    copies: Mapping[str, str] = field(default_factory=dict)
    """Names of models that clients have made; see `Aliases`."""
    models: Entries = field(default_factory=dict)
    caches: Entries = field(default_factory=dict)
    providers: Entries = field(default_factory=dict)
    aliases: Aliases = field(init=False)

    def config(self) -> Config:
        self.models, self.caches, self.providers = (self._entries(name) for name in ("models", "caches", "providers"))
        own = {path[1]: each for path, each in self.settings.items() if path[0] == "aliases" and len(path) == 2}
        self.aliases = Aliases(own, self.copies)
        for name, entry in self.models.items():
            if "path" not in entry:
                why = "has no path: give a file, hf:owner/repo, ollama:name, pypi:package or embedded"
                raise self.settings["models", name].error(why)
        asked_for = self._add_providers()
        rules_setting = self._get("routes")
        rules = [RouteConfig(**rule) for rule in rules_setting.value or ()]
        self._follow_in_caches()
        choice = self._choose(rules, asked_for)
        if choice is None and (self.caches or asked_for):
            table: Literal["cache", "provider"] = "cache" if self.caches else "provider"
            choice = _DefaultTarget(table, next(iter(self.caches or asked_for)))
        meanings = {name: self._settled(name, own[name]) for name in self.aliases}
        self._add_missing_caches()
        rules = [self._followed(rule, meanings, rules_setting.error) for rule in rules]
        has_own_routes = bool(rules)
        rules = self._routes(rules, rules_setting.rank, choice, asked_for, meanings)
        default = next((rule for rule in rules if rule.takes_all), RouteConfig())
        if self._get("overflow").rank > rules_setting.rank:
            # The cache has the new value; the value of the rule must not hide it.
            rules = [replace(rule, overflow=None) if rule is default else rule for rule in rules]
        cache = default.cache if default.cache in self.caches else next(iter(self.caches), None)
        model = self.caches[cache]["model"].value if cache else None
        if cache is None and self._get("window").value is not None:
            self.warnings.append(
                "window is ignored: no model of this machine is configured, and a provider's context is its own (n_ctx)"
            )
        self._apply_shorthands({"caches": cache, "models": model, "providers": default.provider})
        self._check_names(rules, rules_setting)
        self._warn_of_routes(rules, rules_setting, meanings)
        self._settle_loads(model)
        models = [self._model(*entry) for entry in self.models.items()]
        greedy = Sampling(temperature=0)  # the embedded model is too small to sample from
        models = [replace(m, sampling=m.sampling.over(greedy)) if m.path == "embedded" else m for m in models]
        caches = tuple(_cache(*entry) for entry in self.caches.items())
        providers = tuple(row for entry in self.providers.items() for row in self._provider_rows(*entry))
        self._check_privacy(rules, rules_setting, {provider.name: provider for provider in providers})
        self.warnings += dead_rules(rules, rules_setting.file)
        top_level: Config = self._table(Config())
        shared = {".".join(path): each for path, each in self.settings.items() if path[0] == "sampling"}
        backend = next((each.type for each in providers if each.name == default.provider), self._get("backend").value)
        server = self._server(top_level.server)
        self.warnings += _vain_archives(rules, rules_setting.file, top_level.memory, server)
        return replace(
            top_level,
            backend=backend if default.provider or backend in LOCAL_BACKENDS else "llamacpp",
            models=tuple(sorted(models, key=lambda each: each.name != model)),
            caches=tuple(sorted(caches, key=lambda each: each.name != cache)),
            providers=providers,
            aliases={name: meaning for name, meaning in meanings.items() if meaning.casefold() != name.casefold()},
            routes=tuple(rules),
            has_own_routes=has_own_routes,
            server=server,
            mcp_servers=self._mcp_servers(),
            sampling=_built(ModelConfig, "", shared).sampling,
            # thinking = false hides thoughts as well (C14), unless show_thinking is set.
            show_thinking=top_level.show_thinking
            and (top_level.thinking is not False or self._get("show_thinking").rank >= 0),
        )

    def _get(self, dotted: str) -> Setting:
        return self.settings.get(tuple(dotted.split(".")), UNSET)

    def _entries(self, table: str) -> Entries:
        """The entries of a named table; those of the strongest layer come first."""
        found: Entries = {}
        ranks = {path[1]: each.rank for path, each in self.settings.items() if path[0] == table and len(path) == 2}
        for name in sorted(ranks, key=lambda name: -ranks[name]):
            paths = [path for path in self.settings if path[:2] == (table, name) and len(path) > 2]
            found[name] = {".".join(path[2:]): self.settings[path] for path in paths}
        return found

    # models and caches

    def _choose(self, rules: Sequence[RouteConfig], asked_for: Sequence[str]) -> _DefaultTarget | None:
        """The target that `backend`, `model` and `model_path` make the default; adds the entries that it needs."""
        backend, model, path = self._get("backend"), self._meant(self._get("model")), self._get("model_path")
        is_cloud = backend.value is not None and backend.value not in LOCAL_BACKENDS
        if model.rank > backend.rank and (is_spec(model.value) or model.value.endswith(".gguf")):
            is_cloud = False
        if is_cloud or model.value in self.providers:
            if self.caches or any(rule.cache for rule in rules):
                self._fill_caches(None)
            name = model.value if model.value in self.providers else self._chosen_provider(backend, model)
            return _DefaultTarget("provider", name, max(backend.rank, model.rank))
        if (found := self._cloud_model(model, path)) is not None:
            return found
        local = model if model.rank >= path.rank else path
        name = self._add_model(local) if local.value else None
        elsewhere = asked_for or any(rule.provider for rule in rules)
        if self.models or self.caches or backend.value or not elsewhere:
            self._fill_caches(name)
        if not self.caches:
            return None
        rule = next((rule for rule in rules if rule.takes_all), RouteConfig())
        cache = rule.cache if rule.cache in self.caches else next(iter(self.caches))
        if name and self.caches[cache]["model"].value != name and local.rank > self.caches[cache]["model"].rank:
            ready = next((each for each, entry in self.caches.items() if entry["model"].value == name), None)
            old = self.caches[cache]["model"].value
            for entry in self.caches.values() if ready is None else ():
                # Caches that shared the weights of the default one still share them.
                if entry["model"].value == old and local.rank > entry["model"].rank:
                    entry["model"] = replace(local, value=name)
            cache = ready or cache
        rank = max(local.rank, backend.rank)
        return _DefaultTarget("cache", cache, rank) if rank >= 0 else None

    def _cloud_model(self, model: Setting, path: Setting) -> _DefaultTarget | None:
        """The provider of `claude-sonnet-4-5` or `openrouter/qwen/qwen3`, if no model of this machine has that name."""
        text = str(model.value or "")
        found = find_model(text)
        is_here = (
            text in self.models or is_spec(text) or text.endswith(".gguf") or Path(self.base.resolve(text)).exists()
        )
        name, _, bare = text.partition("/")
        is_own = bool(bare) and "type" in self.providers.get(name, ()) and "replicas" not in self.providers[name]
        if not (is_own or found) or is_here or model.rank < path.rank:
            return None
        if is_own and model.rank >= self.providers[name].get("model", UNSET).rank:
            self.providers[name]["model"] = replace(model, value=bare)
        elif found and not is_own:
            name = self._chosen_provider(replace(model, value=found[0].name), replace(model, value=found[1]))
        if self.caches:
            self._fill_caches(None)
        return _DefaultTarget("provider", name, model.rank)

    def _add_model(self, setting: Setting, name: str = "") -> str:
        """The entry of a model outside the tables; made where there is none, under this name if it is free."""
        if setting.value in self.models:
            return str(setting.value)
        path = self._base(setting).resolve_model(setting.value)
        for known, entry in self.models.items():
            if entry.get("path", UNSET).value == path:
                return known
        name = free_name(name or model_name(path), self.models)
        self.models[name] = {"path": replace(setting, value=path)}
        return name

    def _fill_caches(self, name: str | None) -> None:
        """Give every model a cache if no cache is declared, and every cache a model."""
        declared = [model for model in self.models if ("models", model) in self.settings]
        if not self.models:
            self.models[EMBEDDED] = {"path": replace(UNSET, value="embedded")}
        if not self.caches:
            for model in self.models:
                cache = free_name(model if declared else "main", self.providers)
                self.caches[cache] = {"model": replace(UNSET, value=model)}
        lone = name or (next(iter(self.models)) if len(self.models) == 1 else None)
        for cache, entry in self.caches.items():
            if "model" not in entry:
                if lone is None:
                    raise self.settings["caches", cache].error(f"has no model; known models: {', '.join(self.models)}")
                entry["model"] = replace(UNSET, value=lone)

    def _add_missing_caches(self) -> None:
        """Give each model without a cache one of its own name, where models run locally."""
        used = {entry["model"].value for entry in self.caches.values()}
        for model in self.models if self.caches else ():
            if model not in used:
                cache = free_name(model, [*self.caches, *self.providers])
                self.caches[cache] = {"model": replace(UNSET, value=model)}

    def _model(self, name: str, entry: dict[str, Setting]) -> ModelConfig:
        model, setting = _built(ModelConfig, name, entry), entry.get("adapters", UNSET)
        found: list[AdapterConfig] = []
        for index, row in enumerate(setting.value or ()):
            here, adapter = f"{setting.key}[{index}]", AdapterConfig(**row)
            if not adapter.path:
                raise setting.error("has no path: give the GGUF file of an adapter", here)
            adapter = replace(adapter, name=adapter.name or Path(adapter.path).stem)
            if re.search(r"[\s:/]", adapter.name):
                raise setting.error("a name has no blanks, colons and slashes; give another one", f"{here}.name")
            if adapter.name.casefold() in [each.name.casefold() for each in found]:
                raise setting.error(f"there are two adapters called {adapter.name!r}; rename one", f"{here}.name")
            found.append(adapter)
        return replace(model, adapters=tuple(found))

    def _settle_loads(self, default: str | None) -> None:
        """Set when each model is loaded: at the start if it is the default or has a declared cache."""
        declared = {entry["model"].value for cache, entry in self.caches.items() if ("caches", cache) in self.settings}
        for name, entry in self.models.items():
            entry.setdefault("load", replace(UNSET, value="start" if name in {default, *declared} else "demand"))

    # aliases

    def _meant(self, setting: Setting) -> Setting:
        """The setting of a model's name, with what an alias stands for; an entry of the tables counts after it."""
        found = self.aliases.find(str(setting.value or ""))
        return setting if found is None else replace(setting, value=found.value, file=found.file)

    def _follow_in_caches(self) -> None:
        """Put the models in place of the aliases that the tables name; an entry of the tables counts before one."""
        for entry in self.caches.values():
            model = entry.get("model", UNSET)
            if model.value in self.models or (found := self.aliases.find(str(model.value or ""))) is None:
                continue
            name = str(found.value)
            if name not in self.models and find_model(name) is None:
                name = self._add_model(found, str(model.value))
            entry["model"] = replace(model, value=name)
        path = ("memory", "embedding_model")
        if (word := self._get(".".join(path))).value is not None:
            found = self.aliases.find(word.value) or word
            if found.value in self.models:
                found = self.models[found.value].get("path", UNSET)
            elif found is not word and found.value.partition("/")[0] not in self.providers:
                found = replace(found, value=self._base(found).resolve_model(found.value))
            self.settings = {**self.settings, path: replace(word, value=found.value)}
        path = ("memory", "reranker")
        word = self._get(".".join(path))
        if word.value is not None and word.value not in self.models and (found := self.aliases.find(word.value)):
            spec = found.value if found.value in self.models else self._base(found).resolve_model(found.value)
            self.settings = {**self.settings, path: replace(word, value=spec)}

    def _settled(self, name: str, alias: Setting) -> str:
        """What an alias stands for: an entry of the tables, `PROVIDER/MODEL` or `MODEL:ADAPTER`. A file is added as a
        model of the alias's name, which is loaded on demand."""
        found = self.aliases.find(name)
        assert found is not None
        spec, here = str(found.value), [*self.models, *self.caches]
        known = [*here, *self.providers]
        if find_name(name, known) is not None:
            self.warnings.append(
                f"{alias.key} hides what has this name in the tables: -m, /model and requests that name it get {spec!r}"
            )
        if spec in known:
            return spec
        provider, _, bare = spec.partition("/")
        if bare and provider in self.providers:
            return self._checked_of_provider(alias, provider, bare)
        model, _, adapter = spec.partition(":")
        if adapter and model in here:
            return spec
        is_here = is_spec(spec) or spec.endswith(".gguf") or Path(self._base(found).resolve(spec)).exists()
        if not is_here and (elsewhere := find_model(spec)) is not None:
            kind, bare = elsewhere
            provider = self._chosen_provider(replace(found, value=kind.name), UNSET)
            return self._checked_of_provider(alias, provider, bare)
        if near := difflib.get_close_matches(spec, known, 1):
            self.warnings.append(
                f"{found.key}: no table has {spec!r} (did you mean {near[0]!r}?); it is looked for among the models of "
                "this machine"
            )
        before = set(self.models)
        if (model := self._add_model(found, name)) not in before:
            self.models[model].setdefault("load", replace(UNSET, value="demand"))
        if not any(self._caches_on(model)):
            cache = free_name(model, [*self.caches, *self.providers])
            self.caches[cache] = {"model": replace(UNSET, value=model)}
        return model

    def _checked_of_provider(self, alias: Setting, provider: str, model: str) -> str:
        own = self.providers[provider].get("model", UNSET).value
        if own not in (None, model):
            raise alias.error(
                f"{provider!r} always answers with its model {own!r}, not with {model!r}; leave {provider}.model out, "
                f"or let the alias stand for {provider!r}"
            )
        return f"{provider}/{model}"

    def _provider_in(self, meaning: str) -> str | None:
        provider = meaning.partition("/")[0]
        return provider if provider in self.providers and meaning not in (*self.models, *self.caches) else None

    def _followed(
        self, rule: RouteConfig, meanings: Mapping[str, str], error: Callable[..., ConfigError]
    ) -> RouteConfig:
        """The rule with the targets that its aliases stand for; an entry of the tables counts before an alias."""

        def target(name: str) -> str:
            alias = None if name in self.caches or name in self.providers else find_name(name, meanings)
            meaning = name if alias is None else meanings[alias]
            if (provider := self._provider_in(meaning)) is not None and provider != meaning:
                raise error(
                    f"{name!r} stands for a model of the provider {provider!r}, and a route names a provider alone; "
                    f"give the model one of its own: [providers.NAME] with type and model"
                )
            if alias is None or meaning in self.caches:
                return meaning
            return next(self._caches_on(meaning.partition(":")[0]), meaning)

        return replace(
            rule,
            cache=rule.cache and target(rule.cache),
            provider=rule.provider and target(rule.provider),
            fallback=tuple(map(target, rule.fallback)),
        )

    def _warn_of_routes(self, rules: Sequence[RouteConfig], setting: Setting, meanings: Mapping[str, str]) -> None:
        """Warn of aliases whose requests go elsewhere: the routes decide."""
        targets = ((rule.cache or rule.provider or "", rule) for rule in rules if rule.endpoint is None)
        routes = [Route(target, match=rule.match, model=rule.model) for target, rule in targets]
        router = Router(routes, meaning=lambda name: meanings.get(name, name))
        for name, meaning in meanings.items():
            model = meaning if meaning in self.models else meaning.partition(":")[0]
            meant = {meaning, self._provider_in(meaning), *self._caches_on(model)}
            route = router.find(name)
            if route is not None and route.target not in meant:
                self.warnings.append(
                    f"{setting.file}: requests for the alias {name!r} go to {route.target!r}, not to {meaning!r}: the "
                    f"first of the routes that takes them decides; put one for it before"
                )

    def _caches_on(self, model: str) -> Iterator[str]:
        return (cache for cache, entry in self.caches.items() if entry["model"].value == model)

    def _base(self, setting: Setting) -> PathBase:
        return replace(self.base, folder=Path(setting.file).parent) if setting.file else self.base

    # providers

    def _add_providers(self) -> list[str]:
        """Set the types, and add a provider for every API key; the names of those that the user wants."""
        for name, entry in self.providers.items():
            marker = self.settings["providers", name]
            if name in self.caches:
                raise marker.error(f"there is a cache called {name!r} too; rename one of them")
            if "type" not in entry:
                if (known_as := find_kind(name)) is None:
                    known = ", ".join((*PROVIDER_TYPES, *registered.names()))
                    raise marker.error(f"has no type; expected one of {known}", f"{marker.key}.type")
                entry["type"] = replace(marker, value=known_as.name)
        asked_for = list(self.providers)
        for kind in keys_below("api_keys"):
            key = self._get(f"api_keys.{kind}")
            taken = kind in self.caches or kind in self.providers
            if key.value and not taken and all(entry["type"].value != kind for entry in self.providers.values()):
                self.providers[kind] = {"type": replace(key, value=kind)}
                # A key in the environment may be there for other programs: it must send no prompts away.
                asked_for += [kind] if key.file else []
        return asked_for

    def _chosen_provider(self, backend: Setting, model: Setting) -> str:
        kind = str(backend.value)
        same = [name for name, entry in self.providers.items() if entry["type"].value == kind]
        name = kind if kind in same else next(iter(same), free_name(kind, [*self.providers, *self.caches]))
        entry = self.providers.setdefault(name, {"type": backend})
        if model.value and model.rank > entry.get("model", UNSET).rank:
            entry["model"] = model
        return name

    def _provider_rows(self, name: str, entry: dict[str, Setting]) -> Iterator[ProviderConfig]:
        """The provider, and one for each of its `base_urls`, which are its replicas then."""
        provider, error = self._provider(name, entry), entry["type"].error
        if not provider.base_urls:
            yield provider
            return
        here = f"providers.{name}.base_urls"
        if other := next((word for word in ("base_url", "replicas") if getattr(provider, word)), None):
            raise error(f"give either base_urls or {other}", here)
        if twice := _find_twice(tuple(map(_place_of, provider.base_urls))):
            raise error(f"names the same server twice: {twice}", here)
        schemes = {urlsplit(url).scheme for url in provider.base_urls}
        if len(schemes) > 1:
            why = "mixes http and https, so that prompts and the key would go out unencrypted to some of them"
            raise error(f"{why}; use one scheme, or name them one by one with replicas", here)
        names = tuple(f"{name}-{number}" for number, _ in enumerate(provider.base_urls, 1))
        if taken := next((each for each in names if each in self.providers or each in self.caches), None):
            raise error(f"would be called {taken!r}, which there is already; rename one of them", here)
        yield replace(provider, replicas=names)
        for each, url in zip(names, provider.base_urls, strict=True):
            yield replace(provider, name=each, base_url=url, base_urls=(), group=name)

    def _provider(self, name: str, entry: dict[str, Setting]) -> ProviderConfig:
        provider = _built(ProviderConfig, name, entry)
        for replica in provider.replicas:
            _get_known(replica, self.providers, "provider", entry["type"].error, f"providers.{name}.replicas")
            if replica == name or not {"replicas", "base_urls"}.isdisjoint(self.providers[replica]):
                raise entry["type"].error("a replica must be a single provider", f"providers.{name}.replicas")
        if twice := _find_twice(provider.replicas):
            raise entry["type"].error(f"names {twice!r} twice", f"providers.{name}.replicas")
        is_group = bool(provider.replicas or provider.base_urls)
        if provider.type == "openai_compat" and provider.base_url is None and not is_group:
            raise entry["type"].error("an openai_compat provider needs a base_url", f"providers.{name}.base_url")
        if provider.replicas and (provider.budget_tokens is not None or provider.budget_money is not None):
            raise entry["type"].error("the replicas have budgets, not their group", f"providers.{name}.budget_tokens")
        if provider.budget_money is not None and not provider.prices:
            raise entry["type"].error("a budget in money needs prices", f"providers.{name}.prices")
        own, variable = entry.get("api_key", UNSET), entry.get("api_key_env", UNSET)
        key = own.value if own.rank >= variable.rank else self.env.get(str(variable.value)) or None
        if key is None and variable.value:
            self.warnings.append(f"providers.{name}.api_key_env: the variable {variable.value} is not set")
        elif key is None and provider.type in keys_below("api_keys"):
            key = self._get(f"api_keys.{provider.type}").value
        return replace(provider, api_key=key, is_declared=("providers", name) in self.settings)

    # routes

    def _routes(
        self,
        rules: list[RouteConfig],
        rank: int,
        choice: _DefaultTarget | None,
        asked_for: Sequence[str],
        meanings: Mapping[str, str],
    ) -> list[RouteConfig]:
        """The given rules with `choice` as their default, or rules made for the caches and providers."""
        index = next((index for index, rule in enumerate(rules) if rule.takes_all), len(rules))
        if choice and rules and choice.rank > rank:
            default = rules[index] if index < len(rules) else RouteConfig(match="*")
            rules[index:] = [choice.applied_to(default), *rules[index + 1 :]]
        if rules or choice is None:
            return rules
        declared = [name for name in asked_for if ("providers", name) in self.settings]
        if len(self.caches) + len(declared) > 1:
            by_model = {entry["model"].value: cache for cache, entry in reversed(self.caches.items())}
            caches = {**by_model, **{cache: cache for cache in self.caches}}
            models = {self.providers[name].get("model", UNSET).value: name for name in reversed(declared)}
            providers = {**models, **{name: name for name in declared}}
            rules += [RouteConfig(model=name, cache=cache) for name, cache in caches.items()]
            rules += [
                RouteConfig(model=name, provider=to) for name, to in providers.items() if name not in (None, *caches)
            ]
            rules += [RouteConfig(match=f"{name}/*", provider=name) for name in declared]
        rules += [
            RouteConfig(model=name, provider=provider)
            for name, meaning in meanings.items()
            if (provider := self._provider_in(meaning)) is not None
        ]
        return [*rules, choice.applied_to(RouteConfig(match="*"))]

    def _check_names(self, rules: Sequence[RouteConfig], setting: Setting) -> None:
        for entry in self.caches.values():
            _get_known(entry["model"].value, self.models, "model", entry["model"].error)
        for index, rule in enumerate(rules):
            here = f"routes[{index}]"
            if not (rule.match or rule.model or rule.endpoint):
                why = 'matches nothing: give match, model or endpoint (match = "*" takes every request)'
                raise setting.error(why, here)
            if (rule.cache is None) == (rule.provider is None):
                raise setting.error("needs one target: give either cache or provider", here)
            if rule.cache is not None:
                _get_known(rule.cache, self.caches, "cache", setting.error, f"{here}.cache")
            if rule.provider is not None:
                _get_known(rule.provider, self.providers, "provider", setting.error, f"{here}.provider")
            for name in rule.fallback:
                known = [*self.caches, *self.providers]
                _get_known(name, known, "cache or provider", setting.error, f"{here}.fallback")

    def _check_privacy(
        self, rules: Sequence[RouteConfig], setting: Setting, providers: Mapping[str, ProviderConfig]
    ) -> None:
        for index, rule in enumerate(rules):
            named = [providers[name] for name in (rule.provider or "", *rule.fallback) if name in providers]
            used = [*named, *(providers[replica] for each in named for replica in each.replicas)]
            away = next((provider.name for provider in used if not provider.is_local), None)
            if rule.privacy == "local" and away:
                why = f'the provider {away!r} is not on this machine; remove it or set privacy = "any"'
                raise setting.error(why, f"routes[{index}].privacy")
            caches = [name for name in (rule.cache or "", *rule.fallback) if name in self.caches]
            models = [self.caches[name]["model"].value for name in caches] if rule.privacy == "local" else []
            for model in models:
                for server in self.models[model].get("rpc_servers", UNSET).value or ():
                    if not is_loopback(server.rpartition(":")[0]):
                        why = f'the model {model!r} is computed at {server} too; remove it or set privacy = "any"'
                        raise setting.error(why, f"routes[{index}].privacy")

        embedder = self._get("memory.embedding_model")
        provider = providers.get(str(embedder.value or "").partition("/")[0])
        names = [provider.name, *provider.replicas] if provider else []
        if any(not providers[name].is_local for name in names) and any(rule.privacy == "local" for rule in rules):
            why = 'a provider elsewhere would read what the memory keeps of routes with privacy = "local"'
            raise embedder.error(f"{why}; use a model of this machine", "memory.embedding_model")

    # single values

    def _apply_shorthands(self, defaults: Mapping[str, str | None]) -> None:
        """Copy shorthands into entries that leave the key out; in default entries a stronger layer replaces it."""
        for word, table, name in SHORTHANDS:
            setting = self._get(word)
            entries: Entries = getattr(self, table)
            for entry_name, entry in entries.items() if setting.rank >= 0 else ():
                own = entry.get(name)
                # A cache without a type takes the one of its model, which has the shorthand already.
                fills = own is None and not (table == "caches" and name.startswith("cache_type"))
                if fills or (own is not None and entry_name == defaults[table] and setting.rank > own.rank):
                    entry[name] = setting

    def _table(self, default: Any, *path: str) -> Any:
        """A table with its inner tables; what is not set is as in `default`."""
        values = {}
        for name, kind in keys_of(type(default)).items():
            if isinstance(kind, Table) and kind.form == "one":
                values[name] = self._table(getattr(default, name), *path, name)
            elif (value := self.settings.get((*path, name), UNSET).value) is not None:
                values[name] = value
        return replace(default, **values)

    def _server(self, server: ServerConfig) -> ServerConfig:
        setting = self._get("server.keys")
        if setting.value is not None:
            server = replace(server, keys=tuple(self._server_keys(setting)))
        for name, missing in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
            if getattr(server, name) is not None and getattr(server, missing) is None:
                raise self._get(f"server.{name}").error(
                    f"needs server.{missing} as well (--{missing.replace('_', '-')})"
                )
        for key, own, other in (
            (setting.key, server.keys, server.api_keys),
            (self._get("server.api_keys").key, server.api_keys, server.keys),
        ):
            if own == () and not other:
                self.warnings.append(f"{key} holds no key: every request will be refused; remove it to let all in")
        return server

    def _server_keys(self, setting: Setting) -> Iterator[KeyConfig]:
        names: list[str] = []
        for index, row in enumerate(setting.value):
            here, found = f"{setting.key}[{index}]", KeyConfig(**row)
            if not found.name or found.name in names:
                raise setting.error("needs a name of its own", f"{here}.name")
            names.append(found.name)
            if sum(way is not None for way in (found.key, found.key_env, found.key_hash)) != 1:
                raise setting.error("needs one of key, key_env and key_hash", here)
            if found.key_hash and not re.fullmatch("sha256:[0-9a-fA-F]{64}", found.key_hash):
                why = "is written sha256: and 64 hexadecimal digits, as sha256sum prints them"
                raise setting.error(why, f"{here}.key_hash")
            if found.user is not None:
                found = replace(found, user=found.user.strip())
                if not 0 < len(found.user or "") <= 256:
                    raise setting.error("needs 1 to 256 characters that are not all spaces", f"{here}.user")
            if found.key_env and not self.env.get(found.key_env):
                # A lost secret must neither open the server nor close it silently.
                raise setting.error(f"the variable {found.key_env} is not set", f"{here}.key_env")
            yield replace(found, key=self.env[found.key_env]) if found.key_env else found

    def _mcp_servers(self) -> tuple[McpServerConfig, ...]:
        setting = self._get("mcp_servers")
        found = tuple(McpServerConfig(**row) for row in setting.value or ())
        for index, server in enumerate(found):
            here = f"mcp_servers[{index}]"
            if not server.name or server.name in [each.name for each in found[:index]]:
                raise setting.error("needs a name of its own", f"{here}.name")
            if (server.command is None) == (server.url is None):
                raise setting.error("needs either a command or a url", here)
        return found


@dataclass(frozen=True, slots=True)
class _DefaultTarget:
    """The target of the default route, and the rank of the layer that chose it."""

    table: Literal["cache", "provider"]
    name: str
    rank: int = -1

    def applied_to(self, rule: RouteConfig) -> RouteConfig:
        is_cache = self.table == "cache"
        return replace(rule, cache=self.name if is_cache else None, provider=None if is_cache else self.name)


_T = TypeVar("_T")


def _vain_archives(
    rules: Sequence[RouteConfig], file: str, memory: MemoryConfig, server: ServerConfig
) -> Iterator[str]:
    """A warning for every rule that should archive, and does not for all of its requests."""
    names_users = bool(server.keys) and not server.api_keys and all(each.user for each in server.keys or ())
    for index, rule in enumerate(rules):
        begin = f"{file}: routes[{index}] has archive = true"
        if rule.archive and not memory.enable_archival:
            yield f"{begin}, and memory.enable_archival = false: nothing is archived"
        elif rule.archive and not rule.user and not names_users:
            yield (
                f"{begin} and no user: requests that name no user (x-shepherd-user, or a key with a user) are not "
                'archived; add user = "local" to archive them in your own memory'
            )


def _find_twice(words: Sequence[str]) -> str:
    """The first word that stands there before; empty where there is none."""
    return next((word for at, word in enumerate(words) if word in words[:at]), "")


def _place_of(url: str) -> str:
    """A base URL such that equal ones are the same server."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = "localhost" if is_loopback(host) or host in ("0.0.0.0", "::") else host  # noqa: S104 - no server listens here
    try:
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except ValueError:  # `provider_of` refuses it
        return url
    return f"{host}:{port}{parts.path.rstrip('/')}"


def _built(cls: Callable[..., _T], name: str, entry: Mapping[str, Setting]) -> _T:
    values = {word: setting.value for word, setting in entry.items() if setting.value is not None}
    for inner, made in (("sampling", Sampling), ("network", NetworkConfig), ("tensorrt", TensorRTConfig)):
        words = [word for word in values if word.startswith(f"{inner}.")]
        if words:
            values[inner] = made(**{word.partition(".")[2]: values.pop(word) for word in words})
    return cls(name=name, **values)


def _cache(name: str, entry: Mapping[str, Setting]) -> CacheConfig:
    cache = _built(CacheConfig, name, entry)
    if not cache.repeatable:
        return cache
    if "sequences" in entry and cache.sequences > 1:
        why = (
            f"got {cache.sequences}, but a repeatable cache computes one request at a time: leave it out, or make it 1"
        )
        raise entry["sequences"].error(why)
    return replace(cache, sequences=1)


def model_name(spec: str) -> str:
    """The name of a model of which only the file is known."""
    if spec == "embedded":
        return EMBEDDED
    last = spec.removeprefix("ollama:").removeprefix("pypi:").rstrip("/").rpartition("/")[2]
    return re.sub(r"(-\d{5}-of-\d{5})?(\.gguf)?$", "", last, flags=re.IGNORECASE) or "model"


def free_name(name: str, taken: Iterable[str]) -> str:
    """`name`, or the first of name-2, name-3, ... that is not taken."""
    names = itertools.chain((name,), (f"{name}-{count}" for count in itertools.count(2)))
    return next(each for each in names if each not in taken)


def _get_known(name: str, known: Iterable[str], what: str, error: Callable[..., ConfigError], *key: str) -> None:
    names = list(known)
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise error(f"no {what} is called {name!r}{hint}; known: {', '.join(names) or 'none'}", *key)
