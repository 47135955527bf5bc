"""Records one command in this process, from its start or from where another server stopped.

begin ─────────► record ──────────► ended
                 │  ▲
connection lost  ▼  │ reconnected, with a gap
                reconnect ────────► ended     sandbox ended, timed out, or the process is gone
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.commands.command_log import Batch, CommandLog
from sandbox_server.commands.rate_limits import Throttle
from sandbox_server.commands.recording_context import RecordingContext, find_last_line
from sandbox_server.commands.recording_repository import WriteResult
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

HANDED_OVER = "Another server continued the recording."
CODE_INTERRUPTED = (
    "The server stopped while the code ran, and the interpreter interrupted the code."
)

_MIN_BACKOFF_S = 0.1
_MAX_BACKOFF_S = 10.0
_STABLE_S = 5.0
_LARGEST_PID = 2**31 - 1
# A start request without a response may still be in progress.
_NEW_COMMAND_ATTEMPTS = 3
_ATTEMPT_INTERVAL_S = 1.0
_SANDBOX_ENDED = "The sandbox ended."
_LOST = "The process is gone, and its exit was not observed."
_START_UNCONFIRMED = "The start was not confirmed, and there is no such process in the sandbox."


class Recording:
    """Records one command while this process holds its lease."""

    def __init__(
        self, row: Command, log_: CommandLog, context: RecordingContext, *, left: timedelta | None
    ) -> None:
        self.row = row
        self.log = log_
        self.started = asyncio.Event()
        """Set once the start or the end of the command is stored."""
        self.finished = asyncio.Event()
        """Set once the end of the command is stored, or another server records it."""
        self.connected = asyncio.Event()
        """Set while output is received, and after the end."""
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._expires_at = None if left is None else self._loop.time() + left.total_seconds()
        self._state = row.state
        self._forget: Callable[[], object] = lambda: None
        self._throttle = Throttle()
        self._may_have_missed_output = False  # while disconnected
        if row.state is not CommandState.STARTING:
            self.started.set()

    def forget(self) -> None:
        """Stop recording, because another server does or the row is gone."""
        self._forget()
        self.connected.set()
        self.started.set()
        self.finished.set()

    def ack(self, batch: Batch, result: WriteResult) -> None:
        """Update the row from the stored batch."""
        self._note_stored(batch, last_seq=result.last_seq)
        for name, value in (*batch.changes.items(), *batch.sizes.items()):
            if name != "started":
                setattr(self.row, name, value)
        self.row.last_seq = result.last_seq
        self.row.started_at, self.row.expires_at = result.started_at, result.expires_at
        self.row.ended_at = result.ended_at
        if self.row.state is not CommandState.STARTING:
            self.started.set()
        if self.row.ended_at is not None:
            self.finished.set()

    def interrupt(self) -> None:
        """End what runs on the recording's own connection. A process has signals instead."""

    async def begin(self, usable: UsableSandbox, process: NewProcess) -> None:
        """Start the command and record it until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._forget = task.cancel
        with self._keep_awake(usable.row):
            reason = await self._start(usable, process)
        if reason is not None:
            await self._reconnect_until_ended(reason)

    async def take_over(self) -> None:
        """Record a command that another server started."""
        task = asyncio.current_task()
        assert task is not None
        self._forget = task.cancel
        if self.row.kind is CommandKind.CODE:  # it ran on the connection of the server before
            self._end(CommandState.LOST, CODE_INTERRUPTED)
            return
        await self._reconnect_until_ended(HANDED_OVER)

    async def _start(self, usable: UsableSandbox, process: NewProcess) -> str | None:
        processes = usable.backend.processes(usable.access)
        timeout = self.row.timeout
        if timeout is not None:
            self._expires_at = self._loop.time() + timeout.total_seconds()
        try:
            return await self._record(usable, processes, processes.start(process, timeout=timeout))
        except BackendUnavailable as error:
            return error.reason
        except BackendError as error:
            if self._state is not CommandState.STARTING:
                return error.reason
            self._end(CommandState.FAILED, error.reason)
            return None

    async def _reconnect_until_ended(self, lost: str) -> None:
        reason: str | None = lost
        backoff = _MIN_BACKOFF_S
        while reason is not None:
            since = self._loop.time()
            try:
                reason = await self._reconnect(reason)
            except (BackendError, *OUTAGES) as error:
                log.info("cannot reconnect to command command_id=%s error=%r", self.row.id, error)
            lasted = self._loop.time() - since > _STABLE_S
            backoff = _MIN_BACKOFF_S if lasted else min(backoff * 2, _MAX_BACKOFF_S)
            if reason is not None:
                await asyncio.sleep(backoff)

    async def _reconnect(self, reason: str) -> str | None:
        """Connect to the command once its sandbox runs; returns why the connection was lost, or None if the command ended."""
        usable = await self._context.wait_until_running(self.row.sandbox_id)
        if usable is None:
            self._end(CommandState.KILLED, _SANDBOX_ENDED)
            return None
        self._may_have_missed_output = True
        processes = usable.backend.processes(usable.access)
        left = self._left()
        if left is not None and left <= timedelta():
            if not await self._end_from_last_line(usable):
                await self._kill(processes)
            return None
        with self._keep_awake(usable.row):
            try:
                events = processes.connect(self.row.id, timeout=left)
                return await self._record(usable, processes, events, after=reason)
            except ProcessGone:
                return await self._check_process(usable, processes, reason)

    async def _check_process(
        self, usable: UsableSandbox, processes: Processes, reason: str
    ) -> str | None:
        is_new = self._state is CommandState.STARTING
        for _ in range(_NEW_COMMAND_ATTEMPTS if is_new else 1):
            if any(process.tag == self.row.id for process in await processes.list()):
                return reason
            await asyncio.sleep(_ATTEMPT_INTERVAL_S if is_new else 0)
        if not await self._end_from_last_line(usable):
            self._end(CommandState.LOST, _START_UNCONFIRMED if is_new else _LOST)
        return None

    async def _record(
        self,
        usable: UsableSandbox,
        processes: Processes,
        events: Events,
        *,
        after: str | None = None,
    ) -> str | None:
        """Record events until the command ends; returns why the connection was lost before that."""
        try:
            async with aclosing(events):
                async for event in events:
                    match event:
                        case Started():
                            self.connected.set()
                            self._note_start(event, after)
                            after = None
                        case Output():
                            await self._receive(event, usable.row)
                        case Ended():
                            await self._record_last_line(usable)
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
        return "The output stream was interrupted."

    def _note_start(self, started: Started, after: str | None) -> None:
        if self._state is CommandState.STARTING:
            self._state = CommandState.RUNNING
            pid = started.pid if started.pid <= _LARGEST_PID else None
            self.log.note(
                RecordType.STARTED, {"pid": pid}, state=self._state, pid=pid, started=True
            )
        if after is not None:
            self.log.note(RecordType.GAP, {"stream": None, "size": None, "reason": after})
        if self._has_waiting_caller:
            self._context.recorder.schedule_soon(self)
        else:
            self._context.recorder.schedule(self)

    async def _receive(self, output: Output, sandbox: Sandbox) -> None:
        is_stderr = output.stream is OutputStream.STDERR
        self._may_have_missed_output = self._may_have_missed_output and is_stderr
        self.log.receive(RecordType.STDERR if is_stderr else RecordType.STDOUT, output.content)
        self._context.recorder.schedule(self)
        if self.row.kind is not CommandKind.SERVICE:
            self._context.activity.note(sandbox)
        await self._context.recorder.wait_for_room(self)
        await self._throttle.wait()

    async def _record_last_line(self, usable: UsableSandbox) -> bytes:
        """Record the last line of an agent run if output may have been missed."""
        line = await find_last_line(usable, self.row) if self._may_have_missed_output else b""
        if line:
            self.log.receive(RecordType.STDOUT, line)
        return line

    async def _end_from_last_line(self, usable: UsableSandbox) -> bool:
        exit_code = exit_code_of(await self._record_last_line(usable))
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
            self._end(CommandState.KILLED, ended.words or "Killed.")

    async def _kill(self, processes: Processes) -> None:
        try:
            with suppress(ProcessGone):  # the sandbox has killed the command, but not its children
                await processes.send_signal(self.row.id, ProcessSignal.KILL)
            if self.row.pid is not None:
                await processes.signal_group(self.row.pid, GroupSignal.KILL)
        except BackendError as error:
            log.info("command not killed command_id=%s error=%r", self.row.id, error)
        self._time_out()

    def _time_out(self) -> None:
        timeout = self.row.timeout or timedelta()
        self._end(
            CommandState.TIMED_OUT, f"Timed out after {timeout.total_seconds():g} s and killed."
        )

    def _end(
        self, state: CommandState, reason: str | None, *, exit_code: int | None = None
    ) -> None:
        self._state = state
        self.connected.set()
        record = {"state": state.value, "exit_code": exit_code, "reason": reason, **self._outcome()}
        changes: dict[str, Any] = {
            "state": state,
            "state_reason": reason,
            "exit_code": exit_code,
        }
        self.log.note(RecordType.EXIT, record, **changes)
        self._context.recorder.schedule(self, now=True)

    def _note_stored(self, batch: Batch, *, last_seq: int) -> None:
        """Note records that are now stored, the last one under this number."""

    def _outcome(self) -> Mapping[str, Any]:
        """Return what else the last record contains."""
        return {}

    def _left(self) -> timedelta | None:
        if self._expires_at is None:
            return None
        return timedelta(seconds=self._expires_at - self._loop.time())

    def _keep_awake(self, sandbox: Sandbox) -> AbstractContextManager[None]:
        """Keep the sandbox awake while a request waits for the command's end."""
        return self._context.activity.hold(sandbox) if self._has_waiting_caller else nullcontext()

    @property
    def _has_waiting_caller(self) -> bool:
        kinds = (CommandKind.COMMAND, CommandKind.AGENT)
        return self.row.kind in kinds and not self.row.background


def time_left(row: Command, now: datetime) -> timedelta | None:
    # A service has no timeout: its `expires_at` is the earliest end of its recording.
    if row.expires_at is None or row.kind is CommandKind.SERVICE:
        return None
    return row.expires_at - now
