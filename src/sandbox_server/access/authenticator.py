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
    """A bucket of tokens per key, in this process: a second's worth at once, then as they are refilled.

    Kept is only when a bucket will be full again, so an idle key costs nothing.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._full_at: dict[str, float] = {}

    def take(self, caller: Caller) -> None:
        """Take one token; refuse, and say when there will be one, if there is none."""
        if caller.rate_per_s is None:
            return
        now, token = self._clock(), 1 / caller.rate_per_s
        refilled_at = max(self._full_at.get(caller.key_id, now), now) + token
        missing = refilled_at - now - max(_BURST_SECONDS, token)
        if missing > _ROUNDING:
            raise RateLimited(per_second=caller.rate_per_s, retry_after=timedelta(seconds=missing))
        self._full_at[caller.key_id] = refilled_at


# Of each kind by itself, so that secrets which a stranger makes up delay no lookup of another kind.
_KEYS_AT_ONCE = 4
_OTHERS_AT_ONCE = 2
_NOTE_USE_EVERY = timedelta(minutes=1)


class Authenticator:
    """Tells who holds a key or a ticket or is signed in, and holds each to its key's rate.

    What was found valid is trusted for half a second and then looked up again: so every server knows of a revocation
    within that time, whether or not it hears a notification.
    """

    def __init__(self, sessions: Sessions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        keys, tickets, previews, logins = (
            asyncio.Semaphore(count)
            for count in (_KEYS_AT_ONCE, _OTHERS_AT_ONCE, _OTHERS_AT_ONCE, _OTHERS_AT_ONCE)
        )
        self._keys = CallerCache(self._look_up_key, at_once=keys, clock=clock)
        self._tickets = CallerCache(self._look_up_ticket, at_once=tickets, clock=clock)
        self._previews = CallerCache(self._look_up_ticket, at_once=previews, clock=clock)
        self._logins = CallerCache(self._look_up_login, at_once=logins, clock=clock)
        self._rate_limit = RateLimit(clock=clock)

    async def authenticate(self, secret: str | None) -> Caller:
        """Find the caller whose key it is; what does not look like a key is not looked up."""
        if secret is None or not is_secret(secret):
            raise Unauthenticated
        caller = await self._keys.find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    async def authenticate_ticket(self, secret: str) -> TicketCaller:
        """Find the caller whose ticket it is, which ends with its key, or when that may do less than the ticket."""
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
        """Find the caller who has a ticket for the port among these.

        `require_present` raises if the client has left; it is called when it is this caller's turn.
        """
        hashes = [hash_of(secret) for secret in secrets if is_ticket(secret)]
        if not hashes:
            raise Unauthenticated

        async def look_up() -> TicketCaller:
            require_present()
            return await self._look_up_preview(hashes, sandbox_id=sandbox_id, port=port)

        caller = await self._previews.find_any(
            hashes, look_up, fits=lambda one: (one.sandbox_id, one.port) == (sandbox_id, port)
        )
        self._rate_limit.take(caller)
        return caller

    async def authenticate_login(self, secret: str) -> LoginCaller:
        """Find the caller whose browser keeps this, which is signed in until its key ends."""
        if not is_login(secret):
            raise Unauthenticated
        caller = await self._logins.find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    async def recheck(self, caller: Caller) -> Caller:
        """Refuse who was let in a while ago and would not be any more, or tell what they may by now; costs none of their rate."""
        if isinstance(caller, TicketCaller):
            return await self._tickets.find(caller.secret_hash)
        if isinstance(caller, LoginCaller):
            return await self._logins.find(caller.secret_hash)
        return await self._keys.find(caller.secret_hash)

    def forget(self) -> None:
        """Look everybody up anew, after a key has changed."""
        self._keys.forget()
        self._tickets.forget()
        self._previews.forget()
        self._logins.forget()

    async def _look_up_key(self, secret_hash: bytes) -> Caller:
        async with without_transaction(self._sessions) as session:
            repository = KeyRepository(session)
            key = await repository.find_valid(secret_hash)
            if key is None:
                raise Unauthenticated
            await repository.note_use(key.id, at_most_every=_NOTE_USE_EVERY)
        return caller_of(key)

    async def _look_up_ticket(self, secret_hash: bytes) -> TicketCaller:
        async with without_transaction(self._sessions) as session:
            found = await TicketRepository(session).find_valid(secret_hash)
            if found is None:
                raise Unauthenticated("The ticket is not known here, or its time is up.")
            await KeyRepository(session).note_use(found.key.id, at_most_every=_NOTE_USE_EVERY)
        return _ticket_caller_of(found.ticket, caller_of(found.key))

    async def _look_up_preview(
        self, secret_hashes: Sequence[bytes], *, sandbox_id: str, port: int
    ) -> TicketCaller:
        async with without_transaction(self._sessions) as session:
            found = await TicketRepository(session).list_valid_for_port(
                secret_hashes, sandbox_id=sandbox_id, port=port
            )
            for one in found:
                with suppress(Unauthenticated):
                    caller = _ticket_caller_of(one.ticket, caller_of(one.key))
                    await KeyRepository(session).note_use(one.key.id, at_most_every=_NOTE_USE_EVERY)
                    return caller
        raise Unauthenticated

    async def _look_up_login(self, secret_hash: bytes) -> LoginCaller:
        async with without_transaction(self._sessions) as session:
            found = await LoginRepository(session).find_valid(secret_hash)
            if found is None:
                raise Unauthenticated("Nobody is signed in here any more.")
            await KeyRepository(session).note_use(found.key.id, at_most_every=_NOTE_USE_EVERY)
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


def _ticket_caller_of(ticket: Ticket, maker: Caller) -> TicketCaller:
    scope = TicketScope(ticket.scope)
    if not maker.may(scope.needed):
        raise Unauthenticated("The key that made the ticket may no longer do what it is for.")
    return TicketCaller(
        tenant_id=maker.tenant_id,
        key_id=maker.key_id,
        scopes=scope.given,
        rate_per_s=maker.rate_per_s,
        secret_hash=ticket.hash,
        sandbox_id=ticket.sandbox_id,
        port=ticket.port,
    )
