"""Streams as Server-Sent Events: the one way in which all of them are answered."""

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
    "description": "As events of `text/event-stream`, if the header `Accept` asks for them.",
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
    "description": "A stream of which all was told; nothing will follow.",
}

# The server ends its streams itself, before its connections; a signal to another server in the process ends none of ours.
AppStatus.enable_automatic_graceful_drain = False

_LARGEST_NUMBER = 2**63 - 1
_MOST_OF_TAIL = 10_000
_HEARTBEAT_S = 15
_RECHECK_EVERY = timedelta(seconds=3)
# When a client comes back whose connection was lost; not all of them at once.
_RETRY_MS = range(1000, 2000)

After = Annotated[
    int | None,
    Query(ge=0, le=_LARGEST_NUMBER, description="Tell what came after the event of this number."),
]
LastEventId = Annotated[
    int | None,
    Header(
        alias="Last-Event-ID",
        ge=0,
        le=_LARGEST_NUMBER,
        description="The `id` of the last event that came; a browser sends it by itself. It goes before `after`.",
    ),
]
Tail = Annotated[
    int | None,
    Query(
        ge=0,
        le=_MOST_OF_TAIL,
        description="Begin a stream with so many of the last events, if no number says where.",
    ),
]


def asks_for_events(request: Request) -> bool:
    return accepts_events(request.headers)


def accepts_events(headers: Headers) -> bool:
    asked = ",".join(headers.getlist("accept")).split(",")
    return any(one.partition(";")[0].strip().lower() == MEDIA_TYPE for one in asked)


class CallerCheck(Protocol):
    async def recheck(self, caller: Caller) -> Caller:
        """Check again whether a caller still has access; raises where not."""
        ...


class EventStreams:
    """Answers requests with Server-Sent Events, for as long as the caller has access."""

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
        """Answer with a stream from its start, or from where the client stopped; 204 where nothing is left and nothing will follow."""
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
                log.info("stream ended reason=%s", error)
                follower.end()
            except OUTAGES as error:
                log.warning("cannot check the access of a stream's caller error=%r", error)


EventStreamsDep = Annotated[EventStreams, depends_on(EventStreams)]


@dataclass(frozen=True)
class CreatedStream:
    """Answers the request that created something with its stream, if the client asks for events."""

    request: Request
    events: EventStreams

    @property
    def is_wanted(self) -> bool:
        return asks_for_events(self.request)

    async def respond(self, source: Source, *, path: str, stream: str) -> Response:
        """Name in headers what was created, and where its stream is resumed."""
        headers = {"Location": path, "Content-Location": f"{path}/{stream}"}
        return await self.events.stream(self.request, source, headers=headers)


async def find_created_stream(request: Request, events: EventStreamsDep) -> CreatedStream:
    return CreatedStream(request, events)


CreatedStreamDep = Annotated[CreatedStream, Depends(find_created_stream)]


@dataclass(frozen=True)
class Listener:
    """One who asks for what may be answered as a stream, and where that is to begin."""

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
        return asks_for_events(self.request)

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
    yield b": this stream is open\nretry: %d\n\n" % retry
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
