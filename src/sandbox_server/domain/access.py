"""Who asks, and what they may do."""

from dataclasses import dataclass, field
from enum import StrEnum

from sandbox_server.domain.errors import ScopeMissing
from sandbox_server.domain.events import Actor
from sandbox_server.domain.ids import ApiKeyId, LoginId, TenantId


class Scope(StrEnum):
    READ = "read"
    SANDBOXES = "sandboxes"
    ADMIN = "admin"


class TicketScope(StrEnum):
    """What a ticket is for; `port` is to pass through to what listens on one port of a sandbox."""

    READ = "read"
    SANDBOXES = "sandboxes"
    PORT = "port"

    @property
    def needed(self) -> Scope:
        """Which scope the key has to have that makes it."""
        return Scope.READ if self is TicketScope.READ else Scope.SANDBOXES

    @property
    def given(self) -> frozenset[Scope]:
        """Which scopes its holder has at the API."""
        return frozenset() if self is TicketScope.PORT else frozenset({self.needed})


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
    secret_hash: bytes = field(default=b"", repr=False, compare=False)
    """Of what the caller showed, by which it is found again."""

    @property
    def actor(self) -> Actor:
        return Actor(kind="key", id=self.key_id)

    def may(self, scope: Scope) -> bool:
        return any(scope in _IMPLIED[held] for held in self.scopes)

    def require(self, scope: Scope) -> None:
        if not self.may(scope):
            raise ScopeMissing(scope)


@dataclass(frozen=True, kw_only=True)
class TicketCaller(Caller):
    """The holder of a ticket: may do no more than its key, and that only for what the ticket is for."""

    sandbox_id: str | None = None
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoginCaller(Caller):
    """Somebody's browser that was signed in with a key: may what that may, and only by pages of this server's own."""

    login_id: LoginId
