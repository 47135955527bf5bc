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
from sandbox_server.browsers.service import BrowserSessions
from sandbox_server.db.session import Sessions
from sandbox_server.files.file_access import FileAccess
from sandbox_server.sandboxes.service import SandboxController
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
    reconciler: SessionReconciler


def build_browser_services(
    sessions: Sessions, vault: Vault, controller: SandboxController
) -> BrowserServices:
    files, file_access = BrowserFiles(sessions, vault), FileAccess(controller)
    browsers, drivers = BrowserSessions(sessions, controller, files), SessionDrivers(sessions)
    downloads = SessionDownloads(file_access, files)
    contents = SessionContents(sessions, SessionPreparation(file_access, files), downloads)
    policies = SessionPolicies(browsers, drivers)
    return BrowserServices(
        sessions=browsers,
        drivers=drivers,
        policies=policies,
        webdriver_clients=WebDriverClients(policies, drivers),
        downloads=downloads,
        contexts=BrowserContexts(sessions),
        extensions=BrowserExtensions(sessions, files),
        projects=Projects(sessions),
        reconciler=SessionReconciler(sessions, contents),
    )
