"""Records one execution of code, on the connection that it runs on.

The interpreter interrupts the code when this connection ends: after the timeout, and when this server stops. An execution is
therefore never continued by another server.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, TypeVar

from sandbox_http.upstream import Upstream
from sandbox_server.commands.command_log import Batch
from sandbox_server.commands.recording import Recording
from sandbox_server.domain.commands import COMMAND_LIVING, CommandState
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.state import ENDED, State
from sandbox_server.interpreters.connection import LOST, InterpreterConnections
from sandbox_server.interpreters.execution_records import StoredRecords
from sandbox_server.interpreters.messages import (
    LineReader,
    TooLong,
    error_of,
    output_of,
    parse_message,
    result_of,
)
from sandbox_server.log.records import RecordType
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

Converted = TypeVar("Converted")

MOST_RESULTS = 200
MOST_RESULT_BYTES = 16 * 2**20

_SILENCE = timedelta(seconds=30)
"""The interpreter sends something every five seconds."""
_PARSED_AT_ONCE = 64 * 1024
_SLEEPING = frozenset({State.PAUSING, State.PAUSED, State.RESUMING})
INTERRUPTED = "Interrupted by request."
_SANDBOX_ENDED = "The sandbox ended."
_PAUSED = (
    "The sandbox was paused while the code ran, which ended the connection to its interpreter."
)
_BROKEN = "The connection to the code interpreter broke."
_SILENT = "The code interpreter has sent nothing for 30 s."
_OUTPUTS = {"stdout": RecordType.STDOUT, "stderr": RecordType.STDERR}


class _Silent(Exception):
    """The interpreter of a running sandbox sends nothing."""


@dataclass(frozen=True, kw_only=True)
class CodeCall:
    """What the interpreter is asked to run."""

    code: str
    language: str | None
    context_id: str | None
    env_vars: Mapping[str, str] = field(repr=False)

    def document(self) -> Mapping[str, Any]:
        return {
            "code": self.code,
            "language": self.language,
            "context_id": self.context_id,
            "env_vars": dict(self.env_vars) or None,
        }


class ExecutionRecording(Recording):
    """Runs code and records it while this process holds the lease of its row."""

    failure: SandboxError | None = None
    """Why the code was not started."""
    _execution_count: int | None = None
    _results = 0
    _result_bytes = 0
    _has_failed = False
    _has_ended = False
    _is_interrupted = False
    _timeout: asyncio.Timeout | None = None

    @cached_property
    def stored(self) -> StoredRecords:
        """The records that are stored, if they are few."""
        return StoredRecords(self.row)

    def _note_stored(self, batch: Batch, *, last_seq: int) -> None:
        self.stored.add(batch, last_seq=last_seq)

    def interrupt(self) -> None:
        """End the connection, upon which the interpreter interrupts the code."""
        if self._timeout is not None and self._state in COMMAND_LIVING:
            self._is_interrupted = True
            self._timeout.reschedule(self._loop.time())

    async def execute(
        self, connections: InterpreterConnections, used: UsableSandbox, call: CodeCall
    ) -> None:
        """Run the code and record it until it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._forget = task.cancel
        timeout = (self.row.timeout or timedelta()).total_seconds()
        with self._context.activity.hold(used.row):
            try:
                async with asyncio.timeout(timeout) as self._timeout:
                    await self._run(connections, used, call)
            except TimeoutError:
                if self._is_interrupted:
                    self._end(CommandState.KILLED, INTERRUPTED)
                elif self._state in COMMAND_LIVING:
                    reason = f"Timed out after {timeout:g} s and interrupted."
                    self._end(CommandState.TIMED_OUT, reason)
            except SandboxError as error:
                self.failure = error
                # A caller that does not wait reads only this.
                self._end(
                    CommandState.FAILED, " ".join(filter(None, (str(error), error.remediation)))
                )
            except LOST:
                await self._end_lost(_BROKEN)
            except _Silent:
                await self._end_lost(_SILENT)

    async def _run(
        self, connections: InterpreterConnections, used: UsableSandbox, call: CodeCall
    ) -> None:
        async with connections.answer(
            used, "POST", "/execute", call.document(), context_id=call.context_id
        ) as upstream:
            self._note_started()
            await self._record_lines(upstream, used)
            if self._has_ended:
                self._end(CommandState.EXITED, None, exit_code=int(self._has_failed))
            else:
                await self._end_lost(_BROKEN)

    async def _record_lines(self, upstream: Upstream, used: UsableSandbox) -> None:
        lines = LineReader()
        async for data in self._bodies(upstream):
            for line in lines.feed(data):
                await self._record_line(line)
            self._context.activity.note(used.row)
            await self._context.recorder.wait_for_room(self)
            await self._throttle.wait()

    async def _bodies(self, upstream: Upstream) -> AsyncIterator[bytes]:
        last = False
        while not (last or self._has_ended):
            try:
                async with asyncio.timeout(_SILENCE.total_seconds()):
                    data, last = await upstream.body()
            except TimeoutError:
                if await self._context.find_state(self.row.sandbox_id) not in _SLEEPING:
                    raise _Silent from None
                continue
            yield data

    async def _record_line(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            self._note_gap(line.size, "A message of the code interpreter was too long.")
            return
        is_large = len(line) > _PARSED_AT_ONCE
        message = await _convert(partial(parse_message, line), in_thread=is_large)
        match message.get("type"):
            case "stdout" | "stderr" as stream:
                self.log.receive(_OUTPUTS[stream], output_of(message))
            case "result":
                await self._note_result(message, is_large=is_large)
            case "error":
                self._has_failed = True
                self.log.note(RecordType.ERROR, {}, content=error_of(message))
            case "number_of_executions":
                count = message.get("execution_count")
                self._execution_count = count if isinstance(count, int) else None
            case "end_of_execution":
                self._has_ended = True
        self._context.recorder.schedule(self)

    async def _note_result(self, message: Mapping[str, Any], *, is_large: bool) -> None:
        if self._results >= MOST_RESULTS:
            if self._results == MOST_RESULTS:
                self._note_gap(None, f"Only the first {MOST_RESULTS} results are kept.")
            self._results += 1
            return
        room = MOST_RESULT_BYTES - self._result_bytes
        result = await _convert(partial(result_of, message, room=room), in_thread=is_large)
        data = {
            "number": self._results,
            "is_main_result": result.is_main,
            "sizes": dict(result.sizes),
            "dropped": dict(result.dropped),
        }
        self.log.note(RecordType.RESULT, data, content=result.content)
        self._results += 1
        self._result_bytes += sum(result.sizes.values())

    def _note_started(self) -> None:
        self._state = CommandState.RUNNING
        self.connected.set()
        self.log.note(RecordType.STARTED, {}, state=self._state, started=True)
        self._context.recorder.schedule_soon(self)

    def _note_gap(self, size: int | None, reason: str) -> None:
        self.log.note(RecordType.GAP, {"stream": None, "size": size, "reason": reason})

    async def _end_lost(self, reason: str) -> None:
        state = await self._context.find_state(self.row.sandbox_id)
        if state is None or state in ENDED or state is State.STOPPING:
            self._end(CommandState.KILLED, _SANDBOX_ENDED)
        elif state in _SLEEPING:
            self._end(CommandState.KILLED, _PAUSED)
        else:
            self._end(CommandState.LOST, reason)

    def _outcome(self) -> Mapping[str, Any]:
        return {"execution_count": self._execution_count}


async def _convert(function: Callable[[], Converted], *, in_thread: bool) -> Converted:
    """Call a function, in a thread if it would hold up other connections."""
    return await asyncio.to_thread(function) if in_thread else function()
