import json
import re

from sandbox_server.browsers.cdp.policy import CdpPolicy, Direction, SandboxPolicy
from sandbox_server.browsers.drivers import SessionDrivers
from sandbox_server.browsers.records.recorders import SessionRecorders
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.db.models import BrowserSession, Sandbox
from sandbox_server.domain.computers.browsers import (
    BROWSER_SESSION_PREFIX,
    SESSION_ENDED,
    downloads_directory,
)
from sandbox_server.domain.errors import BrowserSessionEnded
from sandbox_server.domain.errors.storable_text import storable

_DOWNLOAD = b"downloadWillBegin"
_DOWNLOAD_EVENTS = frozenset({"Browser.downloadWillBegin", "Page.downloadWillBegin"})
_GUID = re.compile(r"[0-9a-fA-F-]{36}")
_SESSION = re.compile(r"/webdriver/session/[^/]+/?")


class SessionPolicies:
    """Finds the policy of a browser: that of its session, if it has one."""

    def __init__(
        self, browsers: BrowserSessions, drivers: SessionDrivers, recorders: SessionRecorders
    ) -> None:
        self._browsers = browsers
        self._drivers = drivers
        self._recorders = recorders

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
        return SessionPolicy(session, self._drivers, self._recorders)


class WebDriverClients:
    """Counts WebDriver clients among the drivers of sessions."""

    def __init__(self, policies: SessionPolicies, drivers: SessionDrivers) -> None:
        self._policies = policies
        self._drivers = drivers

    async def note(self, row: Sandbox, method: str, path: str) -> None:
        """Note a request below `/webdriver`; raises if the session has ended."""
        policy = await self._policies.find(row)
        if not isinstance(policy, SessionPolicy):
            return
        if method == "DELETE" and _SESSION.fullmatch(path):
            self._drivers.quit(policy.session_id)
        else:
            policy.record_pages()
            self._drivers.touch(policy.session_id)


class SessionPolicy:
    """The policy of one connection to the browser of a session."""

    def __init__(
        self, row: BrowserSession, drivers: SessionDrivers, recorders: SessionRecorders
    ) -> None:
        self.session_id = row.id
        self._row = row
        self._drivers = drivers
        self._recorders = recorders
        self._records_messages = recorders.records_messages(row)
        self._driver_id: str | None = None
        self.keep_alive = row.keep_alive
        self.downloads = downloads_directory(row.id)
        self.records = True

    def on_driver_connected(self) -> None:
        self._driver_id = self._drivers.connect(self.session_id)
        self.record_pages()

    def record_pages(self) -> None:
        """Record the pages of the session until it ends."""
        self._recorders.begin(self._row)

    def on_driver_left(self) -> None:
        if self._driver_id is not None:
            self._drivers.leave(self._driver_id)

    def on_close_requested(self) -> None:
        self._drivers.close(self.session_id)

    def record(self, direction: Direction, message: bytes, page_id: str | None) -> None:
        """Note messages of drivers, and the names of downloads, whose files may be named by their GUID."""
        if self._records_messages and self._driver_id is not None:
            self._recorders.note_message(
                self.session_id,
                message,
                connection=self._driver_id,
                direction=direction,
                target_id=page_id,
            )
        if direction is Direction.BROWSER and _DOWNLOAD in message:
            named = find_download(message)
            if named is not None:
                self._drivers.name_download(self.session_id, *named)


def find_download(message: bytes) -> tuple[str, str] | None:
    """Find the GUID and the name of a download in the event of its start."""
    try:
        event = json.loads(message)
    except (ValueError, RecursionError):
        return None
    params = event.get("params") if isinstance(event, dict) else None
    if not isinstance(params, dict) or event.get("method") not in _DOWNLOAD_EVENTS:
        return None
    guid, name = params.get("guid"), params.get("suggestedFilename")
    if not isinstance(guid, str) or not isinstance(name, str) or not _GUID.fullmatch(guid):
        return None
    return guid, storable(name)
