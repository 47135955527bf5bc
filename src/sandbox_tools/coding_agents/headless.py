import asyncio
import json
import os
import shutil
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager, suppress
from typing import Any

from sandbox_tools.coding_agents.agent import EmitMessage, Outcome, RunContext
from sandbox_tools.coding_agents.prompts import Prompt, RequestRefused

_MAX_LINE_LENGTH = 16 << 20
_SECONDS_TO_END = 5
_SECONDS_TO_DRAIN = 2


class Headless(ABC):
    """A command line agent: one process per prompt, which prints JSON lines."""

    name: str

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._diagnostics: deque[str] = deque(maxlen=20)

    @abstractmethod
    def command(self, prompt: Prompt, context: RunContext) -> list[str]:
        """Build the command line; the prompt is written to stdin."""

    @abstractmethod
    def parse_event(self, line: dict[str, Any], context: RunContext, outcome: Outcome) -> None:
        """Update the outcome and the session record from an event."""

    def variables(self, context: RunContext) -> dict[str, str]:  # noqa: ARG002 - for subclasses
        return {}

    def should_emit(self, line: dict[str, Any], prompt: Prompt) -> bool:  # noqa: ARG002 - as above
        return True

    async def run_prompt(self, prompt: Prompt, context: RunContext, emit: EmitMessage) -> Outcome:
        outcome = Outcome()
        async with pipe() as (output, stdout), pipe() as (errors, stderr):
            try:
                process = await self._start(prompt, context, stdout, stderr)
            finally:
                os.close(stdout)
                os.close(stderr)
            try:
                async with asyncio.TaskGroup() as tasks:
                    reading = (
                        tasks.create_task(self._read(output, prompt, context, outcome, emit)),
                        tasks.create_task(self._read_stderr(errors)),
                    )
                    await _write_prompt(process, prompt.prompt)
                    outcome.exit_code = await process.wait()
                    # Remaining child processes may hold its output open forever.
                    await asyncio.wait(reading, timeout=_SECONDS_TO_DRAIN)
                    for task in reading:
                        task.cancel()
            finally:
                await self.close()
        if outcome.exit_code and outcome.failure is None:
            outcome.failure = self._failure_message(outcome.exit_code)
        return outcome

    async def interrupt(self) -> bool:
        if self._process is None:
            return False
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        return True

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, ending)
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS_TO_END):
                    await process.wait()
                return

    async def _start(
        self, prompt: Prompt, context: RunContext, stdout: int, stderr: int
    ) -> asyncio.subprocess.Process:
        environment = context.environment | self.variables(context)
        command = self.command(prompt, context)
        program = shutil.which(command[0], path=environment.get("PATH"))
        if program is None:
            raise RequestRefused("no-such-agent", f"{self.name} is not installed in this sandbox.")
        self._diagnostics.clear()
        self._process = await asyncio.create_subprocess_exec(
            *(program, *command[1:]),
            cwd=context.record.cwd,
            env=environment | {"PWD": context.record.cwd},
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        return self._process

    async def _read(
        self,
        output: asyncio.StreamReader,
        prompt: Prompt,
        context: RunContext,
        outcome: Outcome,
        emit: EmitMessage,
    ) -> None:
        async for line in read_lines(output, limit=_MAX_LINE_LENGTH):
            parsed = _parse(line)
            if isinstance(parsed, dict):
                self.parse_event(parsed, context, outcome)
                if self.should_emit(parsed, prompt):
                    emit(parsed)
            else:
                self._diagnostics.append(parsed)

    async def _read_stderr(self, errors: asyncio.StreamReader) -> None:
        async for line in read_lines(errors, limit=2_000):
            self._diagnostics.append((line or b"").decode(errors="replace"))

    def _failure_message(self, exit_code: int) -> str:
        parsed = "\n".join(filter(None, self._diagnostics))[-2000:]
        ended = f"{self.name} ended with exit code {exit_code}."
        return f"{ended} Its output: {parsed}" if parsed else ended


def _parse(line: bytes | None) -> dict[str, Any] | str:
    if line is None:
        return {"type": "cut", "text": "A line was too long and was dropped."}
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError):
        parsed = None
    return parsed if isinstance(parsed, dict) else line.decode(errors="replace")[:2_000]


async def _write_prompt(process: asyncio.subprocess.Process, prompt: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(prompt.encode(errors="replace"))
        await process.stdin.drain()
        process.stdin.close()


def refuse_unsupported(agent: str, prompt: Prompt, *options: str, modes: Container[str]) -> None:
    """Refuse unsupported options: ignoring them could allow more than requested."""
    for option in options:
        if getattr(prompt, option) is not None:
            raise RequestRefused("unsupported", f"{agent} does not support `{option}`. Omit it.")
    if prompt.permission_mode not in modes:
        raise RequestRefused(
            "unsupported", f"{agent} does not support permission_mode {prompt.permission_mode}."
        )


_CHUNK = 64 * 1024


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """Open a pipe for a process; its exit can be awaited while others still hold the pipe open."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    reading, writing = os.pipe()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reading, "rb", buffering=0)
    )
    try:
        yield reader, writing
    finally:
        transport.close()


async def read_lines(stream: asyncio.StreamReader, *, limit: int) -> AsyncIterator[bytes | None]:
    """Yield lines, and None for each line that exceeds the limit."""
    kept = bytearray()
    too_long = False
    while chunk := await stream.read(_CHUNK):
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            yield None if too_long or len(kept) + len(end) > limit else bytes(kept + end)
            kept.clear()
            too_long = False
        too_long = too_long or len(kept) + len(rest) > limit
        kept = bytearray() if too_long else kept + rest
    if kept or too_long:
        yield None if too_long else bytes(kept)
