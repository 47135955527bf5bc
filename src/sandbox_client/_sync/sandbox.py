from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from types import TracebackType
from typing import Self, Unpack

from sandbox_client._sync.arrival import Progress, arrive, first_wait, settled
from sandbox_client._sync.commands import (
    Command,
    begin_command,
    require_success,
    run_command,
    start_command,
    tell_output,
)
from sandbox_client._sync.files import Files
from sandbox_client._sync.means import Callback
from sandbox_client._sync.pages import list_all
from sandbox_client._sync.transport import Transport
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


class Sandbox:
    """A sandbox. One that was created here is deleted at the end of its block; one that was found stays."""

    def __init__(self, transport: Transport, record: SandboxRead, *, is_ours: bool = False) -> None:
        self._transport = transport
        self._is_ours = is_ours
        self.record = record
        """What was last known of it."""
        self.id = record.id
        self._path = f"/v1/sandboxes/{record.id}"
        self.files = Files(transport, f"{self._path}/files")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_ours:
            return
        if error is None:
            self.delete()
            return
        with suppress(SandboxError):  # what ended the block says more
            self.delete()

    def refresh(self) -> SandboxRead:
        """Ask what it is now."""
        return self._ask("GET")

    def wait_running(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> SandboxRead:
        """Wait until it runs; waking it is `resume`."""
        self.record = settled(
            self._transport,
            self.refresh(),
            has_come_back,
            patience=Patience(wait_s),
            on_progress=on_progress,
        )
        return self.record

    def pause(self, *, wait_s: float | None = 60) -> SandboxRead:
        """Freeze it; its memory and files survive until it is resumed."""
        patience = Patience(wait_s)
        asked = call("POST", f"{self._path}/pause", may_repeat=True)
        record = self._transport.ask(SandboxRead, asked)
        self.record = settled(self._transport, record, is_paused, patience=patience)
        return self.record

    def resume(
        self, *, wait_s: float | None = 600, on_progress: Progress | None = None
    ) -> SandboxRead:
        """Let it run on; without room it waits in the queue."""
        patience = Patience(wait_s)
        first = first_wait(patience, on_progress)
        asked = call("POST", f"{self._path}/resume", may_repeat=True, wait=first)
        self.record = settled(
            self._transport,
            self._transport.ask(SandboxRead, asked),
            has_come_back,
            patience=patience,
            on_progress=on_progress,
        )
        return self.record

    def delete(self) -> None:
        """End it and all that is in it; one that has ended already stays so."""
        self._transport.remove(call("DELETE", self._path))

    def update(self, **changes: Unpack[SandboxChanges]) -> SandboxRead:
        """Change what is named, and leave the rest as it is."""
        return self._ask("PATCH", body=SandboxUpdate.model_validate(changes))

    def keepalive(self, awake_s: float = 300, *, timeout_s: float | None = None) -> SandboxRead:
        """Keep it from its idle pause for so long, though nothing happens in it."""
        body = given(KeepAlive, {"awake_s": awake_s, "timeout_s": timeout_s})
        asked = call("POST", f"{self._path}/keepalive", body, may_repeat=True)
        self.record = self._transport.ask(SandboxRead, asked)
        return self.record

    def fork(
        self,
        *,
        wait_s: float | None = 600,
        on_progress: Progress | None = None,
        **own: Unpack[ForkOptions],
    ) -> "Sandbox":
        """Start a copy of it with its files as they are now."""
        asked = create(f"{self._path}/fork", given(SandboxFork, own))
        record = arrive(self._transport, asked, wait_s=wait_s, on_progress=on_progress)
        return Sandbox(self._transport, record, is_ours=True)

    def run(
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
            outcome = run_command(self._transport, self._path, body)
        else:
            command = begin_command(self._transport, self._path, body)
            outcome = tell_output(command, on_stdout, on_stderr)
        return require_success(outcome) if check else outcome

    def stream(
        self, cmd: str, **how: Unpack[CommandOptions]
    ) -> Generator[CommandEvent, None, None]:
        """Run a command and give what it writes as it does, until it has ended."""
        body = given(CommandCreate, {"cmd": cmd, **how})
        command = begin_command(self._transport, self._path, body)
        with closing(command.follow()) as events:
            yield from events

    def start(self, cmd: str, *, stdin: bool = False, **how: Unpack[CommandOptions]) -> Command:
        """Start a command that runs in the background; gives it when it has started."""
        body = given(CommandCreate, {"cmd": cmd, "stdin": stdin, "background": True, **how})
        return start_command(self._transport, self._path, body)

    def get_command(self, command_id: str) -> Command:
        """Find a command, to follow it or to see what has become of it."""
        asked = call("GET", f"{self._path}/commands/{segment(command_id)}")
        return Command(self._transport, self._transport.ask(CommandOutcome, asked))

    def list_commands(self, *, states: Iterable[CommandState | str] = ()) -> Iterator[CommandRead]:
        """Give its commands, newest first."""
        query = {"state": [CommandState(state).value for state in states]}
        return list_all(self._transport, f"{self._path}/commands", CommandRead, query)

    def snapshot(self, name: str | None = None) -> SnapshotRead:
        """Keep it as it is now; the snapshot's id is a template to create sandboxes from."""
        asked = create(f"{self._path}/snapshots", given(SnapshotCreate, {"name": name}))
        return self._transport.ask(SnapshotRead, asked)

    def list_snapshots(self) -> Iterator[SnapshotRead]:
        """Give what was kept of it, newest first."""
        return list_all(self._transport, f"{self._path}/snapshots", SnapshotRead)

    def metrics(self) -> list[MetricRead]:
        """Tell what it used over time, oldest first."""
        asked = call("GET", f"{self._path}/metrics")
        return (self._transport.ask(Page[MetricRead], asked)).items

    def timeline(self) -> list[TimelineEntry]:
        """Tell how it came to be what it is: each state it was in, what caused it, who, and why."""
        told = list_all(self._transport, f"{self._path}/timeline", TimelineEntry)
        return list(told)

    def _ask(self, method: str, body: SandboxUpdate | None = None) -> SandboxRead:
        self.record = self._transport.ask(SandboxRead, call(method, self._path, body))
        return self.record
