"""Callers, their scopes, and tickets."""

from dataclasses import dataclass, field
from enum import StrEnum

from sandbox_server.domain.errors import ScopeMissing
from sandbox_server.domain.events import SERVER, Actor
from sandbox_server.domain.ids import ApiKeyId, LoginId, TenantId


class Scope(StrEnum):
    READ = "read"
    SANDBOXES = "sandboxes"
    ADMIN = "admin"


class TicketScope(StrEnum):
    """The use of a ticket: `port` allows requests to one port of a sandbox, `desktop-…` the page of its desktop."""

    READ = "read"
    SANDBOXES = "sandboxes"
    PORT = "port"
    DESKTOP_VIEW = "desktop-view"
    DESKTOP_CONTROL = "desktop-control"

    @property
    def needed(self) -> Scope:
        """The scope that a key needs to create such a ticket."""
        return Scope.READ if self is TicketScope.READ else Scope.SANDBOXES

    @property
    def granted(self) -> frozenset[Scope]:
        """The scopes of the holder at the API."""
        has_own_paths = self is TicketScope.PORT or self.is_of_desktop
        return frozenset() if has_own_paths else frozenset({self.needed})

    @property
    def is_of_desktop(self) -> bool:
        return self in {TicketScope.DESKTOP_VIEW, TicketScope.DESKTOP_CONTROL}


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
    """The hash of the presented secret, by which the caller is looked up again."""

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
    """The holder of a ticket, limited to the rights of its key and to the use of the ticket."""

    scope: TicketScope = TicketScope.READ
    sandbox_id: str | None = None
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class LoginCaller(Caller):
    """A browser signed in with a key: it has the rights of the key, from this server's own pages only."""

    login_id: LoginId


@dataclass(frozen=True, kw_only=True)
class ServerCaller(Caller):
    """The server itself, working for a tenant with the rights of its keys."""

    @property
    def actor(self) -> Actor:
        return SERVER

    @classmethod
    def of(cls, tenant_id: str, *, priority: int = 0) -> "ServerCaller":
        return cls(
            tenant_id=TenantId(tenant_id),
            key_id=ApiKeyId("server"),
            scopes=frozenset({Scope.SANDBOXES}),
            max_priority=priority,
        )
