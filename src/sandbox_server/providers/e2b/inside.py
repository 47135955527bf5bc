import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from e2b import AsyncSandbox

from sandbox_server.domain.errors import CommandTimedOut, FileTooLarge, SandboxError
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.errors import AnswerLost
from sandbox_server.providers.protocol.processes import Ended, NewProcess, ProcessSignal, TimeIsUp
from sandbox_server.providers.protocol.processes import Output as Piece
from sandbox_server.providers.protocol.provider import Finished

T = TypeVar("T")

FILE_LIMIT = timedelta(minutes=2)

_MOST_OUTPUT = 4 * 1024 * 1024
_LAST_WORDS = 2000
_BY_SIGNAL = -1


class Output:
    """The output of a command, of which the end is kept."""

    def __init__(self, most: int = _MOST_OUTPUT) -> None:
        self._most = most
        self._chunks: deque[bytes] = deque()
        self._kept = 0
        self.size = 0

    def __bytes__(self) -> bytes:
        return b"".join(self._chunks)[-self._most :]

    @property
    def truncated(self) -> bool:
        return self.size > self._most

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self.size += len(chunk)
        self._kept += len(chunk)
        while self._kept - len(self._chunks[0]) >= self._most:
            self._kept -= len(self._chunks.popleft())


class Inside:
    """Commands and files of one sandbox, without the provider's control plane."""

    def __init__(
        self,
        name: str,
        sandbox: AsyncSandbox,
        *,
        processes: Processes,
        directories: WorkingDirectories,
        file_limit: timedelta = FILE_LIMIT,
    ) -> None:
        self._name = name
        self._file_limit = file_limit
        self._sandbox = sandbox
        self._processes = processes
        self._directories = directories

    async def run_command(
        self,
        command: str,
        *,
        timeout: timedelta,
        user: str | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> Finished:
        """Run a command; it is killed at its timeout."""
        output, tag = Output(), new_id()
        process = replace(_shell(command), tag=tag, user=user, envs=envs or {})
        try:
            async with aclosing(self._processes.start(process, timeout=timeout)) as events:
                async for event in events:
                    match event:
                        case Piece():
                            output.add(event.content)
                        case Ended():
                            return _finished(event, output)
        except TimeIsUp:
            pass
        else:
            raise AnswerLost(self._name, "the command's output broke off")
        with suppress(SandboxError):
            await self._processes.send_signal(tag, ProcessSignal.KILL)
        tail = bytes(output)[-_LAST_WORDS:].decode(errors="replace")
        raise CommandTimedOut(timeout, output=tail)

    async def read_file(self, path: str, *, limit: int) -> bytes:
        found = await self._directories.resolve(path, user=None)
        content = await self._ask(self._download(found, limit), path=path)
        if len(content) > limit:
            raise FileTooLarge(path, limit=limit)
        return content

    async def _download(self, path: str, limit: int) -> bytes:
        content = bytearray()
        async with await self._sandbox.files.read(path, format="stream") as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > limit:
                    break
        return bytes(content)

    async def _ask(self, work: Awaitable[T], *, path: str | None = None) -> T:
        # Root in a sandbox can answer byte by byte, each within the timeout.
        limit = None if path is None else self._file_limit.total_seconds()
        failure: SandboxError
        try:
            async with asyncio.timeout(limit) as patience:
                return await work
        except INSIDE_FAILURES as error:
            if patience.expired():
                failure = AnswerLost(self._name, f"the sandbox takes longer than {limit:g} s")
            else:
                failure = await inside_failure(error, self._sandbox, name=self._name, path=path)
        # Raised outside of the handler, without context: the SDK's errors can hold the request with its token.
        raise failure


def _shell(command: str) -> NewProcess:
    return NewProcess(args=["/bin/bash", "-l", "-c", command])


def _finished(ended: Ended, output: Output) -> Finished:
    exit_code = _BY_SIGNAL if ended.exit_code is None else ended.exit_code
    return Finished(exit_code=exit_code, output=bytes(output), truncated=output.truncated)
