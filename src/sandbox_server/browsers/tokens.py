"""Tokens in the URLs of a sandbox's browser: `sbb_…`, valid until an instant and only while their API key is.

CDP and WebDriver clients, and DevTools, can neither send headers nor keep a query parameter in all of their requests; the
token is therefore a part of the path. It is not stored: it is an encrypted claim, so that each answer about a sandbox can
contain new ones.
"""

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.domain.access import Caller, Scope, TicketCaller
from sandbox_server.domain.errors import TicketRefused, Unauthenticated
from sandbox_server.vault import DecryptionFailed, Vault

BROWSER_PATH = "/browser/"

_PREFIX = "sbb_"
_TOKEN = re.compile(r"sbb_[A-Za-z0-9_-]{40,400}")
_CONTEXT = "browser token"
_INVALID = "The link to the browser is invalid or has expired."


class BrowserUse(StrEnum):
    """The purpose of a token. Drivers keep a session of a browser alive, viewers do not, and watchers change nothing.

    A token for recordings gives no access to a browser.
    """

    DRIVE = "drive"
    VIEW = "view"
    WATCH = "watch"
    RECORDINGS = "recordings"


@dataclass(frozen=True, kw_only=True)
class BrowserCaller(Caller):
    """The holder of a token, limited to the browser of one sandbox."""

    sandbox_id: str
    use: BrowserUse
    expires_at: datetime


class BrowserTokens:
    """Issues and checks tokens of browsers."""

    def __init__(self, vault: Vault, authenticator: Authenticator) -> None:
        self._vault = vault
        self._authenticator = authenticator

    def issue(
        self, caller: Caller, sandbox_id: str, use: BrowserUse, *, expires_at: datetime
    ) -> str:
        """Create a token with the caller's key; it ends with the key."""
        if isinstance(caller, TicketCaller):
            raise TicketRefused("A ticket cannot be used to create links to a browser.")
        caller.require(Scope.SANDBOXES)
        claim = f"{int(expires_at.timestamp())}/{use}/{caller.key_id}/{sandbox_id}"
        sealed = self._vault.encrypt(claim.encode(), context=_CONTEXT)
        return _PREFIX + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()

    async def find(self, token: str) -> BrowserCaller:
        """Find the token's caller; counts against the rate limit of its key."""
        instant, use, key_id, sandbox_id = self._open(token).split("/")
        expires_at = datetime.fromtimestamp(int(instant), UTC)
        if expires_at <= _now():
            raise Unauthenticated(_INVALID)
        key = await self._authenticator.authenticate_key_id(key_id)
        if not key.may(Scope.SANDBOXES):
            raise Unauthenticated(_INVALID)
        return BrowserCaller(
            tenant_id=key.tenant_id,
            key_id=key.key_id,
            scopes=frozenset(),
            rate_per_s=key.rate_per_s,
            secret_hash=key.secret_hash,
            sandbox_id=sandbox_id,
            use=BrowserUse(use),
            expires_at=expires_at,
        )

    async def find_holder(self, path: str) -> BrowserCaller | None:
        """Find the caller whose token is in a path below `/browser/`."""
        token = token_of(path)
        return None if token is None else await self.find(token)

    def _open(self, token: str) -> str:
        if _TOKEN.fullmatch(token) is None:
            raise Unauthenticated(_INVALID)
        text = token.removeprefix(_PREFIX)
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return self._vault.decrypt(sealed, context=_CONTEXT).decode()
        except (DecryptionFailed, binascii.Error, ValueError):
            raise Unauthenticated(_INVALID) from None


def time_left(expires_at: datetime) -> timedelta:
    return expires_at - _now()


def _now() -> datetime:
    # A token has no row: its expiry is by the clocks of servers, whose skew is small against the lifetime of links.
    return datetime.now(UTC)  # noqa: TID251 - for the reason above


def in_a_while(ttl: timedelta) -> datetime:
    """Return the expiry of a token that is issued now."""
    return _now() + ttl


def token_of(path: str) -> str | None:
    """Return the token in a path below `/browser/`."""
    return (
        path.removeprefix(BROWSER_PATH).partition("/")[0] if path.startswith(BROWSER_PATH) else None
    )
