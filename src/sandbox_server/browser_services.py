"""The part of the composition root that builds what works on browser sessions."""

from dataclasses import dataclass

from sandbox_server.browserbase.projects import Projects
from sandbox_server.browsers.contents import BrowserContexts, BrowserExtensions
from sandbox_server.browsers.downloads import SessionDownloads
from sandbox_server.browsers.drivers import SessionDrivers
from sandbox_server.browsers.file_parts import BrowserFiles
from sandbox_server.browsers.keeping import SessionContents
from sandbox_server.browsers.policies import SessionPolicies, WebDriverClients
from sandbox_server.browsers.preparation import SessionPreparation
from sandbox_server.browsers.reconciler import SessionReconciler
from sandbox_server.browsers.records.captcha_solver import CaptchaService
from sandbox_server.browsers.records.connector import BrowserConnector
from sandbox_server.browsers.records.recorders import SessionRecorders
from sandbox_server.browsers.records.recordings import SessionRecordings
from sandbox_server.browsers.records.session_logs import SessionLogs
from sandbox_server.browsers.records.store import RecordKind, RecordStore
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.db.session import Sessions
from sandbox_server.files.file_access import FileAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.configured_computers import ConfiguredComputers
from sandbox_server.settings import Settings
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class BrowserServices:
    """Use cases of browser sessions, and the handler of their jobs."""

    sessions: BrowserSessions
    drivers: SessionDrivers
    policies: SessionPolicies
    webdriver_clients: WebDriverClients
    downloads: SessionDownloads
    contexts: BrowserContexts
    extensions: BrowserExtensions
    projects: Projects
    recorders: SessionRecorders
    logs: SessionLogs
    recordings: SessionRecordings
    reconciler: SessionReconciler


def build_browser_services(
    settings: Settings, sessions: Sessions, vault: Vault, controller: SandboxController
) -> BrowserServices:
    files, file_access = BrowserFiles(sessions, vault), FileAccess(controller)
    defaults = ConfiguredComputers(sessions, vault)
    browsers = BrowserSessions(sessions, controller, files, defaults)
    drivers = SessionDrivers(sessions)
    downloads = SessionDownloads(file_access, files)
    contents = SessionContents(sessions, SessionPreparation(file_access, files), downloads)
    store = RecordStore(sessions, vault, _limits(settings))
    recorders = SessionRecorders(
        sessions, store, BrowserConnector(controller), _captcha_solver(settings)
    )
    policies = SessionPolicies(browsers, drivers, recorders)
    return BrowserServices(
        sessions=browsers,
        drivers=drivers,
        policies=policies,
        webdriver_clients=WebDriverClients(policies, drivers),
        downloads=downloads,
        contexts=BrowserContexts(sessions),
        extensions=BrowserExtensions(sessions, files),
        projects=Projects(sessions),
        recorders=recorders,
        logs=SessionLogs(store),
        recordings=SessionRecordings(store),
        reconciler=SessionReconciler(sessions, contents),
    )


def _limits(settings: Settings) -> dict[RecordKind, int]:
    """Divide the bytes of a session's logs between its messages and its entries."""
    logs = settings.browser_log_mb * 2**20
    return {
        RecordKind.MESSAGES: logs - logs // 4,
        RecordKind.ENTRIES: logs // 4,
        RecordKind.FRAMES: settings.browser_recording_mb * 2**20,
    }


def _captcha_solver(settings: Settings) -> CaptchaService | None:
    if settings.captcha_url is None:
        return None
    key = settings.captcha_key
    return CaptchaService(settings.captcha_url, None if key is None else key.get_secret_value())
