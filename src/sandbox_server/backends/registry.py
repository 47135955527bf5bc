from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sandbox_server.backends.e2b import E2BBackend
from sandbox_server.domain.deadlines import DEFAULT_RULES, Rules
from sandbox_server.domain.errors import BackendNotFound


@dataclass(frozen=True, kw_only=True)
class KnownBackend:
    """A provider of sandboxes that the settings name, and the deadlines that hold at it."""

    client: E2BBackend
    rules: Rules = DEFAULT_RULES


class Backends:
    """All providers of this server, by name."""

    def __init__(self, known: Mapping[str, KnownBackend]) -> None:
        self._known = dict(known)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __getitem__(self, name: str) -> E2BBackend:
        return self._find(name).client

    def rules(self, name: str | None) -> Rules:
        """Give the deadlines of a backend; what has none yet is held to the usual ones."""
        return DEFAULT_RULES if name is None else self._find(name).rules

    def _find(self, name: str) -> KnownBackend:
        if name not in self._known:
            raise BackendNotFound(name)
        return self._known[name]

    async def close(self) -> None:
        for known in self._known.values():
            await known.client.close()
