from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from typing import Any, Literal

from sandbox_client import models
from sandbox_client._sync.concurrency import Callback, invoke
from sandbox_client._sync.runs import Run, RunKind
from sandbox_client._sync.transport import Transport
from sandbox_client._sync.waiting import begin
from sandbox_client.errors import CommandFailed, CommandNotStarted
from sandbox_client.events import CommandEvent, CommandExit, CommandOutput
from sandbox_client.events.parsing import read_command_event
from sandbox_client.protocol.calls import call, create

LONGEST_RUN_WAIT_S = 60.0
_LARGEST_INPUT = 512 * 1024


class Command(Run[models.CommandOutcome, CommandEvent]):
    """A command in a sandbox. It keeps running when nobody follows it."""

    _kind = RunKind(models.CommandOutcome, "commands", "output", read_command_event, CommandExit)

    def read_output(
        self,
        stream: Literal["stdout", "stderr"] = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
    ) -> models.OutputPart:
        """Read a part of stdout or stderr, starting at a byte offset."""
        query = {"stream": stream, "offset": offset, "limit": limit}
        return self._transport.fetch(models.OutputPart, call("GET", self._events_path, query=query))

    def send(self, content: bytes | str = b"", *, end: bool = False) -> None:
        """Write to stdin; with `end`, close it. The command must have been started with `stdin=True`."""
        sent = content.encode() if isinstance(content, str) else content
        for start in range(0, len(sent), _LARGEST_INPUT):
            part = b64encode(sent[start : start + _LARGEST_INPUT]).decode()
            self._transport.send(
                call("POST", f"{self._path}/input", models.CommandInput(base64=part))
            )
        if end:
            self._transport.send(
                call("POST", f"{self._path}/input", models.CommandInput(close=True))
            )

    def signal(self, signal: models.CommandSignal | str = models.CommandSignal.SIGTERM) -> None:
        """Send a signal: SIGTERM and SIGKILL to the process itself, others to its process group."""
        body = models.CommandSend(signal=models.CommandSignal(signal))
        self._transport.send(call("POST", f"{self._path}/signal", body))


def start_command(transport: Transport, sandbox_path: str, body: models.CommandCreate) -> Command:
    """Start a background command and return when it runs."""
    request = create(f"{sandbox_path}/commands", body, wait=LONGEST_RUN_WAIT_S)
    return Command(transport, transport.fetch(models.CommandOutcome, request))


def begin_command(transport: Transport, sandbox_path: str, body: models.CommandCreate) -> Command:
    """Start a foreground command, to be followed from its first byte."""
    return Command(
        transport, begin(transport, sandbox_path, "commands", body, models.CommandOutcome)
    )


def run_command(
    transport: Transport, sandbox_path: str, body: models.CommandCreate
) -> models.CommandOutcome:
    """Run a command and wait until it ends."""
    request = create(f"{sandbox_path}/commands", body, wait=LONGEST_RUN_WAIT_S)
    return Command(transport, transport.fetch(models.CommandOutcome, request)).wait()


def forward_output(
    command: Command,
    on_stdout: Callback[[str]] | None,
    on_stderr: Callback[[str]] | None,
) -> models.CommandOutcome:
    """Call back with the output as it arrives; return the outcome."""
    callbacks: dict[str, Any] = {"stdout": on_stdout, "stderr": on_stderr}
    with closing(command.follow()) as events:
        for event in events:
            if isinstance(event, CommandOutput):
                invoke(callbacks[event.type], event.decoded)
    return require_started(command.refresh())


def require_started(outcome: models.CommandOutcome) -> models.CommandOutcome:
    if outcome.state is models.CommandState.FAILED:
        raise CommandNotStarted(f"The command did not start: {outcome.state_reason}")
    return outcome


def require_success(outcome: models.CommandOutcome) -> models.CommandOutcome:
    if outcome.exit_code != 0:
        raise CommandFailed(outcome)
    return outcome
