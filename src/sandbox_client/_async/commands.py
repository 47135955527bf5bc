from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal

from sandbox_client._async.concurrency import Callback, invoke
from sandbox_client._async.starting import begin
from sandbox_client._async.streams import follow_stream
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.errors import CommandFailed, CommandNotStarted
from sandbox_client.events import CommandEvent, CommandExit, CommandOutput
from sandbox_client.events.parsing import read_command_event
from sandbox_client.models import (
    CommandCreate,
    CommandInput,
    CommandOutcome,
    CommandSend,
    CommandSignal,
    CommandState,
    OutputPart,
)
from sandbox_client.protocol.calls import Call, call, create

LONGEST_RUN_WAIT_S = 60.0
_LIVING = frozenset({CommandState.STARTING, CommandState.RUNNING})
_LARGEST_INPUT = 512 * 1024


class AsyncCommand:
    """A command in a sandbox. It runs on whether or not anybody follows it."""

    def __init__(self, transport: AsyncTransport, record: CommandOutcome) -> None:
        self._transport = transport
        self.record = record
        """What was last known of it."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.sandbox_id}/commands/{record.id}"

    async def refresh(self) -> CommandOutcome:
        """Ask what has become of it, and what it has written."""
        self.record = await self._transport.fetch(CommandOutcome, call("GET", self._path))
        return self.record

    def follow(self, *, after: int | None = None) -> AsyncGenerator[CommandEvent, None]:
        """Give what it writes, from the start or after an event's `id`, until it has ended."""
        return self._events(call("GET", self._output), after=after)

    async def wait(self) -> CommandOutcome:
        """Wait until it has ended."""
        if self.record.state in _LIVING:
            from_now_on = call("GET", self._output, query={"tail": 0})
            async with aclosing(self._events(from_now_on)) as events:
                async for _ in events:
                    pass
            await self.refresh()
        return self.record

    async def read_output(
        self,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> OutputPart:
        """Read some of one of its outputs, from a byte on."""
        query = {"stream": stream, "offset": offset, "limit": limit}
        return await self._transport.fetch(OutputPart, call("GET", self._output, query=query))

    async def send(self, content: bytes | str = b"", *, end: bool = False) -> None:
        """Write to its stdin, which it was started with; at the end, close that."""
        sent = content.encode() if isinstance(content, str) else content
        for start in range(0, len(sent), _LARGEST_INPUT):
            part = b64encode(sent[start : start + _LARGEST_INPUT]).decode()
            await self._transport.send(
                call("POST", f"{self._path}/input", CommandInput(base64=part))
            )
        if end:
            await self._transport.send(
                call("POST", f"{self._path}/input", CommandInput(close=True))
            )

    async def signal(self, signal: CommandSignal | str = CommandSignal.SIGTERM) -> None:
        """Send it a signal: SIGTERM and SIGKILL to it alone, others to all that it started too."""
        body = CommandSend(signal=CommandSignal(signal))
        await self._transport.send(call("POST", f"{self._path}/signal", body))

    @property
    def _output(self) -> str:
        return f"{self._path}/output"

    def _events(
        self, request: Call, *, after: int | None = None
    ) -> AsyncGenerator[CommandEvent, None]:
        return follow_stream(
            self._transport,
            request,
            read_command_event,
            after=after,
            is_last=lambda event: isinstance(event, CommandExit),
        )


async def start_command(
    transport: AsyncTransport, sandbox_path: str, body: CommandCreate
) -> AsyncCommand:
    """Start a command in the background; gives it when it runs."""
    request = create(f"{sandbox_path}/commands", body, wait=LONGEST_RUN_WAIT_S)
    return AsyncCommand(transport, await transport.fetch(CommandOutcome, request))


async def begin_command(
    transport: AsyncTransport, sandbox_path: str, body: CommandCreate
) -> AsyncCommand:
    """Start a command that somebody waits for, and follows from its first byte on."""
    return AsyncCommand(
        transport, await begin(transport, sandbox_path, "commands", body, CommandOutcome)
    )


async def run_command(
    transport: AsyncTransport, sandbox_path: str, body: CommandCreate
) -> CommandOutcome:
    """Run a command to its end."""
    request = create(f"{sandbox_path}/commands", body, wait=LONGEST_RUN_WAIT_S)
    return await AsyncCommand(transport, await transport.fetch(CommandOutcome, request)).wait()


async def forward_output(
    command: AsyncCommand,
    on_stdout: Callback[[str]] | None,
    on_stderr: Callback[[str]] | None,
) -> CommandOutcome:
    """Tell what a command writes as it does, and give its outcome."""
    callbacks: dict[str, Any] = {"stdout": on_stdout, "stderr": on_stderr}
    async with aclosing(command.follow()) as events:
        async for event in events:
            if isinstance(event, CommandOutput):
                await invoke(callbacks[event.type], event.decoded)
    return require_started(await command.refresh())


def require_started(outcome: CommandOutcome) -> CommandOutcome:
    if outcome.state is CommandState.FAILED:
        raise CommandNotStarted(f"The command did not start: {outcome.state_reason}")
    return outcome


def require_success(outcome: CommandOutcome) -> CommandOutcome:
    if outcome.exit_code != 0:
        raise CommandFailed(outcome)
    return outcome
