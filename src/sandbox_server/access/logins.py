from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import func

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.login_repository import LoginRepository, OwnedLogin
from sandbox_server.access.secrets import hash_of, new_login
from sandbox_server.db.models import Login
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller, LoginCaller, TicketCaller
from sandbox_server.domain.errors import LoginRefused, Unauthenticated
from sandbox_server.domain.ids import LoginId, new_id

LIFETIME = timedelta(hours=12)
MAX_PER_KEY = 100


@dataclass(frozen=True)
class NewLogin:
    """A new login with its secret, which only the browser stores."""

    owned: OwnedLogin
    secret: str = field(repr=False)


class Logins:
    """Browser sessions created with an API key, so that no page has to store the key."""

    def __init__(self, sessions: Sessions, authenticator: Authenticator) -> None:
        self._sessions = sessions
        self._authenticator = authenticator

    async def begin(self, caller: Caller) -> NewLogin:
        """Sign a browser in with its API key; beyond the limit per key, the oldest login ends."""
        if isinstance(caller, LoginCaller | TicketCaller):
            raise LoginRefused("Signing in requires an API key.")
        secret, login_id = new_login(), LoginId(new_id())
        async with self._sessions.begin() as session:
            logins = LoginRepository(session)
            await logins.add(
                Login(
                    id=login_id,
                    hash=hash_of(secret),
                    key_id=caller.key_id,
                    expires_at=func.clock_timestamp() + LIFETIME,
                )
            )
            await logins.remove_oldest(caller.key_id, keep=MAX_PER_KEY)
            owned = await logins.find_valid(hash_of(secret))
        if owned is None:  # the key was revoked just now
            raise Unauthenticated
        return NewLogin(owned, secret)

    async def get(self, caller: Caller) -> OwnedLogin:
        """Get the login of the caller's browser."""
        login = _require_login(caller)
        async with without_transaction(self._sessions) as session:
            owned = await LoginRepository(session).find_valid(login.secret_hash)
        if owned is None:
            raise Unauthenticated
        return owned

    async def end(self, caller: Caller) -> None:
        """Sign the caller's browser out; takes effect here at once, on other servers within half a second."""
        login = _require_login(caller)
        async with self._sessions.begin() as session:
            await LoginRepository(session).remove(login.login_id)
        self._authenticator.clear_cache()


def _require_login(caller: Caller) -> LoginCaller:
    if not isinstance(caller, LoginCaller):
        raise LoginRefused("The request is authenticated by an API key, not by a browser session.")
    return caller
