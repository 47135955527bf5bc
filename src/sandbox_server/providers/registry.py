from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sandbox_server.domain.deadlines import DEFAULT_RULES, Rules
from sandbox_server.domain.errors import BackendUnavailable
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.limits import ProviderLimits
from sandbox_server.providers.settings import DEFAULT_CAPACITY, BackendSettings, require_consistent

NOT_CONFIGURED = "it was removed from the settings"


@dataclass(frozen=True, kw_only=True)
class KnownBackend:
    """A configured provider, with its settings and deadlines."""

    client: E2BBackend
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

    def __getitem__(self, name: str) -> E2BBackend:
        """Return a provider; one that was removed from the settings fails as unavailable."""
        known = self._known.get(name)
        if known is None:
            raise BackendUnavailable(name, NOT_CONFIGURED)
        return known.client

    def rules(self, name: str | None) -> Rules:
        """Return the deadlines of a backend; the default ones without a backend."""
        known = None if name is None else self._known.get(name)
        return DEFAULT_RULES if known is None else known.rules

    def declaring(self, template: str) -> frozenset[str]:
        """List the backends whose settings allow a template to all tenants."""
        return frozenset(name for name, one in self._known.items() if template in one.templates)

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
            one.name: KnownBackend(
                client=E2BBackend(one.endpoint(), installation_id=installation_id, limits=limits),
                rules=replace(rules, longest_run=one.max_continuous_run),
                capacity=one.capacity,
                paused_takes_place=one.paused_takes_place,
                overflow_to=one.overflow_to,
                templates=frozenset(one.templates),
                capabilities=one.capabilities,
            )
            for one in settings
        },
        limits=limits,
    )
