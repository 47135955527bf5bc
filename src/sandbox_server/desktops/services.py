from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.db.session import Sessions
from sandbox_server.desktops.configuration import DesktopConfiguration
from sandbox_server.desktops.control import DesktopControl
from sandbox_server.desktops.guest import DesktopGuest
from sandbox_server.desktops.recording_copies import (
    RecordingCopies,
    RecordingKeeper,
    RecordingLimits,
)
from sandbox_server.desktops.recordings import DesktopRecordings
from sandbox_server.desktops.service import Desktops
from sandbox_server.jobs.kinds import DESKTOP
from sandbox_server.jobs.worker import Handler
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.services.config import ServiceConfigWriter
from sandbox_server.vault import Vault


@dataclass(frozen=True, kw_only=True)
class DesktopServices:
    """The use cases of desktops, and the handler of their job."""

    guest: DesktopGuest
    control: DesktopControl
    configuration: DesktopConfiguration
    desktops: Desktops
    recordings: DesktopRecordings
    recording_keeper: RecordingKeeper
    grace: timedelta

    @property
    def handlers(self) -> dict[str, Handler]:
        return {DESKTOP: self.configuration.work}


def build_desktop_services(
    sessions: Sessions,
    vault: Vault,
    backends: Backends,
    access: SandboxAccess,
    service_config: ServiceConfigWriter,
    controller: SandboxController,
    *,
    grace: timedelta,
    limits: RecordingLimits,
) -> DesktopServices:
    guest, control = DesktopGuest(service_config), DesktopControl(sessions)
    copies = RecordingCopies(sessions, vault, guest, limits)
    configuration = DesktopConfiguration(sessions, backends, access, guest, control, copies)
    desktops = Desktops(sessions, controller, configuration, control, guest)
    return DesktopServices(
        guest=guest,
        control=control,
        configuration=configuration,
        desktops=desktops,
        recordings=DesktopRecordings(sessions, vault, controller, configuration, desktops, copies),
        recording_keeper=RecordingKeeper(access, guest, copies),
        grace=grace,
    )
