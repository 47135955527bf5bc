from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandbox_server.domain.deadlines import DEFAULT_RULES, Rules
from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.providers.browserbase import BrowserbaseBackend
from sandbox_server.providers.browserbase.wire import LONGEST, TEMPLATE
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.limits import ProviderLimits
from sandbox_server.providers.settings import (
    DEFAULT_CAPACITY,
    BackendKind,
    BackendSettings,
    require_consistent,
)

NOT_CONFIGURED = "it was removed from the settings"

Backend = E2BBackend | BrowserbaseBackend
"""A provider. They have the lifecycle calls in common; what runs inside a sandbox, one kind refuses."""


@dataclass(frozen=True, kw_only=True)
class KnownBackend:
    """A configured provider, with its settings and deadlines."""

    client: Backend
    rules: Rules = DEFAULT_RULES
    capacity: int = DEFAULT_CAPACITY
    paused_takes_place: bool = False
    overflow_to: str | None = None
    templates: frozenset[str] = frozenset()
    """Templates there that the settings allow to all tenants."""
    capabilities: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Capabilities of templates there, by name."""


class Backends:
    """The providers of this server, by name; the first one is the default."""

    def __init__(
        self, known: Mapping[str, KnownBackend], *, limits: ProviderLimits | None = None
    ) -> None:
        self._known = dict(known)
        self.limits = limits or ProviderLimits(len(self._known))

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def __getitem__(self, name: str) -> Backend:
        """Return a provider; one that was removed from the settings fails as unavailable."""
        known = self._known.get(name)
        if known is None:
            raise BackendUnavailable(name, NOT_CONFIGURED)
        return known.client

    def rules(self, name: str | None) -> Rules:
        """Return the deadlines of a backend; the default ones without a backend."""
        known = None if name is None else self._known.get(name)
        return DEFAULT_RULES if known is None else known.rules

    def limited_to(self, name: str) -> frozenset[str] | None:
        """Return the only capabilities that sandboxes of a backend can have; None: it depends on their templates."""
        known = self._known.get(name)
        return None if known is None else known.client.capabilities

    def list_with(self, capability: str) -> list[str]:
        """List the backends whose sandboxes can have a capability."""
        limits = {name: self.limited_to(name) for name in self._known}
        return [name for name, limit in limits.items() if limit is None or capability in limit]

    def building(self) -> list[str]:
        """List the backends that can build templates."""
        return [name for name in self._known if self.limited_to(name) is None]

    def declaring(self, template: str) -> frozenset[str]:
        """List the backends whose settings allow a template to all tenants."""
        return frozenset(name for name, one in self._known.items() if template in one.templates)

    def offered(self, template: str) -> frozenset[str]:
        """Return the capabilities of a template that only backends of one kind have."""
        limits = [self.limited_to(name) or frozenset() for name in self.declaring(template)]
        return frozenset[str]().union(*limits)

    def capabilities(self) -> Mapping[str, frozenset[str]]:
        """Map templates to the capabilities that the settings of backends declare for them."""
        declared: dict[str, frozenset[str]] = {}
        for one in self._known.values():
            for template, capabilities in one.capabilities.items():
                declared[template] = declared.get(template, frozenset()) | capabilities
        return declared

    def items(self) -> Iterator[tuple[str, KnownBackend]]:
        """List all providers with their settings."""
        return iter(self._known.items())

    async def close(self) -> None:
        for known in self._known.values():
            await known.client.close()


def open_backends(
    settings: Sequence[BackendSettings], *, installation_id: str, rules: Rules = DEFAULT_RULES
) -> Backends:
    """Build the clients of all providers, without a request."""
    require_consistent(settings)
    limits = ProviderLimits(len(settings))
    return Backends(
        {
            one.name: (_open_e2b if one.kind is BackendKind.E2B else _open_browserbase)(
                one, installation_id=installation_id, rules=rules, limits=limits
            )
            for one in settings
        },
        limits=limits,
    )


def _open_e2b(
    one: BackendSettings, *, installation_id: str, rules: Rules, limits: ProviderLimits
) -> KnownBackend:
    return KnownBackend(
        client=E2BBackend(one.endpoint(), installation_id=installation_id, limits=limits),
        rules=replace(rules, longest_run=one.max_continuous_run),
        capacity=one.capacity,
        paused_takes_place=one.paused_takes_place,
        overflow_to=one.overflow_to,
        templates=frozenset(one.templates),
        capabilities=one.capabilities,
    )


def _open_browserbase(
    one: BackendSettings, *, installation_id: str, rules: Rules, limits: ProviderLimits
) -> KnownBackend:
    return KnownBackend(
        client=BrowserbaseBackend(
            one.endpoint(),
            installation_id=installation_id,
            project_id=one.project_id,
            limits=limits,
        ),
        rules=replace(rules, provider_timeout=LONGEST, can_pause=False),
        capacity=one.capacity,
        overflow_to=one.overflow_to,
        templates=frozenset({TEMPLATE}),
    )
