from datetime import timedelta

import pytest
from e2b.exceptions import NotEnoughSpaceException

from sandbox_server.domain.errors import (
    BackendUnavailable,
    CommandTimedOut,
    DiskFull,
    FileTooLarge,
    PathNotFound,
    PathRefused,
)
from sandbox_server.providers.e2b.inside import Output
from sandbox_server.providers.e2b.inside_failures import inside_failure
from sandbox_server.providers.protocol.provider import Finished
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def access(backend, wanted):
    return await backend.create(wanted)


@pytest.fixture
def inside(backend, access):
    return backend.inside(access)


async def test_a_command_gives_both_outputs_as_they_came_and_its_exit_code(inside):
    finished = await inside.run_command("echo one; echo two >&2; exit 3", timeout=MINUTE)
    assert finished.exit_code == 3
    assert sorted(finished.output.split()) == [b"one", b"two"]


async def test_bytes_that_are_no_text_arrive_as_they_are(inside):
    finished = await inside.run_command(r"printf '\xff\x00\xfe'", timeout=MINUTE)
    assert finished == Finished(exit_code=0, output=b"\xff\x00\xfe", truncated=False)


async def test_a_command_is_killed_when_its_time_is_up_and_its_last_words_are_told(inside):
    with pytest.raises(CommandTimedOut, match="last words"):
        await inside.run_command(
            "echo last words; exec sleep 1001", timeout=timedelta(milliseconds=500)
        )

    async def is_gone():
        found = await inside.run_command("pgrep -f '^sleep 1001'", timeout=MINUTE)
        return found.exit_code != 0

    assert await until(is_gone)


async def test_a_command_in_the_background_runs_on(inside):
    await inside.start_command("sleep 0.2; echo done > /tmp/done")
    assert await until(lambda: is_there(inside, "/tmp/done"))


async def is_there(inside, path):
    return (await inside.run_command(f"test -s {path}", timeout=MINUTE)).exit_code == 0


async def test_a_file_is_written_with_its_directories_and_read_as_it_was(inside):
    content = bytes(range(256)) * 1000
    await inside.write_file("/home/user/a/b/c", content)
    assert await inside.read_file("/home/user/a/b/c", limit=len(content)) == content


async def test_a_file_that_is_not_there_is_told_by_its_path(inside):
    with pytest.raises(PathNotFound, match="/nowhere"):
        await inside.read_file("/nowhere", limit=100)


async def test_a_directory_is_no_file(inside):
    with pytest.raises(PathRefused, match="/etc"):
        await inside.read_file("/etc", limit=100)
    with pytest.raises(PathRefused, match="/etc"):
        await inside.write_file("/etc", b"")


async def test_a_file_below_a_file_is_refused(inside):
    with pytest.raises(PathRefused, match="/etc/passwd/x"):
        await inside.write_file("/etc/passwd/x", b"")


async def test_a_full_disk_is_told(backend, access):
    full = await inside_failure(
        NotEnoughSpaceException("full"), backend.handle(access), name="local", path="/large"
    )
    assert isinstance(full, DiskFull)


async def test_a_file_that_never_ends_is_not_read_to_the_end(inside):
    await inside.run_command("truncate -s 100G /tmp/endless", timeout=MINUTE)
    with pytest.raises(FileTooLarge, match="1000 bytes"):
        await inside.read_file("/tmp/endless", limit=1000)


async def test_in_a_sandbox_that_is_gone_nothing_can_be_done(backend, access, inside):
    await backend.kill(access.provider_id)
    for work in (
        inside.run_command("true", timeout=MINUTE),
        inside.start_command("true"),
        inside.read_file("/etc/passwd", limit=100),
        inside.write_file("/tmp/x", b""),
    ):
        with pytest.raises(BackendUnavailable, match="does not run"):
            await work


async def test_an_error_holds_no_token(backend, access, inside):
    await backend.kill(access.provider_id)
    with pytest.raises(BackendUnavailable) as caught:
        await inside.read_file("/etc/passwd", limit=100)
    assert caught.value.__context__ is None
    assert access.envd_token not in repr(caught.value)


def test_of_too_much_output_the_end_is_kept():
    output = Output(most=10)
    for chunk in (b"0123", b"456789", b"abc", b"", b"d" * 3):
        output.add(chunk)
    assert bytes(output) == b"6789abcddd"
    assert output.truncated


def test_output_that_fits_is_all_there():
    output = Output(most=4)
    output.add(b"ab")
    output.add(b"cd")
    assert bytes(output) == b"abcd"
    assert not output.truncated
