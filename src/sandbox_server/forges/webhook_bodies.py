from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from fastapi import Request

from sandbox_server.domain.errors import LimitReached
from sandbox_server.http.faults import BodyTooLarge

LARGEST_BODY = 5 * 2**20
"""Forges send at most 25 MB, and usually less than 100 KB; a look at the pull request finds what was too large."""

_ALL_BODIES = 64 * 2**20


class WebhookBodies:
    """Reads bodies of requests that are not authenticated before they were read, within a limit for all of them."""

    def __init__(self) -> None:
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, whose memory counts until the block ends."""
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                self._held += len(chunk)
                self._require_room(len(body))
            yield bytes(body)
        finally:
            self._held -= len(body)

    def _require_room(self, size: int) -> None:
        if size > LARGEST_BODY:
            raise BodyTooLarge(LARGEST_BODY)
        if self._held > _ALL_BODIES:
            raise LimitReached(
                "This server is receiving too many large webhooks.",
                retry_after=timedelta(seconds=10),
            )
