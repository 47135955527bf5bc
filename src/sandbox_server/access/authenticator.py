import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from sandbox_server.access.caller_cache import CallerCache
from sandbox_server.access.key_repository import KeyRepository
from sandbox_server.access.login_repository import LoginRepository
from sandbox_server.access.secrets import hash_of, is_login, is_secret, is_ticket
from sandbox_server.access.ticket_repository import TicketRepository
from sandbox_server.db.models import ApiKey, Ticket
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller, LoginCaller, Scope, TicketCaller, TicketScope
from sandbox_server.domain.errors import RateLimited, Unauthenticated
from sandbox_server.domain.ids import ApiKeyId, LoginId, TenantId

_BURST_SECONDS = 1.0
_ROUNDING = 1e-9  # the sum of many tokens is not exact


class RateLimit:
    """A token bucket per API key, in this process; the burst is one second's worth of requests.

    It stores only when a bucket will be full again, so an idle key costs nothing.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def take(self, caller: Caller) -> None:
        """Take one token, or raise with the time until the next one."""
        if caller.rate_per_s is None:
            return
        now, token = self._clock(), 1 / caller.rate_per_s
        refilled_at = max(self._full_at.get(caller.key_id, now), now) + token
        missing = refilled_at - now - max(_BURST_SECONDS, token)
        if missing > _ROUNDING:
            raise RateLimited(per_second=caller.rate_per_s, retry_after=timedelta(seconds=missing))
        self._full_at[caller.key_id] = refilled_at


# One limit per kind of credential: a flood of invalid secrets of one kind does not delay lookups of the others.
_CONCURRENT_KEY_LOOKUPS = 4
_CONCURRENT_LOOKUPS = 2
_RECORD_USE_EVERY = timedelta(minutes=1)


class Authenticator:
    """Finds the caller of an API key, a ticket or a login, and enforces the key's rate limit.

    Valid credentials are cached for half a second. A revocation therefore reaches every server within that time,
    without depending on a notification.
    """

    def __init__(self, sessions: Sessions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        keys, tickets, previews, logins, key_ids = (
            asyncio.Semaphore(count)
            for count in (_CONCURRENT_KEY_LOOKUPS, *[_CONCURRENT_LOOKUPS] * 4)
        )
        self._keys = CallerCache(self._look_up_key, limit=keys, clock=clock)
        self._tickets = CallerCache(self._look_up_ticket, limit=tickets, clock=clock)
        self._previews = CallerCache(self._look_up_ticket, limit=previews, clock=clock)
        self._logins = CallerCache(self._look_up_login, limit=logins, clock=clock)
        self._key_ids = CallerCache(self._look_up_key_id, limit=key_ids, clock=clock)
        self._rate_limit = RateLimit(clock=clock)

    async def authenticate(self, secret: str | None) -> Caller:
        """Find the key's caller; malformed keys are rejected without a lookup."""
        if secret is None or not is_secret(secret):
            raise Unauthenticated
        caller = await self._keys.find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    async def authenticate_key_id(self, key_id: str) -> Caller:
        """Find the caller of a key that a token of this server names, unless it is revoked."""
        caller = await self._key_ids.find(key_id.encode())
        self._rate_limit.take(caller)
        return caller

    async def authenticate_ticket(self, secret: str) -> TicketCaller:
        """Find the ticket's caller; a ticket is valid only while its key has the scope that it grants."""
        if not is_ticket(secret):
            raise Unauthenticated
        caller = await self._tickets.find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    async def authenticate_preview(
        self,
        secrets: Sequence[str],
        *,
        sandbox_id: str,
        port: int,
        require_present: Callable[[], None],
    ) -> TicketCaller:
        """Find the caller of the first ticket that is valid for the port.

        `require_present` is called just before the lookup; it raises if the client has disconnected.
        """
        hashes = [hash_of(secret) for secret in secrets if is_ticket(secret)]
        if not hashes:
            raise Unauthenticated

        async def look_up() -> TicketCaller:
            require_present()
            return await self._look_up_preview(hashes, sandbox_id=sandbox_id, port=port)

        caller = await self._previews.find_any(
            hashes,
            look_up,
            matches=lambda found: (found.sandbox_id, found.port) == (sandbox_id, port),
        )
        self._rate_limit.take(caller)
        return caller

    async def authenticate_login(self, secret: str) -> LoginCaller:
        """Find the caller of a browser session; it ends with the key that it was created with."""
        if not is_login(secret):
            raise Unauthenticated
        caller = await self._logins.find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    async def recheck(self, caller: Caller) -> Caller:
        """Check again that an authenticated caller still has access; not counted against the rate limit."""
        if isinstance(caller, TicketCaller):
            return await self._tickets.find(caller.secret_hash)
        if isinstance(caller, LoginCaller):
            return await self._logins.find(caller.secret_hash)
        return await self._keys.find(caller.secret_hash)

    def clear_cache(self) -> None:
        """Drop all cached callers, after a key has changed."""
        self._keys.clear()
        self._tickets.clear()
        self._previews.clear()
        self._logins.clear()
        self._key_ids.clear()

    async def _look_up_key(self, secret_hash: bytes) -> Caller:
        async with without_transaction(self._sessions) as session:
            repository = KeyRepository(session)
            key = await repository.find_valid(secret_hash)
            if key is None:
                raise Unauthenticated
            await repository.record_use(key.id, at_most_every=_RECORD_USE_EVERY)
        return caller_of(key)

    async def _look_up_key_id(self, key_id: bytes) -> Caller:
        async with without_transaction(self._sessions) as session:
            repository = KeyRepository(session)
            key = await repository.find_by_id(key_id.decode())
            if key is None:
                raise Unauthenticated
            await repository.record_use(key.id, at_most_every=_RECORD_USE_EVERY)
        return caller_of(key)

    async def _look_up_ticket(self, secret_hash: bytes) -> TicketCaller:
        async with without_transaction(self._sessions) as session:
            found = await TicketRepository(session).find_valid(secret_hash)
            if found is None:
                raise Unauthenticated("The ticket is invalid or has expired.")
            await KeyRepository(session).record_use(found.key.id, at_most_every=_RECORD_USE_EVERY)
        return _ticket_caller_of(found.ticket, caller_of(found.key))

    async def _look_up_preview(
        self, secret_hashes: Sequence[bytes], *, sandbox_id: str, port: int
    ) -> TicketCaller:
        async with without_transaction(self._sessions) as session:
            found = await TicketRepository(session).list_valid_for_port(
                secret_hashes, sandbox_id=sandbox_id, port=port
            )
            for keyed in found:
                with suppress(Unauthenticated):
                    caller = _ticket_caller_of(keyed.ticket, caller_of(keyed.key))
                    await KeyRepository(session).record_use(
                        keyed.key.id, at_most_every=_RECORD_USE_EVERY
                    )
                    return caller
        raise Unauthenticated

    async def _look_up_login(self, secret_hash: bytes) -> LoginCaller:
        async with without_transaction(self._sessions) as session:
            found = await LoginRepository(session).find_valid(secret_hash)
            if found is None:
                raise Unauthenticated("The login is invalid or has expired.")
            await KeyRepository(session).record_use(found.key.id, at_most_every=_RECORD_USE_EVERY)
        key = caller_of(found.key)
        return LoginCaller(
            tenant_id=key.tenant_id,
            key_id=key.key_id,
            scopes=key.scopes,
            max_priority=key.max_priority,
            rate_per_s=key.rate_per_s,
            secret_hash=secret_hash,
            login_id=LoginId(found.login.id),
        )


def caller_of(key: ApiKey) -> Caller:
    return Caller(
        tenant_id=TenantId(key.tenant_id),
        key_id=ApiKeyId(key.id),
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        max_priority=key.max_priority,
        rate_per_s=key.rate_per_s,
        secret_hash=key.hash,
    )


def _ticket_caller_of(ticket: Ticket, creator: Caller) -> TicketCaller:
    scope = TicketScope(ticket.scope)
    if not creator.may(scope.needed):
        raise Unauthenticated(
            "The API key that created the ticket no longer has the required scope."
        )
    return TicketCaller(
        tenant_id=creator.tenant_id,
        key_id=creator.key_id,
        scopes=scope.granted,
        rate_per_s=creator.rate_per_s,
        secret_hash=ticket.hash,
        scope=scope,
        sandbox_id=ticket.sandbox_id,
        port=ticket.port,
    )
