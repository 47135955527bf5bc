import asyncio
import contextlib
import os
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_connect import FilesystemClient
from e2b.envd.filesystem.filesystem_pb import (
    CreateWatcherRequest,
    CreateWatcherResponse,
    EventType,
    GetWatcherEventsRequest,
    RemoveWatcherRequest,
    WatchDirRequest,
)

from tests.engine.bare_container import descriptors, eventually
from tests.engine.envd.file_tree import answering, file_box

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

HOME = "/home/user"


class Watching:
    """A stream of events, read in the background."""

    def __init__(self, messages):
        self._messages = messages
        self.events = []
        self.entries = {}

    async def until(self, name, kind):
        """Read on to this event; returns all since the last time."""
        async with asyncio.timeout(10):
            async for message in self._messages:
                if message.event.field != "filesystem":
                    continue
                event = message.event.value
                self.events.append((event.name, EventType(event.type).name))
                if event.entry is not None:
                    self.entries[event.name] = event.entry
                if self.events[-1] == (name, kind):
                    break
        events, self.events = self.events, []
        return events


@asynccontextmanager
async def watching(client, path="~", *, headers=None, timeout_ms=None, **options):
    messages = client.watch_dir(
        WatchDirRequest(path=path, **options), headers=headers, timeout_ms=timeout_ms
    )
    async with contextlib.aclosing(messages):
        async with asyncio.timeout(10):
            assert (await anext(messages)).event.field == "start"
        yield Watching(messages)


def watched_directories():
    """Count what this process has asked the kernel to watch."""
    count = 0
    for info in Path("/proc/self/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += info.read_text().count("inotify wd:")
    return count


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def _nothing_left_watched():
    yield
    await eventually(lambda: watched_directories() == 0)


async def test_watch__events_are_in_order(client, box):
    async with watching(client) as watch:
        box.run("echo 1 > new; echo 2 >> new; chmod 600 new; mv new moved; rm moved", uid=1000)
        assert await watch.until("moved", "REMOVE") == [
            ("new", "CREATE"),
            ("new", "WRITE"),
            ("new", "CHMOD"),
            ("new", "RENAME"),
            ("moved", "CREATE"),
            ("moved", "REMOVE"),
        ]


async def test_watch__uploads_and_other_calls_are_reported(client, http, box):
    async with watching(client) as watch:
        await http.post("/files", params={"path": "sent"}, files={"file": b"text"})
        events = await watch.until("sent", "WRITE")
        assert (events[0], events[-1]) == (("sent", "CREATE"), ("sent", "WRITE"))
        (box.inside / "home/user/touched").touch()
        assert (await watch.until("touched", "CREATE"))[-1] == ("touched", "CREATE")


async def test_watch__only_recursive_watch_reports_subdirectories(client, box):
    box.run("mkdir sub", uid=1000)
    async with watching(client) as flat, watching(client, recursive=True) as deep:
        box.run("touch sub/file last", uid=1000)
        assert await deep.until("last", "CREATE") == [
            ("sub/file", "CREATE"),
            ("sub/file", "CHMOD"),
            ("last", "CREATE"),
        ]
        assert await flat.until("last", "CREATE") == [("last", "CREATE")]


async def test_watch__new_directories_are_scanned(client, box):
    async with watching(client, recursive=True) as watch:
        box.run("mkdir -p a/b/c; touch a/x a/b/y a/b/c/z; echo done > last", uid=1000)
        told = await watch.until("last", "WRITE")
        created = [name for name, kind in told if kind == "CREATE"]
        assert sorted(created) == ["a", "a/b", "a/b/c", "a/b/c/z", "a/b/y", "a/x", "last"]
        assert created.index("a") < created.index("a/b") < created.index("a/b/c")
        box.run("echo more >> a/b/c/z", uid=1000)
        assert await watch.until("a/b/c/z", "WRITE") == [("a/b/c/z", "WRITE")]


async def test_watch__moved_directory_is_reported_by_its_new_name(client, box):
    box.run("mkdir -p a/b other", uid=1000)
    async with watching(client, recursive=True) as watch:
        box.run("mv a other/c; touch other/c/b/file", uid=1000)
        assert await watch.until("other/c/b/file", "CREATE") == [
            ("a", "RENAME"),
            ("other/c", "CREATE"),
            ("other/c/b/file", "CREATE"),
        ]


async def test_watch__directory_moved_out_is_unwatched_until_it_returns(client, box):
    box.run("mkdir -p watched/a/b", uid=1000)
    async with watching(client, "watched", recursive=True) as watch:
        box.run("mv watched/a away; touch away/b/unseen watched/last", uid=1000)
        assert await watch.until("last", "CHMOD") == [
            ("a", "RENAME"),
            ("last", "CREATE"),
            ("last", "CHMOD"),
        ]
        await eventually(lambda: watched_directories() == 1)
        box.run("mv away watched/back", uid=1000)
        assert await watch.until("back/b/unseen", "CREATE") == [
            ("back", "CREATE"),
            ("back/b", "CREATE"),
            ("back/b/unseen", "CREATE"),
        ]
        box.run("touch watched/back/b/file", uid=1000)
        assert await watch.until("back/b/file", "CREATE") == [("back/b/file", "CREATE")]


async def test_watch__the_watched_directory_is_named_dot(client, box):
    box.run("mkdir dir", uid=1000)
    async with watching(client, "dir") as watch:
        box.run("chmod 700 dir; mv dir moved; touch moved/file; rm -r moved", uid=1000)
        assert await watch.until(".", "REMOVE") == [
            (".", "CHMOD"),
            (".", "RENAME"),
            ("file", "CREATE"),
            ("file", "CHMOD"),
            ("file", "REMOVE"),
            (".", "REMOVE"),
        ]


async def test_watch__entries_are_included_while_they_exist(client, box):
    box.run("mkdir sub", uid=1000)
    async with watching(client, recursive=True, include_entry=True) as watch:
        box.run("umask 077; echo text > sub/file", uid=1000)
        await watch.until("sub/file", "WRITE")
        box.run("ln -s /etc/passwd sub/link", uid=1000)
        await watch.until("sub/link", "CREATE")
        box.run("rm sub/file", uid=1000)
        await watch.until("sub/file", "REMOVE")
    file, link = watch.entries["sub/file"], watch.entries["sub/link"]
    assert (file.path, file.owner, file.mode) == (f"{HOME}/sub/file", "user", 0o600)
    assert (link.is_symlink, link.symlink_target) == (True, "/etc/passwd")


async def test_watch__root_link_is_followed_but_not_links_inside(client, box):
    box.run("mkdir -p real other; ln -s real link; ln -s ../other real/out", uid=1000)
    async with watching(client, "link", recursive=True) as watch:
        box.run("touch other/unseen real/seen", uid=1000)
        assert await watch.until("seen", "CREATE") == [("seen", "CREATE")]


async def test_watch__several_watchers_each_get_all_events(client, box):
    async with watching(client) as first:
        async with watching(client) as second:
            box.run("touch a", uid=1000)
            told = await first.until("a", "CHMOD")
            assert await second.until("a", "CHMOD") == told
        box.run("touch b", uid=1000)
        assert await first.until("b", "CHMOD") == [("b", "CREATE"), ("b", "CHMOD")]


async def test_watch__disconnect_removes_all_watches(client, box):
    box.run("mkdir -p a/b/c", uid=1000)
    async with watching(client, recursive=True):
        assert watched_directories() == 4
    await eventually(lambda: watched_directories() == 0)


async def test_watch__stream_has_keepalives_and_a_deadline(client, box):
    messages = client.watch_dir(
        WatchDirRequest(path="~"), headers={"keepalive-ping-interval": "1"}, timeout_ms=2500
    )
    kinds = [(await anext(messages)).event.field for _ in range(3)]
    with pytest.raises(ConnectError) as ended:
        await anext(messages)
    assert ended.value.code is Code.DEADLINE_EXCEEDED
    assert kinds == ["start", "keepalive", "keepalive"]


async def test_watch__kernel_file_systems_are_not_watched(client, box):
    async with watching(client, "/", recursive=True) as watch:
        box.run("touch file", uid=1000)
        assert ("home/user/file", "CREATE") in await watch.until("home/user/file", "CHMOD")


@pytest.mark.parametrize(
    ("path", "code", "text"),
    [
        ("no", Code.NOT_FOUND, f"path {HOME}/no not found"),
        ("file", Code.INVALID_ARGUMENT, f"path {HOME}/file not a directory"),
        ("/proc", Code.INVALID_ARGUMENT, "run a command"),
        ("/proc/1/root", Code.FAILED_PRECONDITION, "cyclic symlink"),
        ("a\0b", Code.INVALID_ARGUMENT, "invalid characters"),
    ],
)
async def test_watch__unwatchable_paths_are_rejected(client, box, path, code, text):
    box.write(f"{HOME}/file")
    with pytest.raises(ConnectError, match=text) as streamed:
        async with watching(client, path):
            pass
    with pytest.raises(ConnectError, match=text) as polled:
        await client.create_watcher(CreateWatcherRequest(path=path))
    assert streamed.value.code is polled.value.code is code


# Watchers that are asked


async def events_of(client, watcher_id):
    request = GetWatcherEventsRequest(watcher_id=watcher_id)
    response = await client.get_watcher_events(request)
    return [(event.name, EventType(event.type).name) for event in response.events]


async def test_watch__watcher_collects_events_until_polled(client, box):
    made = await client.create_watcher(CreateWatcherRequest(path="~", recursive=True))
    assert len(made.watcher_id) == 21
    assert made.watcher_id.startswith("w")
    assert await events_of(client, made.watcher_id) == []
    box.run("mkdir sub; touch sub/file", uid=1000)
    collected = []
    async with asyncio.timeout(10):
        while ("sub/file", "CREATE") not in collected:
            collected += await events_of(client, made.watcher_id)
    assert collected[0] == ("sub", "CREATE")
    await client.remove_watcher(RemoveWatcherRequest(watcher_id=made.watcher_id))
    for gone in (made.watcher_id, "wnever"):
        with pytest.raises(ConnectError, match=f"watcher with id {gone} not found") as refused:
            await events_of(client, gone)
        assert refused.value.code is Code.NOT_FOUND
        with pytest.raises(ConnectError, match="not found"):
            await client.remove_watcher(RemoveWatcherRequest(watcher_id=gone))


async def test_watch__watchers_per_sandbox_are_limited(client, box):
    request = CreateWatcherRequest(path="~")
    answers = await asyncio.gather(
        *(client.create_watcher(request) for _ in range(140)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, ConnectError)]
    assert {answer.code for answer in refused} == {Code.RESOURCE_EXHAUSTED}
    made = [answer.watcher_id for answer in answers if isinstance(answer, CreateWatcherResponse)]
    assert len(made) == 128
    removals = [RemoveWatcherRequest(watcher_id=watcher_id) for watcher_id in made]
    await asyncio.gather(*(client.remove_watcher(removal) for removal in removals))


@pytest.mark.slow  # overflows queues of the kernel
async def test_watch__overflow_is_reported_to_the_slow_watcher_only(client, box):
    behind = await client.create_watcher(CreateWatcherRequest(path="~"))
    with file_box() as neighbour:
        async with answering(neighbour) as url:
            other = FilesystemClient(url)
            unharmed = await other.create_watcher(CreateWatcherRequest(path="~"))
            neighbour.run("mkdir seen", uid=1000)
            box.run("seq 40000 | xargs touch", uid=1000)
            await eventually(lambda: watched_directories() == 1)
            assert await events_of(other, unharmed.watcher_id) == [("seen", "CREATE")]
            await other.remove_watcher(RemoveWatcherRequest(watcher_id=unharmed.watcher_id))
    with pytest.raises(ConnectError, match="events were lost") as lost:
        await events_of(client, behind.watcher_id)
    assert lost.value.code is Code.INTERNAL
    await client.remove_watcher(RemoveWatcherRequest(watcher_id=behind.watcher_id))


# The end of a sandbox


async def test_watch__watchers_end_with_the_sandbox():
    with file_box() as box:
        async with answering(box) as url:
            client = FilesystemClient(url)
            made = await client.create_watcher(CreateWatcherRequest(path="~"))
            async with watching(client) as watch:
                box.root.close()
                with pytest.raises(ConnectError) as ended:
                    await watch.until("never", "CREATE")
            assert ended.value.code is Code.UNAVAILABLE
            with pytest.raises(ConnectError) as ended:
                await events_of(client, made.watcher_id)
            assert ended.value.code is Code.UNAVAILABLE
            await eventually(lambda: watched_directories() == 0)
            assert HOME not in descriptors(os.getpid())
