import base64
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import timedelta

from sandbox_client.models import Encoding
from sandbox_server.commands.service import Commands
from sandbox_server.commands.waiting import require_started
from sandbox_server.db.models import Command, Sandbox
from sandbox_server.domain.access import Caller
from sandbox_server.domain.commands import CommandRequest, CommandState
from sandbox_server.domain.errors import CommandTimedOut, FileTooLarge, InvalidRequest
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.files.conditions import Conditions
from sandbox_server.files.contents import Body, FileContents
from sandbox_server.files.file_access import FileLocation
from sandbox_server.log.serialize import OUTPUT
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.sandboxes.waiting import require_running

PATIENCE = timedelta(seconds=55)
"""How long to wait for a sandbox; clients commonly give up after a minute."""

_MOST_OUTPUT = 4 * 1024 * 1024
_LAST_OUTPUT = 2000
_UNTIL_RECORDED = timedelta(seconds=30)
_KILLED_BY_SIGNAL = -1


@dataclass(frozen=True)
class CommandOutput:
    """The end of a finished command, with both streams in the order in which they were recorded."""

    exit_code: int
    content: bytes
    truncated: bool


class Verbs:
    """The use cases behind the nine verbs: each answers when its work is done, or fails."""

    def __init__(
        self,
        controller: SandboxController,
        commands: Commands,
        contents: FileContents,
        *,
        patience: timedelta = PATIENCE,
    ) -> None:
        self._controller = controller
        self._commands = commands
        self._contents = contents
        self._patience = patience

    async def create(
        self, caller: Caller, wanted: SandboxRequest, *, idempotency: Idempotency | None
    ) -> Sandbox:
        """Create a sandbox and wait until it runs.

        One that does not run in time is deleted, unless its caller can find it again with the idempotency key.
        """
        row = await self._controller.create(
            caller, wanted, idempotency=idempotency, wait=self._patience
        )
        if idempotency is None and row.state is not State.RUNNING:
            await self._controller.delete(caller, row.id, wait=timedelta(0))
        return require_running(row)

    async def connect(self, caller: Caller, sandbox_id: str) -> Sandbox:
        """Resume a sandbox if it is paused, and wait until it runs."""
        return require_running(
            await self._controller.connect(caller, sandbox_id, wait=self._patience)
        )

    async def wake(self, caller: Caller, sandbox_id: str) -> None:
        """Resume a sandbox for the requests that follow."""
        await self._controller.use(caller, sandbox_id, wait=self._patience)

    async def start_command(self, caller: Caller, sandbox_id: str, command: str) -> None:
        request = CommandRequest(cmd=command, background=True)
        require_started(
            await self._commands.start(caller, sandbox_id, request, wait=self._patience)
        )

    async def run_command(
        self, caller: Caller, sandbox_id: str, command: str, *, timeout: timedelta
    ) -> CommandOutput:
        """Run a command and wait for it; it is killed after `timeout`."""
        request = CommandRequest(cmd=command, timeout=timeout)
        row = await self._commands.start(caller, sandbox_id, request, wait=self._patience)
        row = await self._commands.wait_ended(row, wait=timeout + _UNTIL_RECORDED)
        content = await self._read_output(require_started(row))
        match row.state:
            case CommandState.EXITED | CommandState.KILLED:
                exit_code = _KILLED_BY_SIGNAL if row.exit_code is None else row.exit_code
                is_cut = row.stdout_size + row.stderr_size > len(content)
                return CommandOutput(exit_code, content, truncated=is_cut)
            case CommandState.TIMED_OUT:
                raise CommandTimedOut(timeout, output=_end_of(content))
            case _:
                sandbox = await self._controller.get(caller, sandbox_id)
                raise AnswerLost(str(sandbox.backend), _explain(row))

    async def read_file(self, caller: Caller, sandbox_id: str, path: str, *, limit: int) -> bytes:
        place = self._place(sandbox_id, path)
        async with self._contents.reading(caller, place, Conditions()) as content:
            read = bytearray()
            if content.opened is not None and content.opened.length <= limit:
                async for part in content.opened.parts:
                    read += part
            elif content.opened is not None:
                raise FileTooLarge(path, limit=limit)
            return bytes(read)

    async def write_file(self, caller: Caller, sandbox_id: str, path: str, content: bytes) -> None:
        """Create or replace a file; readers see the old or the new content, never a part."""
        body = Body(parts=_in_one_part(content), length=len(content))
        await self._contents.write(caller, self._place(sandbox_id, path), body, Conditions())

    def _place(self, sandbox_id: str, path: str) -> FileLocation:
        return FileLocation(sandbox_id=sandbox_id, path=path, user=None, wait=self._patience)

    async def _read_output(self, command: Command) -> bytes:
        records = await self._commands.read_ends(command, max_bytes=_MOST_OUTPUT)
        content = b"".join(record.content for record in records if record.type in OUTPUT)
        return content[-_MOST_OUTPUT:]


def decode(content: str, encoding: Encoding) -> bytes:
    if encoding is Encoding.UTF_8:
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        raise InvalidRequest(
            "The content is not valid base64, which `encoding` says it is."
        ) from None


def encode(content: bytes) -> tuple[str, Encoding]:
    """Write bytes as text, or as base64 if they are not UTF-8."""
    try:
        return content.decode(), Encoding.UTF_8
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), Encoding.BASE64


async def _in_one_part(content: bytes) -> AsyncGenerator[bytes, None]:
    yield content


def _end_of(output: bytes) -> str:
    return output[-_LAST_OUTPUT:].decode(errors="replace")


def _explain(command: Command) -> str:
    reason = command.state_reason or f"The command is {command.state}."
    return f"{reason} Its id is {command.id}."
