import asyncio
import zlib
from collections.abc import AsyncGenerator
from datetime import timedelta
from http import HTTPStatus

from starlette.types import Receive

from sandbox_server.git.endpoint.refusals import GitRefused

_IDLE = timedelta(seconds=60)


class ClientGone(Exception):
    """The client has disconnected in the middle of its request."""


async def read_body(receive: Receive, *, limit: int) -> AsyncGenerator[bytes, None]:
    """Read a body in the parts in which it arrives; a client that sends nothing for a minute is gone."""
    received, is_last = 0, False
    while not is_last:
        try:
            async with asyncio.timeout(_IDLE.total_seconds()):
                message = await receive()
        except TimeoutError:
            raise ClientGone from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        is_last = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        received += len(part)
        if received > limit:
            raise too_large(limit)
        if part:
            yield part


async def read_small(receive: Receive, *, limit: int) -> bytes:
    """Read a body that is held in memory."""
    return b"".join([part async for part in read_body(receive, limit=limit)])


def inflate(packed: bytes, *, limit: int) -> bytes:
    """Decompress a gzip body; a small one can become a large one."""
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        plain = inflater.decompress(packed, limit)
    except zlib.error:
        raise GitRefused(HTTPStatus.BAD_REQUEST, "the body is not valid gzip.") from None
    if inflater.unconsumed_tail:
        raise too_large(limit)
    return plain


def too_large(limit: int) -> GitRefused:
    return GitRefused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request has more than {limit >> 20} MiB."
    )
