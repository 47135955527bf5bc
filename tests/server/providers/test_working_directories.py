from contextlib import aclosing
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import BackendError, BackendRefused, PathNotFound
from sandbox_server.providers.protocol.processes import Ended, NewProcess, Output
from tests.server.support.fault_proxy import answer_with

pytestmark = pytest.mark.needs_engine

MINUTE = timedelta(minutes=1)
STAT = "POST /filesystem.Filesystem/Stat"


@pytest.fixture
def backend(backend_at, proxy):
    return backend_at(proxy.url)


@pytest.fixture
async def access(backend, wanted):
    return await backend.create(wanted)


@pytest.fixture
def directories(backend, access):
    return backend.directories(access)


@pytest.fixture
def lookups(proxy):
    """Count the requests that look up something in the sandbox."""
    return lambda: sum(line.startswith(STAT) for line in proxy.seen)


async def output_of(backend, access, **process):
    said = b""
    async with aclosing(backend.processes(access).start(NewProcess(**process))) as events:
        async for event in events:
            said += event.content if isinstance(event, Output) else b""
            assert not isinstance(event, Ended) or event.exit_code == 0
    return said.decode()


@pytest.mark.parametrize("path", ["/tmp/x", "/", "~", "~/x", "~root/x", ""])
async def test_working_directory__absolute_paths_need_no_request(directories, lookups, path):
    assert await directories.resolve(path, user=None) == path
    assert lookups() == 0


async def test_working_directory__a_relative_path_is_below_the_users_home(directories):
    assert await directories.resolve("a/b", user=None) == "/home/user/a/b"
    assert await directories.resolve("../b", user="root") == "/root/../b"


async def one_byte():
    yield b"1"


async def test_working_directory__is_looked_up_once_per_user(directories, backend, access, lookups):
    for _ in range(3):
        await directories.resolve("x", user=None)
        await directories.resolve("x", user="root")
    assert lookups() == 2
    await backend.files(access).make_directory("sub")
    await backend.transfers(access).upload("sub/x", one_byte(), length=1)
    opened = await backend.transfers(access).open("sub/x")
    await opened.close()
    assert await output_of(backend, access, args=["pwd"], cwd="sub") == "/home/user/sub\n"
    assert lookups() == 2


async def test_working_directory__is_forgotten_with_the_handle(
    backend_at, proxy, new_sandbox, lookups
):
    backend = backend_at(proxy.url, handles=1)
    first, second = [await backend.create(new_sandbox()) for _ in range(2)]
    for access in (first, first, second, first):
        await backend.directories(access).resolve("x", user=None)
    assert lookups() == 3


async def test_working_directory__the_cache_of_users_is_bounded(
    backend, access, directories, lookups
):
    names = [f"user{number}" for number in range(17)]
    add = "; ".join(f"useradd --create-home {name}" for name in names)
    await backend.inside(access).run_command(add, user="root", timeout=MINUTE)
    for name in names:
        assert await directories.resolve("x", user=name) == f"/home/{name}/x"
    assert lookups() == len(names)
    await directories.resolve("x", user=names[0])
    assert lookups() == len(names) + 1


async def test_working_directory__an_unknown_user_is_refused(directories):
    with pytest.raises(BackendRefused, match="nobody-knows"):
        await directories.resolve("x", user="nobody-knows")


@pytest.mark.parametrize(
    "lie", ['{"entry": {"path": "relative"}}', "{}", f'{{"entry": {{"path": "/{"x" * 5000}"}}}}']
)
async def test_working_directory__an_answer_that_is_no_directory_is_ignored(
    directories, proxy, lie
):
    proxy.on(STAT, answer_with(200, lie, Content_Type="application/json"))
    with pytest.raises(BackendError, match="working directory"):
        await directories.resolve("x", user=None)
    assert await directories.resolve("x", user=None) == "/home/user/x"


async def test_working_directory__a_removed_one_is_reported(backend, access, directories):
    inside = backend.inside(access)
    await inside.run_command("mv /home/user /home/gone", user="root", timeout=MINUTE)
    with pytest.raises(PathNotFound, match="the working directory does not exist"):
        await directories.resolve("x", user=None)
    with pytest.raises(BackendRefused, match="the working directory does not exist"):
        await output_of(backend, access, args=["pwd"], cwd="sub")
