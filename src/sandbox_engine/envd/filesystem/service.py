from __future__ import annotations

import asyncio
import secrets
import string
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem import filesystem_pb as pb
from e2b.envd.filesystem.filesystem_connect import Filesystem
from protobuf import Oneof

from sandbox_engine.envd.filesystem.operations import UserFiles
from sandbox_engine.envd.filesystem.streams import with_keepalives
from sandbox_engine.envd.filesystem.watch import Watch, WatchResources
from sandbox_engine.envd.filesystem.watch_tree import WatchQuota
from sandbox_engine.envd.protocol.access import basic_user
from sandbox_engine.envd.protocol.codecs import encode_listing
from sandbox_engine.envd.protocol.entries import EntryReader
from sandbox_engine.rootfs.shared_descriptor import RootClosed
from sandbox_engine.system.file_threads import FileThreads

if TYPE_CHECKING:
    from connectrpc.request import RequestContext

    from sandbox_engine.sandboxes.sandbox import Sandbox

_T = TypeVar("_T")
_Response = pb.WatchDirResponse

_STARTED: Oneof[Literal["start"], _Response.StartEvent] = Oneof("start", _Response.StartEvent())
_ALIVE: Oneof[Literal["keepalive"], _Response.KeepAlive] = Oneof("keepalive", _Response.KeepAlive())

_LISTINGS_AT_ONCE = 2  # each may need more than 100 MB of memory
_ID_CHARACTERS = string.ascii_lowercase + string.digits


class FilesystemService(Filesystem):
    """E2B's `filesystem.Filesystem` service for one sandbox, served from the host."""

    def __init__(self, sandbox: Sandbox, workers: FileThreads) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._resources = WatchResources()
        self._listing = asyncio.Semaphore(_LISTINGS_AT_ONCE)
        self._polled: dict[str, Watch] = {}
        # Watchers that a client abandons stay until the sandbox ends.
        self._polled_watchers = WatchQuota(
            128, Code.RESOURCE_EXHAUSTED, "the sandbox has 128 watchers; remove one first"
        )

    async def stat(
        self, request: pb.StatRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.StatResponse:
        entry = await self._as_user(ctx, lambda files: files.stat(request.path))
        return pb.StatResponse(entry=entry)

    async def make_dir(
        self, request: pb.MakeDirRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.MakeDirResponse:
        entry = await self._as_user(ctx, lambda files: files.make_directory(request.path))
        return pb.MakeDirResponse(entry=entry)

    async def move(
        self, request: pb.MoveRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.MoveResponse:
        entry = await self._as_user(
            ctx, lambda files: files.move(request.source, request.destination)
        )
        return pb.MoveResponse(entry=entry)

    async def remove(
        self, request: pb.RemoveRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.RemoveResponse:
        await self._as_user(ctx, lambda files: files.remove(request.path))
        return pb.RemoveResponse()

    async def list_dir(
        self, request: pb.ListDirRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.ListDirResponse:
        content_type = ctx.request_headers.get("content-type", "")
        async with self._listing:
            encoded = await self._as_user(
                ctx,
                lambda files: encode_listing(
                    files.list(request.path, depth=request.depth or 1), content_type
                ),
            )
        return cast("pb.ListDirResponse", encoded)  # our codecs encode it as it is

    async def watch_dir(
        self, request: pb.WatchDirRequest, ctx: RequestContext[Any, Any], /
    ) -> AsyncIterator[pb.WatchDirResponse]:
        ctx.response_headers["x-accel-buffering"] = "no"
        watch = await self._watch(request, ctx)
        try:
            yield _Response(event=_STARTED)
            async with aclosing(with_keepalives(watch.receive, ctx)) as received:
                async for events in received:
                    for event in _responses(events):
                        yield event
        finally:
            await watch.close()

    async def create_watcher(
        self, request: pb.CreateWatcherRequest, ctx: RequestContext[Any, Any], /
    ) -> pb.CreateWatcherResponse:
        self._polled_watchers.take()
        try:
            watch = await self._watch(request, ctx)
        except BaseException:
            self._polled_watchers.give()
            raise
        watcher_id = "w" + "".join(secrets.choice(_ID_CHARACTERS) for _ in range(20))
        self._polled[watcher_id] = watch
        return pb.CreateWatcherResponse(watcher_id=watcher_id)

    async def get_watcher_events(
        self, request: pb.GetWatcherEventsRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.GetWatcherEventsResponse:
        watch = self._polled.get(request.watcher_id)
        if watch is None:
            raise _unknown_watcher(request.watcher_id)
        await watch.catch_up()
        return pb.GetWatcherEventsResponse(events=watch.take())

    async def remove_watcher(
        self, request: pb.RemoveWatcherRequest, _ctx: RequestContext[Any, Any], /
    ) -> pb.RemoveWatcherResponse:
        watch = self._polled.pop(request.watcher_id, None)
        if watch is None:
            raise _unknown_watcher(request.watcher_id)
        self._polled_watchers.give()
        await watch.close()
        return pb.RemoveWatcherResponse()

    async def _as_user(self, ctx: RequestContext[Any, Any], work: Callable[[UserFiles], _T]) -> _T:
        username = basic_user(ctx.request_headers.get("authorization"))
        try:
            return await self._workers.run(lambda: work(UserFiles(self._sandbox, username)))
        except RootClosed as error:
            raise ConnectError(Code.UNAVAILABLE, "the sandbox is gone") from error

    async def _watch(
        self,
        request: pb.WatchDirRequest | pb.CreateWatcherRequest,
        ctx: RequestContext[Any, Any],
    ) -> Watch:
        path, real_path = await self._as_user(
            ctx,
            lambda files: files.find_watched(
                request.path, allow_network=request.allow_network_mounts
            ),
        )
        watch = Watch(
            self._sandbox.root,
            path,
            real_path,
            recursive=request.recursive,
            reader=self._reader if request.include_entry else None,
            workers=self._workers,
            supplies=self._resources,
        )
        try:
            await watch.start()
        except BaseException:
            await watch.close()
            raise
        return watch

    def _reader(self) -> EntryReader:
        return EntryReader(self._sandbox.root, self._sandbox.accounts)


def _responses(events: list[pb.FilesystemEvent] | None) -> Iterator[pb.WatchDirResponse]:
    if events is None:
        yield _Response(event=_ALIVE)
        return
    for event in events:
        happened: Oneof[Literal["filesystem"], pb.FilesystemEvent] = Oneof("filesystem", event)
        yield _Response(event=happened)


def _unknown_watcher(watcher_id: str) -> ConnectError:
    return ConnectError(Code.NOT_FOUND, f"watcher with id {watcher_id} not found")
