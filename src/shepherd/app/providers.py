"""The providers of a configuration: each is opened at its first request, with the memory beside it.

ProviderConfig ─▶ Provider ─▶ CloudBackend ─▶ MemoryBackend
a group of replicas ─ order ─▶ the providers in it, the best one first
                    ─ ReplicaWatch looks at each again and again
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import platformdirs

from shepherd.agent.archiving import Archiving
from shepherd.agent.with_memory import MemoryBackend
from shepherd.app.toolset import AGENT_CTX, CHARS_PER_TOKEN
from shepherd.app.usage import UseByUser
from shepherd.backends.cloud import fit
from shepherd.backends.cloud.backend import CloudBackend, Timeouts
from shepherd.backends.cloud.budget import Budget, Meter, Prices, Spending
from shepherd.backends.cloud.kept import KeptAnswers
from shepherd.backends.cloud.packaged import PackagedBackend
from shepherd.backends.cloud.provider import Provider, find_kind, provider_of
from shepherd.backends.cloud.transport import Deadlines, Transport
from shepherd.backends.fallback import Health
from shepherd.backends.local.chat_template import find_dialect
from shepherd.backends.replicas import Replica, Replicas
from shepherd.config import Config, KeyStore, NetworkConfig, ProviderConfig, find_key
from shepherd.config.kinds import NO_PROXY
from shepherd.core import ConfigError, Event, Finished, InvalidRequest, Request, UnknownModel
from shepherd.core.dataclasses import dataclass, replace
from shepherd.core.edits import WHOLE, AppliedEdit, Edit, Edited
from shepherd.core.status import ModelCard, ProviderSpending, ReplicaStatus
from shepherd.dialects import TagDialect
from shepherd.memory.users import UserStores
from shepherd.wire.history import without
from shepherd.wire.signature import Protocol

PROBE_S = 10.0
"""Between two looks at a replica."""


@dataclass(frozen=True, slots=True)
class CountingCloud:
    cloud: CloudBackend | PackagedBackend
    row: ProviderConfig
    uses: UseByUser

    @property
    def n_ctx(self) -> int:
        """As it is known now: a refusal may have named it."""
        return self.row.n_ctx or self.cloud.window(self.row.model or "") or AGENT_CTX

    async def stream(self, request: Request) -> AsyncGenerator[Event, None]:
        async with aclosing(self.cloud.stream(_without_cleared(request))) as events:
            async for event in events:
                if isinstance(event, Finished):
                    name, prices = self.row.group or self.row.name, Prices(**self.row.prices)
                    self.uses.note(request.owner, name, event.usage, prices)
                yield event

    async def count(self, request: Request) -> int:
        return (await self.cloud.count(_without_cleared(request))).tokens

    async def edit(self, request: Request, edits: Sequence[Edit]) -> Edited:
        """See `EditingBackend.edit`: old turns leave, by an estimate, until half of the prompt has left."""
        n_before = n_after = await self.count(request)
        cleared, applied = request.cleared, list[AppliedEdit]()
        for edit in edits:
            trigger = self.n_ctx * 3 // 4 if edit.trigger_tokens is None else edit.trigger_tokens
            if edit.kind != "compact" or n_after <= trigger:
                continue
            here = [at for at in range(len(request.messages)) if (at, WHOLE) not in cleared]
            messages = [request.messages[at] for at in here]
            gone = fit.dropped_indices(messages, 1.0, sum(map(fit.message_weight, messages)) / 2)
            cleared |= {(here[at], WHOLE) for at in gone}
            n_left = await self.count(replace(request, cleared=cleared)) if gone else n_after
            applied.append(AppliedEdit("compact", len(gone), n_after - n_left))
            n_after = n_left
        return Edited(cleared, tuple(applied), n_before, n_after, model=self.cloud.model_of(request))

    async def render(self, request: Request) -> str:
        raise InvalidRequest(
            f"{self.cloud.provider.name} makes the prompt itself, so it cannot be shown here", field="model"
        )

    def count_tokens(self, text: str) -> int:
        """An estimate: the tokenizer is the provider's."""
        return math.ceil(len(text) / CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class OpenProvider:
    cloud: CloudBackend | PackagedBackend
    counting: CountingCloud
    backend: MemoryBackend

    @property
    def protocol(self) -> str:
        """What it speaks; empty for a back end of another package."""
        provider = self.cloud.provider
        return "" if provider.kind.make else provider.protocol


class Providers:
    """All providers of a configuration, by name. One event loop."""

    def __init__(
        self,
        config: Config,
        *,
        env: Mapping[str, str],
        stores: UserStores,
        archiving: Archiving,
        keys: KeyStore,
        spending: Spending,
        uses: UseByUser,
    ) -> None:
        """Opens nothing. `uses`: counts answers by user. Raises: `ConfigError` for a provider whose key or address is
        missing."""
        self._config = config
        self._env, self._keys = env, keys
        self._spending = spending
        self.uses = uses
        self.stores = stores
        """Of those that are opened from now on."""
        self._archiving = archiving
        self._kept: KeptAnswers | None = None
        self._rows: dict[str, ProviderConfig] = {}
        self._known: dict[str, Provider] = {}
        self._open: dict[str, OpenProvider] = {}
        self.replicas = Replicas(Health())
        self._left: list[OpenProvider] = []
        """Those that were changed; an answer of theirs may still be running."""
        wanted = {name for rule in config.routes for name in (rule.provider, *rule.fallback) if name is not None}
        self._hurried = {name for rule in config.routes for name in (rule.provider, *rule.fallback)[:-1]}
        """Another one is asked where these cannot answer."""
        for row in config.providers:
            try:
                self.add(row)
            except ConfigError:
                # A key in the environment may be there for other programs; only what is asked for has to be complete.
                if row.name in wanted or row.is_declared:
                    raise

    def add(self, row: ProviderConfig) -> None:
        """Add a provider, or change it. Raises: `ConfigError`."""
        if not row.replicas:
            self._known[row.name] = made_of(row, self._env, self._keys)
        if row.name in self._open and row != self._rows[row.name]:
            self._left.append(self._open.pop(row.name))
        self._rows[row.name] = row
        for name in row.replicas:
            self.replicas.add(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self._rows

    def row(self, name: str) -> ProviderConfig:
        return self._rows[name]

    def all_of(self, name: str) -> tuple[str, ...]:
        """The provider, or those of its group."""
        return self._rows[name].replicas or (name,)

    def known(self, name: str) -> Provider:
        """The provider of this name; of a group the first one."""
        return self._known[self.all_of(name)[0]]

    def cloud(
        self, name: str, deadlines: Deadlines | None = None, timeouts: Timeouts | None = None
    ) -> CloudBackend | PackagedBackend:
        """A new back end of the provider, of a group of its first one, with its budget; as `cloud_of`."""
        first = self.all_of(name)[0]
        row, shared = self._rows[first], self._config.network
        return cloud_of(
            row, self._known[first], shared, self._spending, kept=self._kept, deadlines=deadlines, timeouts=timeouts
        )

    def is_local(self, name: str) -> bool:
        """Whether prompts for it stay on this machine; of a group: for all of them."""
        row = self._rows[name]
        return all(map(self.is_local, row.replicas)) if row.replicas else self._known[name].is_local

    def title(self, name: str) -> str:
        """What people call it: `Anthropic`."""
        return self._known[name].kind.title if name in self._known else f"{len(self._rows[name].replicas)} replicas"

    def model(self, name: str) -> str:
        """The model that answers where a request names the provider only; empty = none."""
        row = self._rows[name]
        return row.model or next((self._rows[each].model or "" for each in row.replicas), "")

    def order(self, name: str, request: Request) -> tuple[str, ...]:
        """The provider, or those of its group that may be asked, the best first; empty where all are taken out."""
        row = self._rows[name]
        if not row.replicas:
            return (name,)
        asked = self.asked_model(name, request.model)
        group = (self._rows[each] for each in row.replicas)
        # The address of one that a list names: its number is another one when the list changes.
        return self.replicas.order(
            [
                Replica(each.name, str(each.base_url) if each.group else each.name, each.model or asked, each.weight)
                for each in group
            ],
            request,
        )

    def asked_model(self, name: str, model: str) -> str:
        """What a provider, or a replica of a group, is asked for where a request names `model`, unless its own row has
        a model."""
        return (self._rows[name].model if self._rows[name].replicas else None) or model.removeprefix(f"{name}/")

    def groups(self) -> dict[str, dict[str, ReplicaStatus]]:
        """By group, the state of each replica."""
        return {
            name: {each: self.replicas.status(each) for each in row.replicas}
            for name, row in self._rows.items()
            if row.replicas
        }

    def watched(self) -> dict[str, float]:
        """The replicas that are looked at, and the seconds between two looks."""
        found: dict[str, float] = {}
        for row in self._rows.values():
            for name in row.replicas:
                kind = self._known[name].kind
                usual = PROBE_S if not kind.needs_key and kind.make is None else 0.0
                if every_s := usual if row.probe_s is None else row.probe_s:
                    found[name] = min(every_s, found.get(name, every_s))
        return found

    def open(self, name: str) -> OpenProvider:
        if name not in self._rows:
            raise UnknownModel(name, known=self.names)
        if (found := self._open.get(name)) is None:
            self._kept = self._kept or KeptAnswers()
            hurry = Timeouts(attempts=2, stated_s=2.0, total_s=4.0) if name in self._hurried else None
            if any(name in each.replicas and len(each.replicas) > 1 for each in self._rows.values()):
                hurry = Timeouts(attempts=1)  # another replica is asked at once
            row, cloud = self._rows[name], self.cloud(name, timeouts=hurry)
            counting = CountingCloud(cloud, row, self.uses)
            found = OpenProvider(cloud, counting, MemoryBackend(counting, self.stores, self._archiving))
            self._open[name] = found
        return found

    def cards(self) -> tuple[ModelCard, ...]:
        """One for each provider that names its model, and for each group."""
        names = (name for name, row in self._rows.items() if not row.group)
        return tuple(filter(None, (self.card(name, self.model(name)) for name in names)))

    def card(self, name: str, model: str) -> ModelCard | None:
        """The card of a provider with one of its models, empty = the one that it names; None where there is none."""
        if not (model := model or self.model(name)):
            return None
        card = self.open(self.all_of(name)[0]).cloud.card(model)
        n_ctx = self.window(name) if model == self.model(name) else card.n_ctx
        return replace(card, id=name, n_ctx=n_ctx, description=f"{self.title(name)} {model}", loaded=False)

    @property
    def in_use(self) -> tuple[str, ...]:
        """Those that were asked, and those that the configuration declares; no groups."""
        return tuple(
            name for name, row in self._rows.items() if not row.replicas and (row.is_declared or name in self._open)
        )

    def window(self, name: str) -> int:
        """Tokens that one conversation can hold; 0 = not known."""
        row = self._rows[name]
        if row.replicas:
            return min(filter(None, map(self.window, row.replicas)), default=0)  # one that is down says nothing
        return row.n_ctx or self.open(name).cloud.window(row.model or "") or 0

    def spending(self) -> dict[str, ProviderSpending]:
        """By name, what each provider has cost: those with a budget, and those that have answered."""
        rows = {row.group or name: row for name, row in self._rows.items() if not row.replicas}
        states = {name: meter_of(row, self._spending).state() for name, row in rows.items()}
        return {
            name: each
            for name, each in states.items()
            if each.today.tokens or each.total.tokens or each.budget_tokens is not None or each.budget_money is not None
        }

    def forget(self) -> None:
        if self._kept is not None:
            self._kept.clear()
        for each in self._open.values():
            each.backend.forget()

    async def aclose(self) -> None:
        opened = [*self._open.values(), *self._left]
        self._open, self._left = {}, []
        for each in opened:
            await each.cloud.aclose()


def _without_cleared(request: Request) -> Request:
    if not request.cleared:
        return request
    return replace(request, messages=without(request.messages, request.cleared), cleared=frozenset())


def user_spending() -> Spending:
    """What this user has spent, in the user's state folder."""
    return Spending(Path(platformdirs.user_state_dir("shepherd")) / "spending")


def usage_folder() -> Path:
    """Where it is kept what the models of this machine have computed for this user, beside it."""
    return Path(platformdirs.user_state_dir("shepherd")) / "usage"


def meter_of(row: ProviderConfig, spending: Spending) -> Meter:
    return Meter(spending, row.group or row.name, Budget(row.budget_tokens, row.budget_money, Prices(**row.prices)))


def cloud_of(
    row: ProviderConfig,
    provider: Provider,
    shared: NetworkConfig,
    spending: Spending,
    *,
    kept: KeptAnswers | None = None,
    deadlines: Deadlines | None = None,
    timeouts: Timeouts | None = None,
) -> CloudBackend | PackagedBackend:
    """The back end of a provider, reached as its row says, or `shared`, which is for all providers. `deadlines`,
    `timeouts`: for what both leave open. Raises: `BackendError` where another package refuses its settings."""
    if provider.kind.make is not None:
        return PackagedBackend(provider, meter=meter_of(row, spending), sampling=row.sampling)
    network = row.network.over(shared)
    deadlines, timeouts = limits_of(network, deadlines, timeouts)
    proxy = None if provider.is_local else network.proxy
    provider = replace(provider, proxy_secret=urlsplit(proxy or "").password or "")
    transport = Transport(provider, deadlines=deadlines, proxy=proxy, ca_file=network.ca_file)
    meter = meter_of(row, spending)
    return CloudBackend(
        provider,
        transport=transport,
        kept=kept,
        meter=meter,
        timeouts=timeouts,
        sampling=row.sampling,
        dialect=dialect_of(row),
    )


def limits_of(
    network: NetworkConfig, deadlines: Deadlines | None = None, timeouts: Timeouts | None = None
) -> tuple[Deadlines, Timeouts]:
    """How long a provider has, and how often it is asked. `deadlines`, `timeouts`: for what `network` leaves open."""
    deadlines, timeouts = deadlines or Deadlines(), timeouts or Timeouts()
    deadlines = replace(
        deadlines,
        connect=network.connect_s or deadlines.connect,
        idle=network.idle_s or deadlines.idle,
        record=max(deadlines.record, 2 * (network.idle_s or 0)),
        whole=network.read_s or deadlines.whole,
    )
    if network.attempts is not None:
        timeouts = replace(timeouts, attempts=network.attempts)
    if network.patience_s is not None:
        timeouts = replace(timeouts, stated_s=network.patience_s, total_s=network.patience_s)
    return deadlines, timeouts


def dialect_of(row: ProviderConfig) -> TagDialect | None:
    """How the models of a provider write, where the provider leaves that in the text. Raises: `ConfigError`."""
    if row.dialect is None:
        return None
    key = f"providers.{row.group or row.name}.dialect"
    if (kind := find_kind(row.type)) is not None and kind.make is not None:
        raise ConfigError(f"{row.type!r} is a back end of an installed package, which reads the text itself", key=key)
    return find_dialect(row.dialect, key)


def made_of(row: ProviderConfig, env: Mapping[str, str], keys: KeyStore) -> Provider:
    """The provider of a row of the configuration. Raises: `ConfigError`."""
    kind = find_kind(row.type)
    if kind is None:
        raise ConfigError(f"no provider is called {row.type!r}", key=f"providers.{row.name}.type")
    found = find_key(row, env, keys)
    try:
        provider = provider_of(
            kind,
            name=row.name,
            env=env,
            base_url=row.base_url,
            # A variable of the kind's own may also say how the key is sent.
            key=None if found is None or found.where in kind.keys else found.key,
            protocol=cast("Protocol | None", row.protocol),
            headers=row.headers,
            model=row.model,
            n_ctx=row.n_ctx,
            options=row.options,
        )
    except ConfigError as error:
        if not row.group:
            raise
        key = error.key.replace(f"providers.{row.name}.", f"providers.{row.group}.")  # as the file has it
        raise ConfigError(
            error.message.removeprefix(f"{error.key}: "), key=key.replace("base_url", "base_urls")
        ) from error
    dialect_of(row)
    if provider.is_local and row.network.proxy not in (None, NO_PROXY):
        raise ConfigError(
            f"{provider.root} is on this machine, and is reached without a proxy; remove it",
            key=f"providers.{row.name}.network.proxy",
        )
    return provider
