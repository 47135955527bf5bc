from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Unpack

from sandbox_client._async.agent_runs import AsyncAgentRun, forward_events
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
from sandbox_client._async.starting import begin
from sandbox_client._async.terminals import AsyncTerminal
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.events import AgentEvent, CommandEvent
from sandbox_client.models import (
    AgentName,
    AgentRunCreate,
    AgentRunOutcome,
    AgentRunRead,
    CommandCreate,
    CommandOutcome,
    CommandRead,
    CommandState,
    Page,
    TerminalCreate,
    TerminalRead,
)
from sandbox_client.protocol.calls import call, create, request_body, segment
from sandbox_client.protocol.options import AgentRunOptions, CommandOptions, TerminalOptions


class AsyncProcesses:
    """What runs in a sandbox: commands, agents and terminals. A paused sandbox wakes for them."""

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
    ) -> CommandOutcome:
        """Run a command to its end; with `check` it raises what does not exit with 0.

        What it writes is told as it does where there is somebody to tell. It runs on if nobody waits any more.
        """
        body = request_body(CommandCreate, {"cmd": cmd, **options})
        if on_stdout is None and on_stderr is None:
            outcome = await run_command(self._transport, self._path, body)
        else:
            command = await begin_command(self._transport, self._path, body)
            outcome = await forward_output(command, on_stdout, on_stderr)
        return require_success(outcome) if check else outcome

    async def stream(
        self, cmd: str, **options: Unpack[CommandOptions]
    ) -> AsyncGenerator[CommandEvent, None]:
        """Run a command and give what it writes as it does, until it has ended."""
        command = await self.begin(cmd, **options)
        async with aclosing(command.follow()) as events:
            async for event in events:
                yield event

    async def begin(
        self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]
    ) -> AsyncCommand:
        """Begin a command that somebody waits for, so that its sandbox is not idle meanwhile; gives it at once, to be followed."""
        body = request_body(CommandCreate, {"cmd": cmd, "stdin": stdin, **options})
        return await begin_command(self._transport, self._path, body)

    async def start(
        self, cmd: str, *, stdin: bool = False, **options: Unpack[CommandOptions]
    ) -> AsyncCommand:
        """Start a command that runs in the background; gives it when it has started."""
        body = request_body(
            CommandCreate, {"cmd": cmd, "stdin": stdin, "background": True, **options}
        )
        return await start_command(self._transport, self._path, body)

    async def get_command(self, command_id: str) -> AsyncCommand:
        """Find a command, to follow it or to see what has become of it."""
        request = call("GET", f"{self._path}/commands/{segment(command_id)}")
        return AsyncCommand(self._transport, await self._transport.fetch(CommandOutcome, request))

    def list_commands(
        self, *, states: Iterable[CommandState | str] = ()
    ) -> AsyncGenerator[CommandRead, None]:
        """Give its commands, newest first."""
        query = {"state": [CommandState(state).value for state in states]}
        return list_all(self._transport, f"{self._path}/commands", Page[CommandRead], query)

    async def run_agent(
        self,
        agent: AgentName | str,
        prompt: str,
        *,
        on_event: Callback[[AgentEvent]] | None = None,
        **options: Unpack[AgentRunOptions],
    ) -> AgentRunOutcome:
        """Have a coding agent carry out a prompt to its end; what it says is told as it does."""
        run = await self.start_agent(agent, prompt, **options)
        return await (run.wait() if on_event is None else forward_events(run, on_event))

    async def start_agent(
        self, agent: AgentName | str, prompt: str, **options: Unpack[AgentRunOptions]
    ) -> AsyncAgentRun:
        """Have a coding agent begin with a prompt."""
        body = request_body(AgentRunCreate, {"agent": agent, "prompt": prompt, **options})
        record = await begin(self._transport, self._path, "agent/runs", body, AgentRunOutcome)
        return AsyncAgentRun(self._transport, record)

    async def get_agent_run(self, run_id: str) -> AsyncAgentRun:
        """Find an agent's run, to follow it or to see what has become of it."""
        request = call("GET", f"{self._path}/agent/runs/{segment(run_id)}")
        return AsyncAgentRun(self._transport, await self._transport.fetch(AgentRunOutcome, request))

    def list_agent_runs(self, *, running: bool = False) -> AsyncGenerator[AgentRunRead, None]:
        """Give the runs of agents in it, newest first."""
        path, query = f"{self._path}/agent/runs", {"running": running}
        return list_all(self._transport, path, Page[AgentRunRead], query)

    async def open_terminal(self, **options: Unpack[TerminalOptions]) -> AsyncTerminal:
        """Start a terminal, by default a login shell; it runs on when nobody is attached."""
        request = create(f"{self._path}/terminals", request_body(TerminalCreate, options))
        return AsyncTerminal(self._transport, await self._transport.fetch(TerminalRead, request))

    async def attach_terminal(self, terminal_id: str, *, after: int | None = None) -> AsyncTerminal:
        """Find a terminal, to see it from the start, or from after so many bytes, and to type in it."""
        request = call("GET", f"{self._path}/terminals/{segment(terminal_id)}")
        record = await self._transport.fetch(TerminalRead, request)
        return AsyncTerminal(self._transport, record, after=after)

    def list_terminals(
        self, *, states: Iterable[CommandState | str] = ()
    ) -> AsyncGenerator[TerminalRead, None]:
        """Give its terminals, newest first; without states those that run."""
        query = {"state": [CommandState(state).value for state in states]}
        return list_all(self._transport, f"{self._path}/terminals", Page[TerminalRead], query)
