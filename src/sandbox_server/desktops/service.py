from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPMethod
from typing import Any

from sandbox_client.models import DesktopAction, DesktopActionName, DesktopActionResult
from sandbox_server.db.session import Sessions
from sandbox_server.desktops.configuration import DesktopConfiguration, Wanted
from sandbox_server.desktops.control import DesktopControl, Person
from sandbox_server.desktops.guest import DesktopGuest, GuestAnswer
from sandbox_server.desktops.repository import DesktopRepository
from sandbox_server.desktops.views import GuestState, read_guest
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.desktops import (
    DesktopActed,
    DesktopChanged,
    DesktopHolder,
    DesktopPatch,
)
from sandbox_server.domain.errors import DesktopControlled, InvalidTransition
from sandbox_server.domain.events import Cause
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.log.events import EventRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import WAIT, SandboxController

# These change nothing, so the timeline does not list them, and the control of a person does not matter.
_OBSERVING = frozenset(
    {
        DesktopActionName.SCREENSHOT,
        DesktopActionName.CURSOR_POSITION,
        DesktopActionName.WAIT,
        DesktopActionName.ZOOM,
    }
)
_KEYS = frozenset({DesktopActionName.KEY, DesktopActionName.HOLD_KEY})


@dataclass(frozen=True, kw_only=True)
class DesktopState:
    """What a desktop should be like, and what it is like; None: its sandbox does not run."""

    wanted: Wanted
    live: GuestState | None


class Desktops:
    """Use cases of desktops."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        configuration: DesktopConfiguration,
        control: DesktopControl,
        guest: DesktopGuest,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._configuration = configuration
        self._control = control
        self._guest = guest

    async def get(self, caller: Caller, sandbox_id: str) -> DesktopState:
        """Get the state; a paused sandbox stays paused."""
        row = await self._controller.get(caller, sandbox_id)
        if row.state is not State.RUNNING or row.target is not Target.RUNNING:
            return DesktopState(wanted=await self._configuration.read(sandbox_id), live=None)
        used = self._controller.reach_into(row)
        wanted = await self._configuration.ensure(used)
        return DesktopState(wanted=wanted, live=await self._read_state(used))

    async def update(self, caller: Caller, sandbox_id: str, patch: DesktopPatch) -> DesktopState:
        """Change settings: at once, or when a paused sandbox resumes."""
        async with self._sessions.begin() as session:
            row, _ = await SandboxRepository(session).lock(sandbox_id, tenant_id=caller.tenant_id)
            if row.state in ENDED or row.target is Target.GONE:
                raise InvalidTransition(row.state, State.RUNNING)
            repository = DesktopRepository(session)
            await repository.lock(sandbox_id)
            settings = (await repository.settings(sandbox_id)).changed(patch)
            await repository.set_settings(sandbox_id, settings)
            changed = DesktopChanged(
                sandbox_id=sandbox_id,
                cause=Cause.REQUEST,
                actor=caller.actor,
                reason="Changed by API request.",
                **settings.document(),
            )
            await EventRepository(session).append(row.tenant_id, changed)
        return await self.get(caller, sandbox_id)

    async def act(
        self, caller: Caller, sandbox_id: str, action: DesktopAction, *, wait: timedelta = WAIT
    ) -> DesktopActionResult:
        """Carry out an action of an agent; refused while a person has control."""
        used = await self._controller.use(caller, sandbox_id, wait=wait)
        wanted = await self._configuration.ensure(used)
        is_input = action.action not in _OBSERVING
        if is_input and wanted.is_held and wanted.desktop is not None:
            raise DesktopControlled(by=wanted.desktop.holder_name)
        lasts = timedelta(seconds=action.duration_s or 0)
        document = action.model_dump(mode="json", exclude_none=True)
        with self._controller.activity.hold(used.row):
            answer = await self._guest.call(
                used, HTTPMethod.POST, "/actions", document, lasts=lasts
            )
        if is_input:
            await self._log(caller, used, action)
        return read_guest(DesktopActionResult, answer)

    async def screenshot(
        self,
        caller: Caller,
        sandbox_id: str,
        *,
        media: str,
        quality: int,
        wait: timedelta = WAIT,
    ) -> GuestAnswer:
        """Take a screenshot, also while a person has control."""
        used = await self._controller.use(caller, sandbox_id, wait=wait)
        await self._configuration.ensure(used)
        path = f"/screenshot?format={media}&quality={quality}"
        return await self._guest.call(used, HTTPMethod.GET, path)

    async def set_holder(
        self,
        caller: Caller,
        sandbox_id: str,
        holder: DesktopHolder,
        person: Person,
        *,
        lease: timedelta,
        wait: timedelta = WAIT,
    ) -> DesktopState:
        """Give control to a person, or back to the agent."""
        if holder is DesktopHolder.AGENT:
            row = await self._controller.get(caller, sandbox_id)
            await self._control.give_back(row, person, reason="The person returned the control.")
            return await self.get(caller, sandbox_id)
        used = await self._controller.use(caller, sandbox_id, wait=wait)
        await self._read_state(used)  # without a desktop there is nothing to control
        await self._control.take(used.row, person, lease=lease)
        return await self.get(caller, sandbox_id)

    async def _read_state(self, used: UsableSandbox) -> GuestState:
        return read_guest(GuestState, await self._guest.call(used, HTTPMethod.GET, "/state"))

    async def _log(self, caller: Caller, used: UsableSandbox, action: DesktopAction) -> None:
        acted = DesktopActed(
            sandbox_id=used.row.id,
            cause=Cause.REQUEST,
            actor=caller.actor,
            reason="Requested by an agent.",
            action=action.action,
            coordinate=action.coordinate,
            **_told(action),
        )
        async with self._sessions.begin() as session:
            await EventRepository(session).append(used.row.tenant_id, acted)


def _told(action: DesktopAction) -> Mapping[str, Any]:
    """Tell keys by name; typed text may be a password, so only its length is told."""
    if action.text is None:
        return {}
    return {"key": action.text} if action.action in _KEYS else {"characters": len(action.text)}
