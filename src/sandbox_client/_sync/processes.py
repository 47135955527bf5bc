from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from typing import Unpack

from sandbox_client import models
from sandbox_client._sync.commands import (
    Command,
    begin_command,
    forward_output,
    require_success,
    run_command,
    start_command,
)
from sandbox_client._sync.concurrency import Callback
from sandbox_client._sync.pagination import list_all
from sandbox_client._sync.runs import AgentRun, forward_events
from sandbox_client._sync.terminals import Terminal
from sandbox_client._sync.transport import Transport
from sandbox_client._sync.waiting import begin
from sandbox_client.events import AgentEvent, CommandEvent
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import AgentRunOptions, CommandOptions, TerminalOptions


class Processes:
    """Commands, agents and terminals of a sandbox. Starting one resumes a paused sandbox."""

    _transport: Transport
    _path: str

    def run(
        self,
        cmd: str,
        *,
        check: bool = False,
        on_stdout: Callback[[str]] | None = None,
        on_stderr: Callback[[str]] | None = None,
        **options: Unpack[CommandOptions],
    ) -> models.CommandOutcome:
        """Run a command and wait until it ends; with `check`, raise CommandFailed unless it exits with 0.

        `on_stdout` and `on_stderr` receive the output as it arrives. The command keeps running if the wait is cancelled.
        """
        body = request_body(models.CommandCreate, {"cmd": cmd, **options})
        if on_stdout is None and on_stderr is None:
            outcome = run_command(self._transport, self._path, body)
        else:
            command = begin_command(self._transport, self._path, body)
            outcome = forward_output(command, on_stdout, on_stderr)
        return require_success(outcome) if check else outcome

    def stream(
        self, cmd: str, **options: Unpack[CommandOptions]
    ) -> Generator[CommandEvent, None, None]:
        """Run a command and stream its events until it ends."""
        command = self.begin(cmd, **options)
        with closing(command.follow()) as events:
            yield from events

    def begin(self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]) -> Command:
        """Start a foreground command, which counts as activity of the sandbox, and return immediately."""
        body = request_body(models.CommandCreate, {"cmd": cmd, "stdin": stdin, **options})
        return begin_command(self._transport, self._path, body)

    def start(self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]) -> Command:
        """Start a background command and return when it has started."""
        body = request_body(
            models.CommandCreate, {"cmd": cmd, "stdin": stdin, "background": True, **options}
        )
        return start_command(self._transport, self._path, body)

    def get_command(self, command_id: str) -> Command:
        """Get a command by its id."""
        request = call("GET", f"{self._path}/commands/{segment(command_id)}")
        return Command(self._transport, self._transport.fetch(models.CommandOutcome, request))

    def list_commands(
        self, *, states: Iterable[models.CommandState | str] = ()
    ) -> Generator[models.CommandRead, None, None]:
        """List commands, newest first."""
        query = {"state": [models.CommandState(state).value for state in states]}
        return list_all(
            self._transport, f"{self._path}/commands", models.Page[models.CommandRead], query
        )

    def run_agent(
        self,
        agent: models.AgentName | str,
        prompt: str,
        *,
        on_event: Callback[[AgentEvent]] | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> models.AgentRunOutcome:
        """Run a coding agent on a prompt and wait until it ends; `on_event` receives its events as they arrive."""
        run = self.start_agent(agent, prompt, **options)
        return run.wait() if on_event is None else forward_events(run, on_event)

    def start_agent(
        self, agent: models.AgentName | str, prompt: str, **options: Unpack[AgentRunOptions]
    ) -> AgentRun:
        """Start a coding agent on a prompt."""
        body = request_body(models.AgentRunCreate, {"agent": agent, "prompt": prompt, **options})
        record = begin(self._transport, self._path, "agent/runs", body, models.AgentRunOutcome)
        return AgentRun(self._transport, record)

    def get_agent_run(self, run_id: str) -> AgentRun:
        """Get a run of an agent by its id."""
        request = call("GET", f"{self._path}/agent/runs/{segment(run_id)}")
        return AgentRun(self._transport, self._transport.fetch(models.AgentRunOutcome, request))

    def list_agent_runs(
        self, *, running: bool = False
    ) -> Generator[models.AgentRunRead, None, None]:
        """List runs of agents, newest first."""
        path, query = f"{self._path}/agent/runs", {"running": running}
        return list_all(self._transport, path, models.Page[models.AgentRunRead], query)

    def open_terminal(self, **options: Unpack[TerminalOptions]) -> Terminal:
        """Open a terminal, by default with a login shell. It keeps running when nobody is attached."""
        request = create(f"{self._path}/terminals", request_body(models.TerminalCreate, options))
        return Terminal(self._transport, self._transport.fetch(models.TerminalRead, request))

    def attach_terminal(self, terminal_id: str, *, after: int | None = None) -> Terminal:
        """Attach to a terminal; its output starts at the beginning or after `after` bytes."""
        request = call("GET", f"{self._path}/terminals/{segment(terminal_id)}")
        record = self._transport.fetch(models.TerminalRead, request)
        return Terminal(self._transport, record, after=after)

    def list_terminals(
        self, *, states: Iterable[models.CommandState | str] = ()
    ) -> Generator[models.TerminalRead, None, None]:
        """List terminals, newest first. Default: running ones."""
        query = {"state": [models.CommandState(state).value for state in states]}
        return list_all(
            self._transport, f"{self._path}/terminals", models.Page[models.TerminalRead], query
        )
