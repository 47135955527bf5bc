"""Who asks, and what they may do."""

from dataclasses import dataclass
from enum import StrEnum

from sandbox_server.domain.errors import ScopeMissing
from sandbox_server.domain.events import Actor
from sandbox_server.domain.ids import ApiKeyId, TenantId


class Scope(StrEnum):
    READ = "read"
    SANDBOXES = "sandboxes"
    ADMIN = "admin"


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.SANDBOXES: frozenset({Scope.READ, Scope.SANDBOXES}),
    Scope.ADMIN: frozenset(Scope),
}


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The holder of an API key, and through it a tenant."""

    tenant_id: TenantId
    key_id: ApiKeyId
    scopes: frozenset[Scope]
    max_priority: int = 0
    rate_per_s: float | None = None

    @property
    def actor(self) -> Actor:
        return Actor(kind="key", id=self.key_id)

    def may(self, scope: Scope) -> bool:
        return any(scope in _IMPLIED[held] for held in self.scopes)

    def require(self, scope: Scope) -> None:
        if not self.may(scope):
            raise ScopeMissing(scope)
