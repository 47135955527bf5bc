from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from connectrpc.code import Code
from connectrpc.errors import ConnectError

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

_T = TypeVar("_T")
_KEEPALIVE_SECONDS = 90
_DIGITS = 9


async def with_keepalives(
    receive: Callable[[], Awaitable[_T]], ctx: RequestContext[Any, Any]
) -> AsyncGenerator[_T | None, None]:
    """Yield received messages, and None whenever a keepalive is due.

    Raises an error when the call's timeout has elapsed.
    """
    keepalive = _keepalive_seconds(ctx)
    left = ctx.timeout_ms
    deadline = None if left is None else asyncio.get_running_loop().time() + left / 1000
    while True:
        left = None if deadline is None else deadline - asyncio.get_running_loop().time()
        wait = keepalive if left is None else min(keepalive, left)
        try:
            async with asyncio.timeout(wait):
                received = await receive()
        except TimeoutError as error:
            if wait != keepalive:
                text = "context deadline exceeded"
                raise ConnectError(Code.DEADLINE_EXCEEDED, text) from error
            yield None
        else:
            yield received


def _keepalive_seconds(ctx: RequestContext[Any, Any]) -> int:
    asked = ctx.request_headers.get("keepalive-ping-interval", "")
    is_number = asked.isascii() and asked.isdecimal() and int(asked[:_DIGITS]) > 0
    return int(asked[:_DIGITS]) if is_number else _KEEPALIVE_SECONDS
