"""Directories watched through the unmodified SDK: streaming in the asynchronous one, polled in the other."""

import secrets

import pytest
from e2b import (
    FileNotFoundException,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    SandboxException,
)

from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

CREATE, WRITE, CHMOD, REMOVE, RENAME = (
    FilesystemEventType.CREATE,
    FilesystemEventType.WRITE,
    FilesystemEventType.CHMOD,
    FilesystemEventType.REMOVE,
    FilesystemEventType.RENAME,
)


@pytest.fixture
def place(shared_sync):
    """Make a directory of the test's own, for the synchronous SDK."""
    path = f"/home/user/{secrets.token_hex(4)}"
    shared_sync.files.make_dir(path)
    return path


@pytest.fixture
async def watching(shared, directory):
    """Watch the test's directory; gives what is seen, as it is seen."""
    watches = []

    async def watch(**options):
        seen: list[FilesystemEvent] = []
        watches.append(await shared.files.watch_dir(directory, seen.append, **options))
        return seen

    yield watch
    for one in watches:
        await one.stop()


async def _names(seen, kind, *names):
    async def have_come():
        return {event.name for event in seen if event.type is kind} >= set(names)

    await until(have_come)


async def test_watch__reports_uploads_and_commands(shared, directory, watching):
    seen = await watching()
    await shared.files.write(f"{directory}/uploaded", "x")
    await shared.commands.run(
        "echo x > made; chmod 600 made; mv made moved; rm moved", cwd=directory
    )
    await _names(seen, REMOVE, "moved")
    happened = [(event.type, event.name) for event in seen]
    for expected in (
        (CREATE, "uploaded"),
        (WRITE, "uploaded"),
        (CREATE, "made"),
        (WRITE, "made"),
        (CHMOD, "made"),
        (RENAME, "made"),
        (CREATE, "moved"),
        (REMOVE, "moved"),
    ):
        assert expected in happened
    assert happened.index((WRITE, "uploaded")) < happened.index((CREATE, "made"))
    assert happened.index((RENAME, "made")) < happened.index((REMOVE, "moved"))


async def test_watch__recursive_watch_reports_subdirectories(shared, directory, watching):
    await shared.files.make_dir(f"{directory}/old")
    flat, deep = await watching(), await watching(recursive=True)
    await shared.files.write(f"{directory}/old/file", "x")
    await shared.commands.run("mkdir -p new/newer && touch new/newer/file", cwd=directory)
    await shared.files.write(f"{directory}/last", "x")
    await _names(deep, CREATE, "old/file", "new", "new/newer", "new/newer/file", "last")
    await _names(flat, CREATE, "new", "last")
    assert not [event.name for event in flat if "/" in event.name]


async def test_watch__events_contain_entries_on_request(shared, directory, watching):
    bare, full = await watching(), await watching(include_entry=True)
    await shared.files.write(f"{directory}/file", "12345", metadata={"kind": "x"})
    await shared.files.remove(f"{directory}/file")
    await _names(bare, REMOVE, "file")
    await _names(full, REMOVE, "file")
    assert {event.entry for event in bare} == {None}
    assert full[-1].entry is None
    described = [event.entry for event in full if event.entry is not None]
    assert all(entry.path == f"{directory}/file" for entry in described)


async def test_watch__stopped_watch_ends(shared, directory):
    seen: list[FilesystemEvent] = []
    ends: list[Exception | None] = []
    watch = await shared.files.watch_dir(directory, seen.append, on_exit=ends.append)
    await shared.files.write(f"{directory}/file", "x")
    await _names(seen, CREATE, "file")
    await watch.stop()
    assert ends == [None]
    seen.clear()
    await shared.files.write(f"{directory}/other", "x")
    assert not seen


async def test_watch__ends_at_its_timeout(shared, directory):
    ends: list[Exception | None] = []
    await shared.files.watch_dir(directory, print, on_exit=ends.append, timeout=0.5)

    async def has_ended():
        return bool(ends)

    await until(has_ended)
    assert "deadline" in str(ends[0]) or "timeout" in str(ends[0])


async def test_watch__ends_when_the_sandbox_is_killed(sandbox):
    ends: list[Exception | None] = []
    await sandbox.files.watch_dir("/home/user", print, on_exit=ends.append, timeout=0)
    await sandbox.kill()

    async def has_ended():
        return bool(ends)

    await until(has_ended)
    assert isinstance(ends[0], SandboxException)


def test_watch__poll_returns_events_of_earlier_calls(shared_sync, place):
    watch = shared_sync.files.watch_dir(place)
    for number in range(50):
        shared_sync.files.write(f"{place}/{number}", "x")
        events = watch.get_new_events()
        assert (CREATE, f"{number}") in [(event.type, event.name) for event in events]
        assert {event.name for event in events} == {f"{number}"}
    shared_sync.commands.run(f"rm {place}/7")
    assert [(event.type, event.name) for event in watch.get_new_events()][-1] == (REMOVE, "7")
    assert watch.get_new_events() == []
    watch.stop()


def test_watch__new_directories_are_watched_from_the_start(shared_sync, place):
    watch = shared_sync.files.watch_dir(place, recursive=True)
    for number in range(20):
        shared_sync.files.write(f"{place}/{number}/a/b/file", "x")
        created = {event.name for event in watch.get_new_events() if event.type is CREATE}
        assert created >= {f"{number}", f"{number}/a", f"{number}/a/b", f"{number}/a/b/file"}
    watch.stop()


def test_watch__polled_events_contain_entries(shared_sync, place):
    watch = shared_sync.files.watch_dir(place, include_entry=True)
    shared_sync.files.write(f"{place}/file", "12345")
    entries = [event.entry for event in watch.get_new_events()]
    assert {entry.path for entry in entries} == {f"{place}/file"}
    assert entries[-1].type is FileType.FILE
    assert (entries[-1].size, entries[-1].owner) == (5, "user")
    watch.stop()


def test_watch__removed_watcher_is_not_found(shared_sync, place):
    watch = shared_sync.files.watch_dir(place)
    watch.stop()
    with pytest.raises(SandboxException, match="already stopped"):
        watch.get_new_events()
    watch._closed = False
    with pytest.raises(SandboxException, match="not found"):
        watch.get_new_events()


def test_watch__missing_directory_is_rejected(shared_sync, place):
    shared_sync.files.write(f"{place}/file", "x")
    with pytest.raises(FileNotFoundException):
        shared_sync.files.watch_dir(f"{place}/none")
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        shared_sync.files.watch_dir(f"{place}/file")
