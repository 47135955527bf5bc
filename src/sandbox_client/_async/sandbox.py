from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self, Unpack

from sandbox_client._async.arrival import Progress, arrive, first_wait, settled
from sandbox_client._async.commands import (
    AsyncCommand,
    begin_command,
    require_success,
    run_command,
    start_command,
    tell_output,
)
from sandbox_client._async.files import AsyncFiles
from sandbox_client._async.means import Callback
from sandbox_client._async.pages import list_all
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.calls import call, create, given, segment
from sandbox_client.errors import SandboxError
from sandbox_client.events import CommandEvent
from sandbox_client.models import (
    CommandCreate,
    CommandOutcome,
    CommandRead,
    CommandState,
    KeepAlive,
    MetricRead,
    Page,
    SandboxFork,
    SandboxRead,
    SandboxUpdate,
    SnapshotCreate,
    SnapshotRead,
    TimelineEntry,
)
from sandbox_client.options import CommandOptions, ForkOptions, SandboxChanges
from sandbox_client.outcomes import has_come_back, is_paused
from sandbox_client.patience import Patience


class AsyncSandbox:
    """A sandbox. One that was created here is deleted at the end of its block; one that was found stays."""

    def __init__(
        self, transport: AsyncTransport, record: SandboxRead, *, is_ours: bool = False
    ) -> None:
        self._transport = transport
        self._is_ours = is_ours
        self.record = record
        """What was last known of it."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.id}"
        self.files = AsyncFiles(transport, f"{self._path}/files")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_ours:
            return
        if error is None:
            await self.delete()
            return
        with suppress(SandboxError):  # what ended the block says more
            await self.delete()

    async def refresh(self) -> SandboxRead:
        """Ask what it is now."""
        return await self._ask("GET")

    async def wait_running(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> SandboxRead:
        """Wait until it runs; waking it is `resume`."""
        self.record = await settled(
            self._transport,
            await self.refresh(),
            has_come_back,
            patience=Patience(wait_s),
            on_progress=on_progress,
        )
        return self.record

    async def pause(self, *, wait_s: float | None = 60) -> SandboxRead:
        """Freeze it; its memory and files survive until it is resumed."""
        patience = Patience(wait_s)
        asked = call("POST", f"{self._path}/pause", may_repeat=True)
        record = await self._transport.ask(SandboxRead, asked)
        self.record = await settled(self._transport, record, is_paused, patience=patience)
        return self.record

    async def resume(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> SandboxRead:
        """Let it run on; without room it waits in the queue."""
        patience = Patience(wait_s)
        first = first_wait(patience, on_progress)
        asked = call("POST", f"{self._path}/resume", may_repeat=True, wait=first)
        self.record = await settled(
            self._transport,
            await self._transport.ask(SandboxRead, asked),
            has_come_back,
            patience=patience,
            on_progress=on_progress,
        )
        return self.record

    async def delete(self) -> None:
        """End it and all that is in it; one that has ended already stays so."""
        await self._transport.remove(call("DELETE", self._path))

    async def update(self, **changes: Unpack[SandboxChanges]) -> SandboxRead:
        """Change what is named, and leave the rest as it is."""
        return await self._ask("PATCH", body=SandboxUpdate.model_validate(changes))

    async def keepalive(
        self, awake_s: float = 300, *, timeout_s: float | None = None
    ) -> SandboxRead:
        """Keep it from its idle pause for so long, though nothing happens in it."""
        body = given(KeepAlive, {"awake_s": awake_s, "timeout_s": timeout_s})
        asked = call("POST", f"{self._path}/keepalive", body, may_repeat=True)
        self.record = await self._transport.ask(SandboxRead, asked)
        return self.record

    async def fork(
        self,
        *,
        wait_s: float | None = 600,
        on_progress: Progress | None = None,
        **own: Unpack[ForkOptions],
    ) -> "AsyncSandbox":
        """Start a copy of it with its files as they are now."""
        asked = create(f"{self._path}/fork", given(SandboxFork, own))
        record = await arrive(self._transport, asked, wait_s=wait_s, on_progress=on_progress)
        return AsyncSandbox(self._transport, record, is_ours=True)

    async def run(
        self,
        cmd: str,
        *,
        check: bool = False,
        on_stdout: Callback[[str]] | None = None,
        on_stderr: Callback[[str]] | None = None,
        **how: Unpack[CommandOptions],
    ) -> CommandOutcome:
        """Run a command to its end; with `check` it raises what does not exit with 0.

        What it writes is told as it does where there is somebody to tell. It runs on if nobody waits any more.
        """
        body = given(CommandCreate, {"cmd": cmd, **how})
        if on_stdout is None and on_stderr is None:
            outcome = await run_command(self._transport, self._path, body)
        else:
            command = await begin_command(self._transport, self._path, body)
            outcome = await tell_output(command, on_stdout, on_stderr)
        return require_success(outcome) if check else outcome

    async def stream(
        self, cmd: str, **how: Unpack[CommandOptions]
    ) -> AsyncGenerator[CommandEvent, None]:
        """Run a command and give what it writes as it does, until it has ended."""
        body = given(CommandCreate, {"cmd": cmd, **how})
        command = await begin_command(self._transport, self._path, body)
        async with aclosing(command.follow()) as events:
            async for event in events:
                yield event

    async def start(
        self, cmd: str, *, stdin: bool = False, **how: Unpack[CommandOptions]
    ) -> AsyncCommand:
        """Start a command that runs in the background; gives it when it has started."""
        body = given(CommandCreate, {"cmd": cmd, "stdin": stdin, "background": True, **how})
        return await start_command(self._transport, self._path, body)

    async def get_command(self, command_id: str) -> AsyncCommand:
        """Find a command, to follow it or to see what has become of it."""
        asked = call("GET", f"{self._path}/commands/{segment(command_id)}")
        return AsyncCommand(self._transport, await self._transport.ask(CommandOutcome, asked))

    def list_commands(
        self, *, states: Iterable[CommandState | str] = ()
    ) -> AsyncIterator[CommandRead]:
        """Give its commands, newest first."""
        query = {"state": [CommandState(state).value for state in states]}
        return list_all(self._transport, f"{self._path}/commands", CommandRead, query)

    async def snapshot(self, name: str | None = None) -> SnapshotRead:
        """Keep it as it is now; the snapshot's id is a template to create sandboxes from."""
        asked = create(f"{self._path}/snapshots", given(SnapshotCreate, {"name": name}))
        return await self._transport.ask(SnapshotRead, asked)

    def list_snapshots(self) -> AsyncIterator[SnapshotRead]:
        """Give what was kept of it, newest first."""
        return list_all(self._transport, f"{self._path}/snapshots", SnapshotRead)

    async def metrics(self) -> list[MetricRead]:
        """Tell what it used over time, oldest first."""
        asked = call("GET", f"{self._path}/metrics")
        return (await self._transport.ask(Page[MetricRead], asked)).items

    async def timeline(self) -> list[TimelineEntry]:
        """Tell how it came to be what it is: each state it was in, what caused it, who, and why."""
        told = list_all(self._transport, f"{self._path}/timeline", TimelineEntry)
        return [entry async for entry in told]

    async def _ask(self, method: str, body: SandboxUpdate | None = None) -> SandboxRead:
        self.record = await self._transport.ask(SandboxRead, call(method, self._path, body))
        return self.record
