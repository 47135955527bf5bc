from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Unpack

from sandbox_client import models
from sandbox_client._async.commands import (
    AsyncCommand,
    begin_command,
    forward_output,
    require_success,
    run_command,
    start_command,
)
from sandbox_client._async.concurrency import Callback
from sandbox_client._async.pagination import list_all
from sandbox_client._async.runs import AsyncAgentRun, forward_events
from sandbox_client._async.terminals import AsyncTerminal
from sandbox_client._async.transport import AsyncTransport
from sandbox_client._async.waiting import begin
from sandbox_client.events import AgentEvent, CommandEvent
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import AgentRunOptions, CommandOptions, TerminalOptions


class AsyncProcesses:
    """Commands, agents and terminals of a sandbox. Starting one resumes a paused sandbox."""

    _transport: AsyncTransport
    _path: str

    async def run(
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
            outcome = await run_command(self._transport, self._path, body)
        else:
            command = await begin_command(self._transport, self._path, body)
            outcome = await forward_output(command, on_stdout, on_stderr)
        return require_success(outcome) if check else outcome

    async def stream(
        self, cmd: str, **options: Unpack[CommandOptions]
    ) -> AsyncGenerator[CommandEvent, None]:
        """Run a command and stream its events until it ends."""
        command = await self.begin(cmd, **options)
        async with aclosing(command.follow()) as events:
            async for event in events:
                yield event

    async def begin(
        self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]
    ) -> AsyncCommand:
        """Start a foreground command, which counts as activity of the sandbox, and return immediately."""
        body = request_body(models.CommandCreate, {"cmd": cmd, "stdin": stdin, **options})
        return await begin_command(self._transport, self._path, body)

    async def start(
        self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]
    ) -> AsyncCommand:
        """Start a background command and return when it has started."""
        body = request_body(
            models.CommandCreate, {"cmd": cmd, "stdin": stdin, "background": True, **options}
        )
        return await start_command(self._transport, self._path, body)

    async def get_command(self, command_id: str) -> AsyncCommand:
        """Get a command by its id."""
        request = call("GET", f"{self._path}/commands/{segment(command_id)}")
        return AsyncCommand(
            self._transport, await self._transport.fetch(models.CommandOutcome, request)
        )

    def list_commands(
        self, *, states: Iterable[models.CommandState | str] = ()
    ) -> AsyncGenerator[models.CommandRead, None]:
        """List commands, newest first."""
        query = {"state": [models.CommandState(state).value for state in states]}
        return list_all(
            self._transport, f"{self._path}/commands", models.Page[models.CommandRead], query
        )

    async def run_agent(
        self,
        agent: models.AgentName | str,
        prompt: str,
        *,
        on_event: Callback[[AgentEvent]] | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> models.AgentRunOutcome:
        """Run a coding agent on a prompt and wait until it ends; `on_event` receives its events as they arrive."""
        run = await self.start_agent(agent, prompt, **options)
        return await (run.wait() if on_event is None else forward_events(run, on_event))

    async def start_agent(
        self, agent: models.AgentName | str, prompt: str, **options: Unpack[AgentRunOptions]
    ) -> AsyncAgentRun:
        """Start a coding agent on a prompt."""
        body = request_body(models.AgentRunCreate, {"agent": agent, "prompt": prompt, **options})
        record = await begin(
            self._transport, self._path, "agent/runs", body, models.AgentRunOutcome
        )
        return AsyncAgentRun(self._transport, record)

    async def get_agent_run(self, run_id: str) -> AsyncAgentRun:
        """Get a run of an agent by its id."""
        request = call("GET", f"{self._path}/agent/runs/{segment(run_id)}")
        return AsyncAgentRun(
            self._transport, await self._transport.fetch(models.AgentRunOutcome, request)
        )

    def list_agent_runs(
        self, *, running: bool = False
    ) -> AsyncGenerator[models.AgentRunRead, None]:
        """List runs of agents, newest first."""
        path, query = f"{self._path}/agent/runs", {"running": running}
        return list_all(self._transport, path, models.Page[models.AgentRunRead], query)

    async def open_terminal(self, **options: Unpack[TerminalOptions]) -> AsyncTerminal:
        """Open a terminal, by default with a login shell. It keeps running when nobody is attached."""
        request = create(f"{self._path}/terminals", request_body(models.TerminalCreate, options))
        return AsyncTerminal(
            self._transport, await self._transport.fetch(models.TerminalRead, request)
        )

    async def attach_terminal(self, terminal_id: str, *, after: int | None = None) -> AsyncTerminal:
        """Attach to a terminal; its output starts at the beginning or after `after` bytes."""
        request = call("GET", f"{self._path}/terminals/{segment(terminal_id)}")
        record = await self._transport.fetch(models.TerminalRead, request)
        return AsyncTerminal(self._transport, record, after=after)

    def list_terminals(
        self, *, states: Iterable[models.CommandState | str] = ()
    ) -> AsyncGenerator[models.TerminalRead, None]:
        """List terminals, newest first. Default: running ones."""
        query = {"state": [models.CommandState(state).value for state in states]}
        return list_all(
            self._transport, f"{self._path}/terminals", models.Page[models.TerminalRead], query
        )
