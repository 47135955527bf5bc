"""One command, recorded by this process from its start or from where another left it.

begin ──► record ──────────► ended
│  ▲
broke off  ▼  │ connected, with a gap
find again ──────► ended     its sandbox has, its time is up, or it is not there any more
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from datetime import datetime, timedelta

from sandbox_server.commands.command_log import Batch, CommandLog
from sandbox_server.commands.last_line import find_last_line
from sandbox_server.commands.recording_context import Means
from sandbox_server.commands.recording_repository import Grown
from sandbox_server.commands.throttle import Pace
from sandbox_server.db.models import Command, Sandbox
from sandbox_server.db.session import OUTAGES
from sandbox_server.domain.agents import exit_code_of
from sandbox_server.domain.commands import COMMAND_LIVING, CommandKind, CommandState
from sandbox_server.domain.errors import BackendError, BackendUnavailable
from sandbox_server.log.records import RecordType
from sandbox_server.providers.e2b.processes import Events, Processes
from sandbox_server.providers.protocol.errors import ProcessGone
from sandbox_server.providers.protocol.processes import (
    Ended,
    GroupSignal,
    NewProcess,
    Output,
    OutputStream,
    ProcessSignal,
    Started,
    TimeIsUp,
)
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

log = logging.getLogger(__name__)

HANDED_OVER = "Another server went on recording it."

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_LASTED_S = 5.0
_LARGEST_PID = 2**31 - 1
# A start whose answer was lost may still be on its way.
_LOOKS_FOR_NEW = 3
_BETWEEN_LOOKS_S = 1.0
_SANDBOX_ENDED = "Its sandbox ended."
_UNSEEN = "It is not in its sandbox any more, and nobody saw how it ended."
_NEVER_SEEN = "Its start was not confirmed, and it is not in its sandbox."


class Recording:
    """Records one command, as long as this process has its lease."""

    def __init__(
        self, row: Command, log_: CommandLog, means: Means, *, left: timedelta | None
    ) -> None:
        self.row = row
        self.log = log_
        self.begun = asyncio.Event()
        """It is stored that the command runs, or has ended."""
        self.over = asyncio.Event()
        """It is stored how the command ended; or others record it now."""
        self.connected = asyncio.Event()
        """What it writes is received; or it has ended."""
        self._means = means
        self._loop = asyncio.get_running_loop()
        self._expires_at = None if left is None else self._loop.time() + left.total_seconds()
        self._state = row.state
        self._forget: Callable[[], object] = lambda: None
        self._pace = Pace()
        self._has_missed = False  # what it wrote, and nothing was heard of it since
        if row.state is not CommandState.STARTING:
            self.begun.set()

    def forget(self) -> None:
        """Stop recording: others do, or there is nothing to record any more."""
        self._forget()
        self.connected.set()
        self.begun.set()
        self.over.set()

    def settle(self, batch: Batch, grown: Grown) -> None:
        """Have the row say what is stored."""
        for name, value in (*batch.changes.items(), *batch.sizes.items()):
            if name != "started":
                setattr(self.row, name, value)
        self.row.last_seq = grown.last_seq
        self.row.started_at, self.row.expires_at = grown.started_at, grown.expires_at
        self.row.ended_at = grown.ended_at
        if self.row.state is not CommandState.STARTING:
            self.begun.set()
        if self.row.ended_at is not None:
            self.over.set()

    async def begin(self, used: UsableSandbox, process: NewProcess) -> None:
        """Start the command and record it until it has ended."""
        task = asyncio.current_task()
        assert task is not None
        self._forget = task.cancel
        with self._awake(used.row):
            why = await self._start(used, process)
        if why is not None:
            await self._find_again_until_ended(why)

    async def go_on(self) -> None:
        """Record a command that another has recorded until now."""
        task = asyncio.current_task()
        assert task is not None
        self._forget = task.cancel
        await self._find_again_until_ended(HANDED_OVER)

    async def _start(self, used: UsableSandbox, process: NewProcess) -> str | None:
        processes = used.backend.processes(used.access)
        timeout = self.row.timeout
        if timeout is not None:
            self._expires_at = self._loop.time() + timeout.total_seconds()
        try:
            return await self._record(used, processes, processes.start(process, timeout=timeout))
        except BackendUnavailable as error:
            return error.reason
        except BackendError as error:
            if self._state is not CommandState.STARTING:
                return error.reason
            self._end(CommandState.FAILED, error.reason)
            return None

    async def _find_again_until_ended(self, why: str) -> None:
        reason: str | None = why
        pause = _FIRST_PAUSE_S
        while reason is not None:
            since = self._loop.time()
            try:
                reason = await self._find_again(reason)
            except (BackendError, *OUTAGES) as error:
                log.info("command not found again command_id=%s error=%r", self.row.id, error)
            lasted = self._loop.time() - since > _LASTED_S
            pause = _FIRST_PAUSE_S if lasted else min(pause * 2, _LONGEST_PAUSE_S)
            if reason is not None:
                await asyncio.sleep(pause)

    async def _find_again(self, why: str) -> str | None:
        """Follow the command as soon as its sandbox runs; gives why that broke off, if it did not end."""
        used = await self._means.wait_until_running(self.row.sandbox_id)
        if used is None:
            self._end(CommandState.KILLED, _SANDBOX_ENDED)
            return None
        self._has_missed = True
        processes = used.backend.processes(used.access)
        left = self._left()
        if left is not None and left <= timedelta():
            if not await self._end_as_it_said(used):
                await self._kill(processes)
            return None
        with self._awake(used.row):
            try:
                events = processes.connect(self.row.id, timeout=left)
                return await self._record(used, processes, events, after=why)
            except ProcessGone:
                return await self._look_for(used, processes, why)

    async def _look_for(self, used: UsableSandbox, processes: Processes, why: str) -> str | None:
        is_new = self._state is CommandState.STARTING
        for _ in range(_LOOKS_FOR_NEW if is_new else 1):
            if any(one.tag == self.row.id for one in await processes.list()):
                return why
            await asyncio.sleep(_BETWEEN_LOOKS_S if is_new else 0)
        if not await self._end_as_it_said(used):
            self._end(CommandState.LOST, _NEVER_SEEN if is_new else _UNSEEN)
        return None

    async def _record(
        self,
        used: UsableSandbox,
        processes: Processes,
        events: Events,
        *,
        after: str | None = None,
    ) -> str | None:
        """Record what happens until the command ends; gives why it was lost sight of before that."""
        try:
            async with aclosing(events):
                async for event in events:
                    match event:
                        case Started():
                            self.connected.set()
                            self._note_start(event, after)
                            after = None
                        case Output():
                            await self._receive(event, used.row)
                        case Ended():
                            await self._hear_last_line(used)
                            self._note_end(event)
                            return None
        except TimeIsUp:
            await self._kill(processes)
            return None
        except ProcessGone:
            raise
        except BackendError as error:
            if self._state is CommandState.STARTING:
                raise
            return error.reason
        finally:
            if self._state in COMMAND_LIVING:
                self.connected.clear()
        return "Its output broke off."

    def _note_start(self, started: Started, after: str | None) -> None:
        if self._state is CommandState.STARTING:
            self._state = CommandState.RUNNING
            pid = started.pid if started.pid <= _LARGEST_PID else None
            self.log.note(
                RecordType.STARTED, {"pid": pid}, state=self._state, pid=pid, started=True
            )
        if after is not None:
            self.log.note(RecordType.GAP, {"stream": None, "size": None, "reason": after})
        if self._is_waited_for:
            self._means.recorder.grow_soon(self)
        else:
            self._means.recorder.grow(self)

    async def _receive(self, output: Output, sandbox: Sandbox) -> None:
        is_stderr = output.stream is OutputStream.STDERR
        self._has_missed = self._has_missed and is_stderr
        self.log.receive(RecordType.STDERR if is_stderr else RecordType.STDOUT, output.content)
        self._means.recorder.grow(self)
        if self.row.kind is not CommandKind.SERVICE:
            self._means.awake.note(sandbox)
        await self._means.recorder.room(self)
        await self._pace.keep()

    async def _hear_last_line(self, used: UsableSandbox) -> bytes:
        """Record what it said last, where nobody was there to hear it."""
        line = await find_last_line(used, self.row) if self._has_missed else b""
        if line:
            self.log.receive(RecordType.STDOUT, line)
        return line

    async def _end_as_it_said(self, used: UsableSandbox) -> bool:
        exit_code = exit_code_of(await self._hear_last_line(used))
        if exit_code is None:
            return False
        self._end(CommandState.EXITED, None, exit_code=exit_code)
        return True

    def _note_end(self, ended: Ended) -> None:
        left = self._left()
        if ended.exit_code is not None:
            self._end(CommandState.EXITED, None, exit_code=ended.exit_code)
        elif left is not None and left <= timedelta():
            self._time_out()
        else:
            self._end(CommandState.KILLED, ended.words or "It was killed.")

    async def _kill(self, processes: Processes) -> None:
        try:
            with suppress(ProcessGone):  # the sandbox has killed it, and left what it started
                await processes.send_signal(self.row.id, ProcessSignal.KILL)
            if self.row.pid is not None:
                await processes.signal_group(self.row.pid, GroupSignal.KILL)
        except BackendError as error:
            log.info("command not killed command_id=%s error=%r", self.row.id, error)
        self._time_out()

    def _time_out(self) -> None:
        timeout = self.row.timeout or timedelta()
        self._end(CommandState.TIMED_OUT, f"It was killed after {timeout.total_seconds():g} s.")

    def _end(
        self, state: CommandState, reason: str | None, *, exit_code: int | None = None
    ) -> None:
        self._state = state
        self.connected.set()
        told = {"state": state.value, "exit_code": exit_code, "reason": reason}
        changes = {"state": state, "state_reason": reason, "exit_code": exit_code}
        self.log.note(RecordType.EXIT, told, **changes)
        self._means.recorder.grow(self, at_once=True)

    def _left(self) -> timedelta | None:
        if self._expires_at is None:
            return None
        return timedelta(seconds=self._expires_at - self._loop.time())

    def _awake(self, sandbox: Sandbox) -> AbstractContextManager[None]:
        """Keep the sandbox awake while somebody waits for the command's end."""
        return self._means.awake.hold(sandbox) if self._is_waited_for else nullcontext()

    @property
    def _is_waited_for(self) -> bool:
        waited_for = (CommandKind.COMMAND, CommandKind.AGENT)
        return self.row.kind in waited_for and not self.row.background


def time_left(row: Command, now: datetime) -> timedelta | None:
    if (
        row.expires_at is None or row.kind is CommandKind.SERVICE
    ):  # which is wanted until then, and maybe longer
        return None
    return row.expires_at - now
