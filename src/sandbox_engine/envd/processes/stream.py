from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.process import process_pb as pb
from protobuf import Oneof

from sandbox_engine.commands import (
    Command,
    CommandNotFound,
    Ended,
    SandboxGone,
)
from sandbox_engine.commands.spool import Output, SpoolFull
from sandbox_engine.keeper.client import KeeperLost
from sandbox_engine.rootfs.shared_descriptor import RootClosed
from sandbox_engine.sandboxes.sandbox import SandboxNotRunning

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

_KEEPALIVE = timedelta(seconds=90)
_SAME_DEADLINE = timedelta(seconds=1)
_Event = pb.ProcessEvent


@contextmanager
def speak_connect(sandbox_id: str) -> Iterator[None]:
    """Convert command errors to E2B's codes and messages."""
    try:
        yield
    except CommandNotFound as error:
        raise ConnectError(Code.NOT_FOUND, str(error)) from error
    except (SandboxGone, SandboxNotRunning, RootClosed) as error:
        text = f"the connection to sandbox {sandbox_id} ended before the stream completed"
        raise ConnectError(Code.UNAVAILABLE, text) from error
    except SpoolFull as error:
        raise ConnectError(Code.RESOURCE_EXHAUSTED, str(error)) from error
    except KeeperLost as error:
        raise ConnectError(Code.INTERNAL, str(error)) from error
    except TimeoutError as error:
        raise ConnectError(Code.DEADLINE_EXCEEDED, "context deadline exceeded") from error


def time_left(ctx: RequestContext[Any, Any]) -> timedelta | None:
    """Return the call's timeout; zero stands for none."""
    left = ctx.timeout_ms
    if left is None or ctx.request_headers.get("connect-timeout-ms") == "0":
        return None
    return timedelta(milliseconds=left)


async def follow(
    command: Command, ctx: RequestContext[Any, Any]
) -> AsyncGenerator[pb.ProcessEvent]:
    """Stream the command's events until it ends or the call times out."""
    ctx.response_headers["x-accel-buffering"] = "no"
    keepalive = _keepalive(ctx)
    with closing(command.follow()) as follower:
        yield _start(command.pid)
        while True:
            left = time_left(ctx)
            wait = keepalive if left is None else min(keepalive, left)
            try:
                async with asyncio.timeout(wait.total_seconds()):
                    happened = await follower.receive()
            except TimeoutError:
                if wait == left:
                    raise
                yield _keepalive_event()
                continue
            if isinstance(happened, Ended):
                if command.has_expired and left is not None and left < _SAME_DEADLINE:
                    raise TimeoutError  # the command's deadline was that of this call
                yield _end(happened)
                return
            yield _data(happened)


def _keepalive(ctx: RequestContext[Any, Any]) -> timedelta:
    # At least as often as E2B's default: writing detects clients that are gone.
    asked = ctx.request_headers.get("keepalive-ping-interval", "")
    if asked.isascii() and asked.isdecimal() and int(asked[:9]) > 0:
        return min(timedelta(seconds=int(asked[:9])), _KEEPALIVE)
    return _KEEPALIVE


def _start(pid: int) -> pb.ProcessEvent:
    event: Oneof[Literal["start"], _Event.StartEvent]
    event = Oneof("start", _Event.StartEvent(pid=pid))
    return _Event(event=event)


def _data(output: Output) -> pb.ProcessEvent:
    # The members of Stream have the names of the protocol's fields.
    piece: Oneof[Any, bytes] = Oneof(output.stream.value, output.data)
    event: Oneof[Literal["data"], _Event.DataEvent]
    event = Oneof("data", _Event.DataEvent(output=piece))
    return _Event(event=event)


def _keepalive_event() -> pb.ProcessEvent:
    event: Oneof[Literal["keepalive"], _Event.KeepAlive]
    event = Oneof("keepalive", _Event.KeepAlive())
    return _Event(event=event)


def _end(ended: Ended) -> pb.ProcessEvent:
    event: Oneof[Literal["end"], _Event.EndEvent]
    event = Oneof(
        "end",
        _Event.EndEvent(
            exit_code=ended.exit_code, exited=ended.exited, status=ended.status, error=ended.error
        ),
    )
    return _Event(event=event)
