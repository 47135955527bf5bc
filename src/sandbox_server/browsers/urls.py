from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.browsers.tokens import BROWSER_PATH, BrowserTokens, BrowserUse, in_a_while
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.domain.access import Caller, Scope, TicketCaller
from sandbox_server.domain.capabilities import BROWSER
from sandbox_server.domain.computers.browsers import SESSION_ENDED
from sandbox_server.domain.service_ports import CDP_PORT
from sandbox_server.proxy.targets import PublicAddress

_IN_VIEWS = timedelta(hours=1)
# A queued session is connected to later than its timeout says. The end of the session refuses the URLs in any case.
_LONGEST_QUEUE = timedelta(days=1)


@dataclass(frozen=True)
class BrowserUrls:
    """The URLs of a sandbox's browser; whoever has one can use it until it expires."""

    cdp_url: str
    webdriver_url: str
    live_url: str
    expires_at: datetime


class BrowserLinks:
    """Builds the URLs of browsers, with tokens in their paths."""

    def __init__(self, public_address: PublicAddress, tokens: BrowserTokens) -> None:
        self._public = public_address
        self._tokens = tokens

    def links(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        expires_at: datetime,
        live_use: BrowserUse = BrowserUse.VIEW,
    ) -> BrowserUrls:
        """Build all URLs of a browser."""
        drive = self.base(caller, sandbox_id, BrowserUse.DRIVE, expires_at=expires_at)
        return BrowserUrls(
            cdp_url=drive.replace("http", "ws", 1),
            webdriver_url=f"{drive}/webdriver",
            live_url=self.live_url(caller, sandbox_id, expires_at=expires_at, use=live_use),
            expires_at=expires_at,
        )

    def view(self, row: Sandbox, caller: Caller) -> BrowserUrls | None:
        """Build the URLs that a description of the sandbox contains, if its template has a browser."""
        if BROWSER not in row.capabilities or not _may_use(caller):
            return None
        return self.links(caller, row.id, expires_at=in_a_while(_IN_VIEWS))

    def of_session(self, row: BrowserSession, caller: Caller) -> BrowserUrls | None:
        """Build the URLs of a session's browser, until the session has ended."""
        if row.state in SESSION_ENDED or not _may_use(caller):
            return None
        return self.links(
            caller, row.sandbox_id, expires_at=in_a_while(row.timeout + _LONGEST_QUEUE)
        )

    def live_url(
        self,
        caller: Caller,
        sandbox_id: str,
        target: str | None = None,
        *,
        expires_at: datetime,
        use: BrowserUse = BrowserUse.VIEW,
    ) -> str:
        """Build the URL of the live view, or of DevTools for a target; it opens in a browser."""
        token = self._tokens.issue(caller, sandbox_id, use, expires_at=expires_at)
        base = f"{self._public.url(sandbox_id, CDP_PORT)}{BROWSER_PATH}{token}"
        return f"{base}/live" if target is None else front_end_url(base, target)

    def base(
        self, caller: Caller, sandbox_id: str, use: BrowserUse, *, expires_at: datetime
    ) -> str:
        """Build the URL below which programs reach the browser: a path of the API."""
        token = self._tokens.issue(caller, sandbox_id, use, expires_at=expires_at)
        return f"{self._public.api_url}{BROWSER_PATH}{token}"


def _may_use(caller: Caller) -> bool:
    return caller.may(Scope.SANDBOXES) and not isinstance(caller, TicketCaller)


def front_end_url(base: str, target: str) -> str:
    """Build the URL of DevTools for a target of the browser that is reached below `base`."""
    scheme, _, rest = base.partition("://")
    parameter = "wss" if scheme == "https" else "ws"
    return f"{base}/devtools/inspector.html?{parameter}={rest}/devtools/page/{target}"
