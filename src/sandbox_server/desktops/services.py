from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.db.session import Sessions
from sandbox_server.desktops.configuration import DesktopConfiguration
from sandbox_server.desktops.control import DesktopControl
from sandbox_server.desktops.guest import DesktopGuest
from sandbox_server.desktops.service import Desktops
from sandbox_server.jobs.kinds import DESKTOP
from sandbox_server.jobs.worker import Handler
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter


@dataclass(frozen=True, kw_only=True)
class DesktopServices:
    """The use cases of desktops, and the handler of their job."""

    guest: DesktopGuest
    control: DesktopControl
    configuration: DesktopConfiguration
    desktops: Desktops
    grace: timedelta

    @property
    def handlers(self) -> dict[str, Handler]:
        return {DESKTOP: self.configuration.work}


def build_desktop_services(
    sessions: Sessions,
    backends: Backends,
    access: SandboxAccess,
    service_config: ServiceConfigWriter,
    controller: SandboxController,
    *,
    grace: timedelta,
) -> DesktopServices:
    guest, control = DesktopGuest(service_config), DesktopControl(sessions)
    configuration = DesktopConfiguration(sessions, backends, access, guest, control)
    return DesktopServices(
        guest=guest,
        control=control,
        configuration=configuration,
        desktops=Desktops(sessions, controller, configuration, control, guest),
        grace=grace,
    )
