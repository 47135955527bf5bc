import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_tools import coding_agents
from sandbox_tools.agent_server import changed_files
from sandbox_tools.agent_server.session_store import SessionRecords
from sandbox_tools.agent_server.transcript import Transcript
from sandbox_tools.coding_agents.agent import Outcome, RunContext, SessionRecord
from sandbox_tools.coding_agents.prompts import Prompt, RequestRefused
from sandbox_tools.toolkit.process_tree import terminate_processes_with
from sandbox_tools.toolkit.truncation import truncate_middle

SECONDS_TO_STOP = 10.0
_MAX_OUTPUT = 60_000
SESSION_VARIABLE = "SANDBOX_AGENT_SESSION"
"""Inherited by all processes of a session, which are found by it."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StopReason:
    """Why a run was stopped early, and the resulting state."""

    why: str
    state: str
    exit_code: int


INTERRUPTED = StopReason("Interrupted.", "interrupted", 130)
_SERVER_STOPPED = StopReason("The agent server was stopped.", "failed", 1)


class Session:
    """A conversation with an agent: one prompt at a time, each with events up to a result."""

    def __init__(
        self,
        record: SessionRecord,
        records: SessionRecords,
        *,
        seconds_to_stop: float = SECONDS_TO_STOP,
    ) -> None:
        self.record = record
        self.transcript = Transcript()
        self.used_at = time.monotonic()
        self.followers = 0
        self._records = records
        self._seconds_to_stop = seconds_to_stop
        self._agent = coding_agents.create_agent(record.agent)
        self._run: asyncio.Task[None] | None = None
        self._run_request: asyncio.Task[Outcome] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._limit: asyncio.Task[None] | None = None
        self._stop: StopReason | None = None

    @property
    def is_busy(self) -> bool:
        return self._run is not None and not self._run.done()

    def begin(self, prompt: Prompt, context: RunContext) -> None:
        """Start a prompt."""
        if self.is_busy:
            raise RequestRefused(
                "busy",
                f"Session {self.record.id} is busy. Wait for its result or interrupt it.",
            )
        self._stop = self._run_request = None
        self._run = asyncio.create_task(self._run_prompt(prompt, context))

    def interrupt(self, stop: StopReason = INTERRUPTED) -> None:
        """Interrupt the agent, and kill it if it does not stop in time."""
        if self.is_busy and self._stop is None:
            self._stop = stop
            self._stopping = asyncio.create_task(self._stop_agent())

    async def release(self) -> None:
        """End the idle agent process; the next prompt starts a new one that resumes the session."""
        if not self.is_busy:
            await self._agent.close()

    async def close(self) -> None:
        if self._run is not None and not self._run.done():
            self._stop = self._stop or _SERVER_STOPPED
            if self._run_request is not None:
                self._run_request.cancel()
            await asyncio.wait({self._run})
        await self._agent.close()

    async def follow(self, after: int | None) -> AsyncIterator[bytes]:
        self.followers += 1
        try:
            async for event in self.transcript.follow(after):
                yield event
        finally:
            self.followers -= 1

    async def _run_prompt(self, prompt: Prompt, context: RunContext) -> None:
        self._emit("started", agent=self.record.agent, cwd=self.record.cwd)
        directory = Path(self.record.cwd)
        before = await asyncio.to_thread(changed_files.snapshot, directory)
        outcome = await self._run_agent(prompt, context)
        changed = changed_files.diff(
            before, await asyncio.to_thread(changed_files.snapshot, directory)
        )
        self._keep_record()
        self.used_at = time.monotonic()
        self._emit("result", **self._result(outcome), changed_files=changed)

    async def _run_agent(self, prompt: Prompt, context: RunContext) -> Outcome:
        if self._stop is not None:
            return Outcome(failure=self._stop.why)
        self._run_request = asyncio.create_task(
            self._agent.run_prompt(prompt, context, self._emit_message)
        )
        if prompt.timeout_s is not None:
            self._limit = asyncio.create_task(_interrupt_after(self, prompt.timeout_s))
        await asyncio.wait({self._run_request})
        for task in (self._limit, self._stopping):
            if task is not None:
                task.cancel()
        self._limit = self._stopping = None
        if self._stop is not None:
            await self._end_processes()
        return _outcome_of(self._run_request)

    async def _stop_agent(self) -> None:
        was_interrupted = False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_to_stop):
                was_interrupted = await self._agent.interrupt()
        if was_interrupted:
            await sleep_awake(self._seconds_to_stop)
        if self._run_request is not None:
            self._run_request.cancel()

    async def _end_processes(self) -> None:
        """End the agent and everything it has started; the next prompt starts it anew."""
        await self._agent.close()
        if not await terminate_processes_with(SESSION_VARIABLE, self.record.id):
            _log.warning("processes_left session=%s", self.record.id)

    def _result(self, outcome: Outcome) -> dict[str, Any]:
        state, exit_code, why = "succeeded", 0, None
        if self._stop is not None:
            state, exit_code, why = self._stop.state, self._stop.exit_code, self._stop.why
        elif outcome.failure is not None:
            state, exit_code, why = "failed", outcome.exit_code or 1, outcome.failure
        output = "\n\n".join(filter(None, (outcome.output, why)))
        return {
            "state": state,
            "exit_code": exit_code,
            "output": truncate_middle(output, limit=_MAX_OUTPUT),
            "cost": outcome.cost,
        }

    def _keep_record(self) -> None:
        try:
            self._records.keep(self.record)
        except OSError as error:
            _log.warning("session_not_stored session=%s error=%s", self.record.id, error)

    def _emit_message(self, message: Mapping[str, Any]) -> None:
        self._emit("message", message=message)

    def _emit(self, kind: str, **fields: Any) -> None:
        self.transcript.append({"type": kind, "session_id": self.record.id, **fields})


async def _interrupt_after(session: Session, seconds: float) -> None:
    await sleep_awake(seconds)
    why = f"Stopped after {seconds:g} seconds (timeout_s)."
    session.interrupt(StopReason(why, "timed_out", 124))


def _outcome_of(work: "asyncio.Task[Outcome]") -> Outcome:
    if work.cancelled():
        return Outcome(exit_code=1, failure="Killed: it did not stop in time.")
    failure = work.exception()
    if failure is None:
        return work.result()
    if isinstance(failure, RequestRefused | OSError):
        return Outcome(exit_code=1, failure=str(failure))
    _log.error("run_failed", exc_info=failure)
    fault = (
        f"Internal error of the agent server ({type(failure).__name__}); details are in its log."
    )
    return Outcome(exit_code=1, failure=fault)


_TICK = 1.0
_MAX_TICK = 5.0


async def sleep_awake(seconds: float) -> None:
    """Sleep, without counting time in which the sandbox was paused."""
    loop = asyncio.get_running_loop()
    left, before = seconds, loop.time()
    while left > 0:
        await asyncio.sleep(min(left, _TICK))
        now = loop.time()
        left -= min(now - before, _MAX_TICK)
        before = now
