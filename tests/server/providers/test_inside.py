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


async def test_inside__run_command_returns_stdout_stderr_and_exit_code(inside):
    finished = await inside.run_command("echo one; echo two >&2; exit 3", timeout=MINUTE)
    assert finished.exit_code == 3
    assert sorted(finished.output.split()) == [b"one", b"two"]


async def test_inside__run_command_returns_binary_output_unchanged(inside):
    finished = await inside.run_command(r"printf '\xff\x00\xfe'", timeout=MINUTE)
    assert finished == Finished(exit_code=0, output=b"\xff\x00\xfe", truncated=False)


async def test_inside__run_command_kills_at_the_timeout_and_reports_the_end_of_the_output(inside):
    with pytest.raises(CommandTimedOut, match="last words"):
        await inside.run_command(
            "echo last words; exec sleep 1001", timeout=timedelta(milliseconds=500)
        )

    async def is_gone():
        found = await inside.run_command("pgrep -f '^sleep 1001'", timeout=MINUTE)
        return found.exit_code != 0

    assert await until(is_gone)


async def test_inside__reads_a_file_completely(inside):
    await inside.run_command("seq 100000 > /tmp/numbers", timeout=MINUTE)
    content = "".join(f"{number}\n" for number in range(1, 100001)).encode()
    assert await inside.read_file("/tmp/numbers", limit=len(content)) == content


async def test_inside__a_missing_file_is_reported_with_its_path(inside):
    with pytest.raises(PathNotFound, match="/nowhere"):
        await inside.read_file("/nowhere", limit=100)


async def test_inside__refuses_to_read_a_directory(inside):
    with pytest.raises(PathRefused, match="/etc"):
        await inside.read_file("/etc", limit=100)


async def test_inside__refuses_a_path_below_a_file(inside):
    with pytest.raises(PathRefused, match="/etc/passwd/x"):
        await inside.read_file("/etc/passwd/x", limit=100)


async def test_inside__reports_a_full_disk(backend, access):
    full = await inside_failure(
        NotEnoughSpaceException("full"), backend.handle(access), name="local", path="/large"
    )
    assert isinstance(full, DiskFull)


async def test_inside__read_file_stops_at_its_limit(inside):
    await inside.run_command("truncate -s 100G /tmp/endless", timeout=MINUTE)
    with pytest.raises(FileTooLarge, match="1000 bytes"):
        await inside.read_file("/tmp/endless", limit=1000)


async def test_inside__a_deleted_sandbox_is_unavailable(backend, access, inside):
    await backend.kill(access.provider_id)
    for work in (
        inside.run_command("true", timeout=MINUTE),
        inside.read_file("/etc/passwd", limit=100),
    ):
        with pytest.raises(BackendUnavailable, match="does not run"):
            await work


async def test_inside__errors_contain_no_token(backend, access, inside):
    await backend.kill(access.provider_id)
    with pytest.raises(BackendUnavailable) as caught:
        await inside.read_file("/etc/passwd", limit=100)
    assert caught.value.__context__ is None
    assert access.envd_token not in repr(caught.value)


def test_output__keeps_the_end_of_too_much_output():
    output = Output(most=10)
    for chunk in (b"0123", b"456789", b"abc", b"", b"d" * 3):
        output.add(chunk)
    assert bytes(output) == b"6789abcddd"
    assert output.truncated


def test_output__keeps_output_below_the_limit():
    output = Output(most=4)
    output.add(b"ab")
    output.add(b"cd")
    assert bytes(output) == b"abcd"
    assert not output.truncated
