import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.access.rate_limit import RateLimit
from sandbox_server.access.secrets import hash_of, is_secret
from sandbox_server.db.keys import KeyRepository
from sandbox_server.db.models import ApiKey
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.errors import Unauthenticated
from sandbox_server.domain.ids import ApiKeyId, TenantId

_TRUSTED_SECONDS = 0.5
_LOOKUPS = 4  # at a time, so that a flood of wrong keys leaves the database's connections to others
_NOTE_USE_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class _Known:
    caller: Caller
    until: float


class Authenticator:
    """Tells who holds a key, and holds each to its rate.

    A key that was found valid is trusted for half a second and then looked up again: so every server knows of a
    revocation within that time, whether or not it hears a notification.
    """

    def __init__(self, sessions: Sessions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._sessions = sessions
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._lookups = asyncio.Semaphore(_LOOKUPS)
        self._rate_limit = RateLimit(clock=clock)

    async def authenticate(self, secret: str | None) -> Caller:
        """Find the caller whose key it is; what does not look like a key is not looked up."""
        if secret is None or not is_secret(secret):
            raise Unauthenticated
        caller = await self._find(hash_of(secret))
        self._rate_limit.take(caller)
        return caller

    def forget(self) -> None:
        """Look every key up anew, after one of them has changed."""
        self._known = {}  # a lookup that is under way puts what it found into the old one

    async def _find(self, secret_hash: bytes) -> Caller:
        if (trusted := self._trusted(secret_hash)) is not None:
            return trusted
        async with self._lookups:
            # Of many requests with the same key, the first has looked it up by now.
            if (trusted := self._trusted(secret_hash)) is not None:
                return trusted
            until, remembered = self._clock() + _TRUSTED_SECONDS, self._known
            caller = await self._look_up(secret_hash)
            remembered[secret_hash] = _Known(caller, until=until)
            return caller

    def _trusted(self, secret_hash: bytes) -> Caller | None:
        known = self._known.get(secret_hash)
        if known is None:
            return None
        if self._clock() < known.until:
            return known.caller
        del self._known[secret_hash]
        return None

    async def _look_up(self, secret_hash: bytes) -> Caller:
        async with without_transaction(self._sessions) as session:
            repository = KeyRepository(session)
            key = await repository.find_valid(secret_hash)
            if key is None:
                raise Unauthenticated
            await repository.note_use(key.id, at_most_every=_NOTE_USE_EVERY)
        return caller_of(key)


def caller_of(key: ApiKey) -> Caller:
    return Caller(
        tenant_id=TenantId(key.tenant_id),
        key_id=ApiKeyId(key.id),
        scopes=frozenset(Scope(scope) for scope in key.scopes),
        max_priority=key.max_priority,
        rate_per_s=key.rate_per_s,
    )
