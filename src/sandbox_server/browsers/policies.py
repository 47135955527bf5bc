from sandbox_server.browsers.cdp.policy import CdpPolicy, Direction, SandboxPolicy
from sandbox_server.browsers.drivers import SessionDrivers
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.domain.computers.browsers import (
    BROWSER_SESSION_PREFIX,
    SESSION_ENDED,
    downloads_directory,
)
from sandbox_server.domain.errors import BrowserSessionEnded


class SessionPolicies:
    """Finds the policy of a browser: that of its session, if it has one."""

    def __init__(self, browsers: BrowserSessions, drivers: SessionDrivers) -> None:
        self._browsers = browsers
        self._drivers = drivers

    async def find(self, row: Sandbox) -> CdpPolicy:
        """Find the policy for one connection; raises if the session has ended."""
        if row.session_id is None or not row.session_id.startswith(BROWSER_SESSION_PREFIX):
            return SandboxPolicy()
        session_id = row.session_id.removeprefix(BROWSER_SESSION_PREFIX)
        session = await self._browsers.find_of(row, session_id)
        if session is None:
            return SandboxPolicy()
        if session.state in SESSION_ENDED:
            raise BrowserSessionEnded(session.id, session.state_reason)
        return SessionPolicy(session, self._drivers)


class SessionPolicy:
    """The policy of one connection to the browser of a session."""

    def __init__(self, row: BrowserSession, drivers: SessionDrivers) -> None:
        self._session_id = row.id
        self._drivers = drivers
        self._driver_id: str | None = None
        self.keep_alive = row.keep_alive
        self.downloads = downloads_directory(row.id)
        self.records = False

    def on_driver_connected(self) -> None:
        self._driver_id = self._drivers.connect(self._session_id)

    def on_driver_left(self) -> None:
        if self._driver_id is not None:
            self._drivers.leave(self._driver_id)

    def on_close_requested(self) -> None:
        self._drivers.close(self._session_id)

    def record(self, direction: Direction, message: bytes, page_id: str | None) -> None:
        """Record nothing."""
