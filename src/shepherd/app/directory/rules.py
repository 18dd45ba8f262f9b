"""The rules of the configuration, as the router and the rest of the program read them."""

from __future__ import annotations

from shepherd.backends.router import Route
from shepherd.config import Config, MemoryConfig, RouteConfig


def default_rule(config: Config) -> RouteConfig | None:
    """The rule that takes every request that no other rule takes."""
    return next((rule for rule in config.routes if rule.takes_all), None)


def default_target(config: Config) -> str:
    """The cache or provider that answers our own conversation first."""
    rule = default_rule(config)
    named = rule and (rule.provider or rule.cache)
    return named or [*(each.name for each in config.caches), *(each.name for each in config.providers)][0]


def advisors(config: Config) -> list[tuple[str, bool]]:
    """The models that a model may ask, by name, and whether prompts for them stay here."""
    here = {each.name: each.is_local for each in config.providers}
    declared = [(each.name, each.is_local) for each in config.providers if each.is_declared and each.model]
    aliases = [(name, here.get(meaning.partition("/")[0], True)) for name, meaning in config.aliases.items()]
    return [*((each.name, True) for each in config.models), *declared, *aliases]


def route_of(rule: RouteConfig, memory: MemoryConfig) -> Route:
    """The rule for the router, with what it leaves open to the memory's settings."""
    target = rule.cache or rule.provider
    assert target is not None
    return Route(
        target,
        match=rule.match,
        model=rule.model,
        endpoint=rule.endpoint,
        on_full=rule.overflow,
        user=rule.user,
        archive=rule.archive and memory.enable_archival,
        recall=memory.recall if rule.recall is None else rule.recall,
        background=rule.background,
        fallback=rule.fallback,
        is_private=rule.privacy == "local",
    )
