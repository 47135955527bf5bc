"""Server-sent events: all streams of the API are answered here."""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Protocol

from fastapi import Depends, Header, Query, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import AppStatus
from starlette.datastructures import Headers

from sandbox_server.db.session import OUTAGES, cancelled_once
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import AccessDenied
from sandbox_server.http.connection import abort_of, connection_of
from sandbox_server.http.deps import depends_on
from sandbox_server.log.follower import Follower, LogFollower
from sandbox_server.log.hub import StreamHub
from sandbox_server.log.source import Source

log = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
EVENT_STREAM: dict[str, Any] = {
    "description": "Server-sent events, if the request has `Accept: text/event-stream`.",
    "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
}
STARTED_STREAM: dict[str, Any] = {
    **EVENT_STREAM,
    "headers": {
        "Location": {
            "description": "Path of the resource that the request created.",
            "schema": {"type": "string"},
        },
        "Content-Location": {
            "description": "Path of the same stream: send `Last-Event-ID` there to resume it.",
            "schema": {"type": "string"},
        },
    },
}
EVENTS_OVER: dict[str, Any] = {
    "model": None,
    "description": "The stream has ended and there are no events after this position.",
}

# The server ends its streams itself, before it closes connections; signals must not end streams of another server in this process.
AppStatus.enable_automatic_graceful_drain = False

_LARGEST_NUMBER = 2**63 - 1
_MOST_OF_TAIL = 10_000
_HEARTBEAT_S = 15
_RECHECK_EVERY = timedelta(seconds=3)
# Reconnection delay of clients, randomized so that they do not all reconnect at once.
_RETRY_MS = range(1000, 2000)

After = Annotated[
    int | None,
    Query(ge=0, le=_LARGEST_NUMBER, description="Return only events after this number."),
]
LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=_LARGEST_NUMBER,
        description="`id` of the last received event; browsers send it when they reconnect. Takes precedence over `after`.",
    ),
]
Tail = Annotated[
    int | None,
    Query(
        ge=0,
        le=_MOST_OF_TAIL,
        description="Start the stream with this many of the latest events, unless a position is given.",
    ),
]


def accepts_events(headers: Headers) -> bool:
    media_types = ",".join(headers.getlist("accept")).split(",")
    return any(each.partition(";")[0].strip().lower() == MEDIA_TYPE for each in media_types)


class CallerCheck(Protocol):
    async def recheck(self, caller: Caller) -> Caller:
        """Check again that a caller still has access, or raise."""
        ...


class EventStreams:
    """Answers requests with server-sent events for as long as the caller has access."""

    def __init__(self, streams: StreamHub, callers: CallerCheck) -> None:
        self._streams = streams
        self._callers = callers

    async def stream(
        self,
        request: Request,
        source: Source,
        *,
        after: int | None = None,
        last_event_id: int | None = None,
        tail: int | None = None,
        meanwhile: AbstractContextManager[None] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Answer with the stream from its start or from the client's position; 204 if it has ended and nothing is left."""
        follower = await self._streams.follow(
            source,
            after=after if last_event_id is None else last_event_id,
            tail=tail,
            cut=abort_of(request.scope),
        )
        if follower.is_over:
            return Response(status_code=204)
        texts = _texts(follower, meanwhile or nullcontext())
        return self.respond(request, follower, texts, headers=headers)

    def respond(
        self,
        request: Request,
        follower: Follower,
        texts: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Answer with serialized events."""
        connection = connection_of(request.scope)
        if connection is not None:
            connection.keep_little_unsent()
        return EventSourceResponse(
            _opened(texts),
            headers=headers,
            ping=_HEARTBEAT_S,
            ping_message_factory=_heartbeat,
            data_sender_callable=lambda: self._recheck(request.state.caller, follower),
        )

    def registered(self, follower: Follower) -> AbstractContextManager[None]:
        return self._streams.registered(follower)

    async def _recheck(self, caller: Caller, follower: Follower) -> None:
        """End the stream when its caller loses access."""
        while True:
            await asyncio.sleep(_RECHECK_EVERY.total_seconds())
            try:
                await cancelled_once(self._callers.recheck(caller))
            except AccessDenied as error:
                log.info("stream ended: access revoked reason=%s", error)
                follower.end()
            except OUTAGES as error:
                log.warning("could not recheck a stream's caller error=%r", error)


EventStreamsDep = Annotated[EventStreams, depends_on(EventStreams)]


@dataclass(frozen=True)
class CreatedStream:
    """Answers the request that created a resource with its stream, if the client accepts events."""

    request: Request
    events: EventStreams

    @property
    def is_wanted(self) -> bool:
        return accepts_events(self.request.headers)

    async def respond(self, source: Source, *, path: str, stream: str) -> Response:
        """Respond with the stream; headers name the created resource and where the stream can be resumed."""
        headers = {"Location": path, "Content-Location": f"{path}/{stream}"}
        return await self.events.stream(self.request, source, headers=headers)


async def find_created_stream(request: Request, events: EventStreamsDep) -> CreatedStream:
    return CreatedStream(request, events)


CreatedStreamDep = Annotated[CreatedStream, Depends(find_created_stream)]


@dataclass(frozen=True)
class Listener:
    """A request that may be answered with a stream, and the position at which to start."""

    request: Request
    events: EventStreams
    after: int | None
    last_event_id: int | None
    tail: int | None

    @property
    def caller(self) -> Caller:
        caller: Caller = self.request.state.caller
        return caller

    @property
    def asks_for_events(self) -> bool:
        return accepts_events(self.request.headers)

    async def stream(
        self, source: Source, *, meanwhile: AbstractContextManager[None] | None = None
    ) -> Response:
        return await self.events.stream(
            self.request,
            source,
            after=self.after,
            last_event_id=self.last_event_id,
            tail=self.tail,
            meanwhile=meanwhile,
        )


async def find_listener(
    request: Request,
    events: EventStreamsDep,
    after: After = None,
    last_event_id: LastEventId = None,
    tail: Tail = None,
) -> Listener:
    return Listener(request, events, after, last_event_id, tail)


ListenerDep = Annotated[Listener, Depends(find_listener)]


async def _opened(texts: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    retry = secrets.choice(_RETRY_MS)
    yield b": connected\nretry: %d\n\n" % retry
    async with aclosing(texts):
        async for text in texts:
            yield text


async def _texts(
    follower: LogFollower, meanwhile: AbstractContextManager[None]
) -> AsyncGenerator[bytes, None]:
    with meanwhile:
        async with aclosing(follower.blocks()) as blocks:
            async for block in blocks:
                yield block.text


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="", sep="\n")
