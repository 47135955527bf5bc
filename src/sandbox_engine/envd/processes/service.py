from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_pb as pb
from e2b.envd.process.process_connect import Process
from protobuf import Oneof

from sandbox_engine.commands import Command, InputRefused
from sandbox_engine.envd.processes.start import resolve, start_error, terminal_size
from sandbox_engine.envd.processes.stream import follow, speak_connect, time_left
from sandbox_engine.keeper.client import LaunchFailed

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

    from sandbox_engine.sandboxes.sandbox import Sandbox

_SIGNALS = {
    pb.Signal.SIGTERM: signal.SIGTERM,
    pb.Signal.SIGKILL: signal.SIGKILL,
}


class ProcessService(Process):
    """E2B's `process.Process` service for one sandbox, served from the host."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._table = sandbox.commands

    async def list(
        self, _request: pb.ListRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.ListResponse:
        return pb.ListResponse(processes=[_info(command) for command in self._table.list()])

    async def start(
        self, request: pb.StartRequest, ctx: RequestContext[Any, Any], /
    ) -> AsyncIterator[pb.StartResponse]:
        with speak_connect(self._sandbox.id):
            left = time_left(ctx)
            deadline = None if left is None else datetime.now(UTC) + left
            wanted = resolve(request, self._sandbox, ctx.request_headers.get("authorization"))
            try:
                command = await self._table.start(wanted, deadline=deadline)
            except LaunchFailed as error:
                raise start_error(wanted, str(error)) from error
            async with aclosing(follow(command, ctx)) as events:
                async for event in events:
                    yield pb.StartResponse(event=event)

    async def connect(
        self, request: pb.ConnectRequest, ctx: RequestContext[Any, Any], /
    ) -> AsyncIterator[pb.ConnectResponse]:
        with speak_connect(self._sandbox.id):
            command = _find(request.process, self._table.recall_by_pid, self._table.recall_by_tag)
            async with aclosing(follow(command, ctx)) as events:
                async for event in events:
                    yield pb.ConnectResponse(event=event)

    async def update(
        self, request: pb.UpdateRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.UpdateResponse:
        command = self._running(request.process)
        if request.pty is not None and request.pty.size is not None:
            try:
                command.resize(terminal_size(request.pty))
            except (InputRefused, OSError) as error:
                raise ConnectError(Code.INTERNAL, f"error resizing tty: {error}") from error
        return pb.UpdateResponse()

    async def send_input(
        self, request: pb.SendInputRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.SendInputResponse:
        command = self._running(request.process)
        await self._write(command, request.input, ctx)
        return pb.SendInputResponse()

    async def stream_input(
        self, request: AsyncIterator[pb.StreamInputRequest], ctx: RequestContext[Any, Any], /
    ) -> pb.StreamInputResponse:
        command: Command | None = None
        async for message in request:
            match message.event:
                case Oneof(_, pb.StreamInputRequest.StartEvent() as start):
                    command = self._running(start.process)
                case Oneof(_, pb.StreamInputRequest.DataEvent() as data) if command is not None:
                    await self._write(command, data.input, ctx)
                case Oneof("data"):
                    raise ConnectError(Code.INVALID_ARGUMENT, "input came before its process")
                case Oneof("keepalive"):
                    pass
                case _:
                    raise ConnectError(Code.UNIMPLEMENTED, "invalid event type <nil>")
        return pb.StreamInputResponse()

    async def send_signal(
        self, request: pb.SendSignalRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.SendSignalResponse:
        command = self._running(request.process)
        number = _SIGNALS.get(request.signal)
        if number is None:
            raise ConnectError(Code.UNIMPLEMENTED, f"invalid signal: {request.signal}")
        command.signal(number)
        return pb.SendSignalResponse()

    async def close_stdin(
        self, request: pb.CloseStdinRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.CloseStdinResponse:
        command = self._running(request.process)
        try:
            command.close_stdin()
        except InputRefused as error:
            raise ConnectError(Code.FAILED_PRECONDITION, f"error closing stdin: {error}") from error
        return pb.CloseStdinResponse()

    def _running(self, selector: pb.ProcessSelector | None) -> Command:
        with speak_connect(self._sandbox.id):
            return _find(selector, self._table.by_pid, self._table.by_tag)

    async def _write(
        self, command: Command, process_input: pb.ProcessInput | None, ctx: RequestContext[Any, Any]
    ) -> None:
        match process_input and process_input.input:
            case Oneof("stdin", data):
                name, terminal = "stdin", False
            case Oneof("pty", data):
                name, terminal = "tty", True
            case _:
                raise ConnectError(Code.UNIMPLEMENTED, "invalid input type <nil>")
        left = time_left(ctx)
        with speak_connect(self._sandbox.id):
            try:
                async with asyncio.timeout(None if left is None else left.total_seconds()):
                    await command.write(data, terminal=terminal)
            except (InputRefused, BrokenPipeError) as error:
                cause = "broken pipe" if isinstance(error, BrokenPipeError) else error
                raise ConnectError(
                    Code.FAILED_PRECONDITION, f"error writing to {name}: {cause}"
                ) from error
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectError(
                    Code.INTERNAL, f"error writing to {name}: {error.strerror}"
                ) from error


def _find(
    selector: pb.ProcessSelector | None,
    by_pid: Callable[[int], Command],
    by_tag: Callable[[str], Command],
) -> Command:
    match selector and selector.selector:
        case Oneof(_, int(pid)):
            return by_pid(pid)
        case Oneof(_, str(tag)):
            return by_tag(tag)
        case _:
            raise ConnectError(Code.UNIMPLEMENTED, "invalid input type <nil>")


def _info(command: Command) -> pb.ProcessInfo:
    request = command.request
    config = pb.ProcessConfig(
        cmd=request.cmd, args=list(request.args), envs=dict(request.envs), cwd=request.cwd
    )
    return pb.ProcessInfo(config=config, pid=command.pid, tag=request.tag)
