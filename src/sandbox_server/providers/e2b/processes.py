import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any, Literal, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b import AsyncSandbox
from e2b.connection_config import KEEPALIVE_PING_HEADER, KEEPALIVE_PING_INTERVAL_SEC
from e2b.envd.client_async import as_stream
from e2b.envd.process import process_pb as pb
from e2b.envd.process.process_connect import ProcessClient
from e2b.envd.rpc import is_transport_failure
from e2b.envd.utils import authentication_header, timeout_to_ms
from packaging.version import Version
from protobuf import Oneof

from sandbox_server.domain.commands import TerminalSize
from sandbox_server.domain.errors import (
    BackendError,
    BackendRefused,
    PathNotFound,
    SandboxError,
    StdinClosed,
)
from sandbox_server.domain.errors.storable_text import storable
from sandbox_server.providers.e2b.bounded_transport import envd_client
from sandbox_server.providers.e2b.inside_failures import INSIDE_FAILURES, inside_failure
from sandbox_server.providers.e2b.working_directories import WorkingDirectories
from sandbox_server.providers.protocol.errors import AnswerLost, ProcessGone
from sandbox_server.providers.protocol.processes import (
    Ended,
    GroupSignal,
    NewProcess,
    Output,
    OutputStream,
    ProcessEvent,
    ProcessSignal,
    RunningProcess,
    Started,
    TimeIsUp,
)

T = TypeVar("T")
Events = AsyncGenerator[ProcessEvent, None]
_Message = pb.StartResponse | pb.ConnectResponse

_CALL_LIMIT_S = 30.0
_KILL_LIMIT = timedelta(seconds=10)
# A stream sends keepalives more often than this.
_SILENCE_S = 3.0 * KEEPALIVE_PING_INTERVAL_SEC
# By then the sandbox has killed a process at its timeout and reported it.
_GRACE_S = 5.0
_EARLY_S = 1.0
# Sandboxes are not trusted; envd sends output in parts of 64 KiB.
_LARGEST_MESSAGE = 4 * 1024 * 1024
_LONGEST_WORDS = 500
_SIGNALS = {ProcessSignal.TERM: pb.Signal.SIGTERM, ProcessSignal.KILL: pb.Signal.SIGKILL}


class Processes:
    """Processes of one sandbox, with their output as raw bytes."""

    def __init__(
        self,
        name: str,
        sandbox: AsyncSandbox,
        *,
        envd_version: str,
        directories: WorkingDirectories,
    ) -> None:
        self._name = name
        self._directories = directories
        self._sandbox = sandbox
        self._version = Version(envd_version)
        self._client = envd_client(partial(ProcessClient, read_max_bytes=_LARGEST_MESSAGE), sandbox)

    async def start(self, process: NewProcess, *, timeout: timedelta | None = None) -> Events:
        """Start a process and follow it; it continues without a follower, until its timeout."""
        request = _request(process, cwd=await self._find_cwd(process))
        headers = self._headers(process.user)
        limit_ms = None if timeout is None else timeout_to_ms(timeout.total_seconds())
        if limit_ms is not None:
            # Sent to the sandbox only: the library's own timer would cancel our consumer.
            headers["Connect-Timeout-Ms"] = str(limit_ms)
        stream = self._client.start(request, headers=headers)
        async with aclosing(self._events(stream, timeout)) as events:
            async for event in events:
                yield event

    def connect(self, tag: str, *, timeout: timedelta | None = None) -> Events:
        """Follow a process from now on."""
        request = pb.ConnectRequest(process=_selector(tag))
        return self._events(self._client.connect(request, headers=self._headers()), timeout)

    async def list(self) -> Sequence[RunningProcess]:
        """List running processes."""
        answer = await self._call(self._client.list(pb.ListRequest(), **self._asked()))
        return [RunningProcess(process.pid, process.tag or None) for process in answer.processes]

    async def send_input(self, tag: str, content: bytes, *, terminal: bool) -> None:
        """Write to a process's stdin or terminal; returns when the input was accepted."""
        kind: Literal["pty", "stdin"] = "pty" if terminal else "stdin"
        data: Oneof[Any, bytes] = Oneof(kind, content)
        request = pb.SendInputRequest(process=_selector(tag), input=pb.ProcessInput(input=data))
        await self._call(self._client.send_input(request, **self._asked()), is_input=True)

    async def close_stdin(self, tag: str) -> None:
        """Close a process's stdin."""
        request = pb.CloseStdinRequest(process=_selector(tag))
        await self._call(self._client.close_stdin(request, **self._asked()), is_input=True)

    async def send_signal(self, tag: str, signal: ProcessSignal) -> None:
        request = pb.SendSignalRequest(process=_selector(tag), signal=_SIGNALS[signal])
        await self._call(self._client.send_signal(request, **self._asked()))

    async def signal_group(self, pid: int, signal: GroupSignal) -> None:
        """Send a signal that the protocol lacks to a process group, as a terminal does."""
        line = f"kill -s {signal.removeprefix('SIG')} -- -{pid}"
        kill = NewProcess(args=["/bin/sh", "-c", line], user="root")
        try:
            async with aclosing(self.start(kill, timeout=_KILL_LIMIT)) as events:
                async for event in events:
                    if isinstance(event, Ended) and event.exit_code == 0:
                        return
        except TimeIsUp:
            raise AnswerLost(self._name, "a signal was not sent in time") from None
        raise ProcessGone(self._name, "no process took the signal")

    async def resize(self, tag: str, size: TerminalSize) -> None:
        """Resize a process's terminal."""
        request = pb.UpdateRequest(process=_selector(tag), pty=_terminal(size))
        await self._call(self._client.update(request, **self._asked()))

    async def _find_cwd(self, process: NewProcess) -> str | None:
        if process.cwd is None:
            return None
        try:
            return await self._directories.resolve(process.cwd, user=process.user)
        except PathNotFound as error:
            raise BackendRefused(self._name, str(error)) from None

    def _headers(self, user: str | None = None) -> dict[str, str]:
        return {
            **authentication_header(self._version, user),
            KEEPALIVE_PING_HEADER: str(KEEPALIVE_PING_INTERVAL_SEC),
        }

    def _asked(self) -> Mapping[str, Any]:
        return {"headers": self._headers(), "timeout_ms": timeout_to_ms(_CALL_LIMIT_S)}

    async def _events(self, stream: AsyncIterator[_Message], timeout: timedelta | None) -> Events:
        loop = asyncio.get_running_loop()
        over = None if timeout is None else loop.time() + timeout.total_seconds() + _GRACE_S
        patience = _CALL_LIMIT_S
        async with aclosing(as_stream(stream)) as messages:
            while True:
                left = patience if over is None else min(patience, over - loop.time())
                try:
                    message = await self._next(messages, left)
                except AnswerLost:
                    if over is not None and loop.time() >= over - _GRACE_S - _EARLY_S:
                        raise TimeIsUp from None
                    raise
                if message is None:
                    return
                event = _event_of(message)
                if event is not None:
                    yield event
                if isinstance(event, Ended):
                    return
                if over is not None and loop.time() >= over:
                    raise TimeIsUp
                patience = _SILENCE_S

    async def _next(self, messages: AsyncGenerator[_Message, Any], limit: float) -> _Message | None:
        failure: SandboxError
        try:
            async with asyncio.timeout(limit) as patience:
                return await anext(messages, None)
        except INSIDE_FAILURES as error:
            if patience.expired():
                failure = AnswerLost(self._name, "the sandbox sent no data for too long")
            else:
                failure = await self._failure(error)
        # Raised outside of the handler, without context: the SDK's errors can hold the request with its token.
        raise failure

    async def _call(self, work: Awaitable[T], *, is_input: bool = False) -> T:
        failure: SandboxError
        try:
            return await work
        except INSIDE_FAILURES as error:
            if is_input and _code(error) is Code.FAILED_PRECONDITION:
                failure = StdinClosed()
            else:
                failure = await self._failure(error)
        raise failure

    async def _failure(self, error: Exception) -> SandboxError:
        if _code(error) is Code.NOT_FOUND:
            return ProcessGone(self._name, _words(str(error)))
        failure = await inside_failure(error, self._sandbox, name=self._name, path=None)
        if is_transport_failure(error) and type(failure) is BackendError:
            return AnswerLost(self._name, failure.reason)
        return failure


def _code(error: Exception) -> Code | None:
    return error.code if isinstance(error, ConnectError) else None


def _request(process: NewProcess, *, cwd: str | None) -> pb.StartRequest:
    command, *args = process.args
    config = pb.ProcessConfig(cmd=command, args=args, envs=dict(process.envs))
    if cwd is not None:
        config.cwd = cwd
    request = pb.StartRequest(process=config, stdin=process.stdin)
    if process.tag is not None:
        request.tag = process.tag
    if process.size is not None:
        request.pty = _terminal(process.size)
    return request


def _terminal(size: TerminalSize) -> pb.PTY:
    return pb.PTY(size=pb.PTY.Size(cols=size.cols, rows=size.rows))


def _selector(tag: str) -> pb.ProcessSelector:
    selector: Oneof[Literal["tag"], str] = Oneof("tag", tag)
    return pb.ProcessSelector(selector=selector)


def _event_of(message: _Message) -> ProcessEvent | None:
    match None if message.event is None else message.event.event:
        case Oneof(field="start", value=pb.ProcessEvent.StartEvent() as started):
            return Started(started.pid)
        case Oneof(field="data", value=pb.ProcessEvent.DataEvent() as data):
            piece = data.output
            return None if piece is None else Output(OutputStream(piece.field), piece.value)
        case Oneof(field="end", value=pb.ProcessEvent.EndEvent() as end):
            words = _words(end.error or end.status)
            return Ended(end.exit_code if end.exited else None, words)
        case _:
            return None


def _words(text: str) -> str:
    """Shorten a text of the sandbox."""
    return storable(text[:_LONGEST_WORDS])
