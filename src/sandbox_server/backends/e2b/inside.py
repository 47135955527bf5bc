import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.connection_config import KEEPALIVE_PING_HEADER, KEEPALIVE_PING_INTERVAL_SEC
from e2b.envd.client_async import as_stream, create_rpc_client, first_event
from e2b.envd.process.process_connect import ProcessClient
from e2b.envd.process.process_pb import ProcessConfig, ProcessEvent, StartRequest, StartResponse
from e2b.envd.utils import authentication_header, extract_start_pid, timeout_to_ms
from packaging.version import Version
from protobuf import Oneof

from sandbox_server.backends.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.backends.errors import AnswerLost
from sandbox_server.backends.provider import Finished
from sandbox_server.domain.errors import CommandTimedOut, FileTooLarge, SandboxError

T = TypeVar("T")
Events = AsyncGenerator[StartResponse, Any]

FILE_LIMIT = timedelta(minutes=2)

_START_LIMIT_S = 30
_MOST_OUTPUT = 4 * 1024 * 1024
_LAST_WORDS = 2000


class Output:
    """What a command wrote, of which the end is kept."""

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
    """Work in one sandbox, over connections of the SDK; the provider's control plane is not asked."""

    def __init__(
        self,
        name: str,
        sandbox: AsyncSandbox,
        *,
        envd_version: str,
        file_limit: timedelta = FILE_LIMIT,
    ) -> None:
        self._name = name
        self._file_limit = file_limit
        self._sandbox = sandbox
        self._version = Version(envd_version)
        self._keepalive = {KEEPALIVE_PING_HEADER: str(KEEPALIVE_PING_INTERVAL_SEC)}
        self._processes = create_rpc_client(
            ProcessClient, sandbox.envd_api_url, sandbox.connection_config
        )

    async def start_command(self, command: str) -> None:
        """Start a command that runs on when nobody listens any more."""
        async with aclosing(self._start(command, limit=None)) as events:
            await self._ask(first_event(events, _START_LIMIT_S))

    async def run_command(
        self,
        command: str,
        *,
        timeout: timedelta,
        user: str | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> Finished:
        """Wait for a command, which is killed when its time is up."""
        output = Output()
        starting = self._start(command, limit=timeout, user=user, envs=envs)
        async with aclosing(starting) as events:
            started = await self._ask(first_event(events, _START_LIMIT_S))
            pid = extract_start_pid(started, "start the command")
            try:
                exit_code = await self._ask(_follow(events, output))
            except _TimeIsUp:
                pass
            else:
                if exit_code is None:
                    raise AnswerLost(self._name, "the command's output broke off")
                return Finished(
                    exit_code=exit_code, output=bytes(output), truncated=output.truncated
                )
        with suppress(SandboxError):
            await self._ask(self._sandbox.commands.kill(pid))
        said = bytes(output)[-_LAST_WORDS:].decode(errors="replace")
        raise CommandTimedOut(timeout, output=said)

    async def read_file(self, path: str, *, limit: int) -> bytes:
        content = await self._ask(self._download(path, limit), path=path)
        if len(content) > limit:
            raise FileTooLarge(path, limit=limit)
        return content

    async def write_file(self, path: str, content: bytes) -> None:
        """Make the file, or replace what it holds; directories on the way are made too."""
        await self._ask(self._sandbox.files.write(path, content), path=path)

    async def _download(self, path: str, limit: int) -> bytes:
        content = bytearray()
        async with await self._sandbox.files.read(path, format="stream") as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > limit:
                    break
        return bytes(content)

    def _start(
        self,
        command: str,
        *,
        limit: timedelta | None,
        user: str | None = None,
        envs: Mapping[str, str] | None = None,
    ) -> Events:
        process = ProcessConfig(cmd="/bin/bash", args=["-l", "-c", command], envs=dict(envs or {}))
        return as_stream(
            self._processes.start(
                StartRequest(process=process, stdin=False),
                headers={**authentication_header(self._version, user), **self._keepalive},
                timeout_ms=None if limit is None else timeout_to_ms(limit.total_seconds()),
            )
        )

    async def _ask(self, work: Awaitable[T], *, path: str | None = None) -> T:
        # Who has root in a sandbox may answer byte by byte, each in time.
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
        # Out here it has no context: the SDK's errors can hold the request, and so its token.
        raise failure


class _TimeIsUp(Exception):
    """A stream has lasted as long as it may."""


async def _follow(events: Events, output: Output) -> int | None:
    try:
        async for event in events:
            match _payload(event):
                case Oneof(field="data", value=data) if data.output is not None:
                    output.add(data.output.value)
                case Oneof(field="end", value=ProcessEvent.EndEvent() as end):
                    return end.exit_code
    except ConnectError as error:
        if error.code is Code.DEADLINE_EXCEEDED:
            raise _TimeIsUp from None
        raise
    return None


def _payload(event: StartResponse) -> object:
    return None if event.event is None else event.event.event
