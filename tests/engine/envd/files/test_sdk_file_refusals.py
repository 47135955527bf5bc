"""What tenants may try with files, through the unmodified SDK: each gets a clear error at once."""

import asyncio
from pathlib import Path

import pytest
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    InvalidArgumentException,
    SandboxException,
)

from tests.engine.engine_process import REPOSITORY
from tests.run_services import MARK

pytestmark = pytest.mark.needs_engine

AT_ONCE_S = 5
SECRET = "the host's own secret"


@pytest.fixture
def outside(tmp_path):
    """Put files on the host that no sandbox may read, change or add to."""
    (tmp_path / "canary").write_text(SECRET)
    tmp_path.chmod(0o777)
    (tmp_path / "canary").chmod(0o666)
    yield tmp_path
    assert (tmp_path / "canary").read_text() == SECRET
    assert [path.name for path in tmp_path.iterdir()] == ["canary"]


async def _attempts(sandbox, path):
    """Try everything that takes a path; gives what each came to."""
    attempts = [
        sandbox.files.read(path),
        sandbox.files.read(path, format="bytes", user="root"),
        sandbox.files.write(path, "attacked", user="root"),
        sandbox.files.write(path, "attacked", use_octet_stream=True),
        sandbox.files.list(path),
        sandbox.files.make_dir(f"{path}/made", user="root"),
        sandbox.files.write(f"{path}/made", "attacked", user="root"),
        sandbox.files.rename("/home/user/bait", f"{path}/made", user="root"),
        sandbox.files.watch_dir(path, print, timeout=1),
    ]
    async with asyncio.timeout(AT_ONCE_S):
        return await asyncio.gather(*attempts, return_exceptions=True)


@pytest.mark.parametrize("link", ["absolute", "relative", "directory", "chain", "dangling"])
async def test_file_refusal__link_out_of_the_sandbox_leads_nowhere(sandbox, outside, link):
    target = {
        "absolute": f"{outside}/canary",
        "relative": f"{'../' * 30}{str(outside)[1:]}/canary",
        "directory": str(outside),
        "chain": "first",
        "dangling": f"{outside}/new",
    }[link]
    await sandbox.commands.run(f"ln -s {outside}/canary first; ln -s {target} link; touch bait")
    outcomes = await _attempts(sandbox, "/home/user/link")
    outcomes += await _attempts(sandbox, "/home/user/link/canary")
    assert SECRET not in str(outcomes)


async def test_file_refusal__parent_path_ends_at_the_sandbox_root(shared, outside):
    own = (await shared.commands.run("cat /etc/shadow", user="root")).stdout
    for path in ("../../../../../etc/shadow", "/../../etc/shadow", "/home/../../../etc/shadow"):
        assert await shared.files.read(path, user="root") == own
    with pytest.raises(FileNotFoundException):
        await shared.files.read("../" * 40 + f"{outside}/canary")
    written = await shared.files.write("../" * 40 + "srv/dotted", "x", user="root")
    assert written.path == "/srv/dotted"
    assert not Path("/srv/dotted").exists()


MAGIC = [
    "/proc/self/root/etc/shadow",
    "/proc/1/root/etc/shadow",
    "/proc/1/root",
    "/proc/thread-self/root/etc/shadow",
    "/proc/1/cwd/etc/shadow",
    "/proc/1/exe",
    "/proc/self/exe",
    "/proc/self/fd/0",
    "/dev/fd/3",
    "/dev/stdin",
]
KERNEL = [
    "/proc/1/environ",
    "/proc/1/mem",
    "/proc/kcore",
    "/proc/keys",
    "/proc/sysrq-trigger",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/sys/kernel/uevent_helper",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
]


@pytest.mark.parametrize("path", MAGIC)
async def test_file_refusal__magic_links_lead_nowhere(shared, path):
    outcomes = await _attempts(shared, path)
    assert all(isinstance(outcome, SandboxException) for outcome in outcomes), outcomes


@pytest.mark.parametrize("path", KERNEL)
async def test_file_refusal__kernel_files_show_only_what_sandbox_root_sees(shared, path):
    before = Path("/proc/sys/kernel/core_pattern").read_text()
    own = await shared.commands.run(f"timeout 1 cat {path} || true", user="root")
    text, octets, *changes = await _attempts(shared, path)
    if not isinstance(text, SandboxException):
        assert text == octets.decode() == own.stdout
    assert all(isinstance(change, SandboxException) for change in changes), changes
    assert Path("/proc/sys/kernel/core_pattern").read_text() == before


async def test_file_refusal__host_processes_are_hidden(shared, engine):
    assert MARK in Path(f"/proc/{engine.pid}/environ").read_text()
    for process in ("self", "thread-self", engine.pid):
        assert MARK not in str(await _attempts(shared, f"/proc/{process}/environ"))


async def test_file_refusal__link_to_a_magic_link_is_rejected(sandbox):
    await sandbox.commands.run("ln -s /proc/1/root root; ln -s /proc/self/fd fds; touch bait")
    for path in ("root", "root/etc/shadow", "fds/0"):
        outcomes = await _attempts(sandbox, f"/home/user/{path}")
        assert all(isinstance(outcome, SandboxException) for outcome in outcomes), outcomes


@pytest.mark.parametrize(
    "path", ["fifo", "socket", "/dev/zero", "/dev/null", "/dev/full", "/dev/tty"]
)
async def test_file_refusal__non_files_are_rejected_at_once(shared, directory, path):
    await shared.commands.run(
        "mkfifo fifo; touch /home/user/bait; "
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'",
        cwd=directory,
    )
    path = path if path.startswith("/") else f"{directory}/{path}"
    outcomes = await _attempts(shared, path)
    assert all(isinstance(outcome, SandboxException) for outcome in outcomes), outcomes
    info = await shared.files.get_info(path)
    assert info.type is None
    assert not info.permissions.startswith("-")


async def test_file_refusal__fifo_with_a_peer_is_rejected(shared, directory):
    await shared.commands.run(f"mkfifo {directory}/fifo")
    reader = await shared.commands.run(f"cat {directory}/fifo", background=True)
    with pytest.raises(InvalidArgumentException):
        await shared.files.write(f"{directory}/fifo", "x")
    await shared.commands.run(f"echo from a command > {directory}/fifo")
    assert (await reader.wait()).stdout == "from a command\n"


async def test_file_refusal__renames_during_access_never_lead_out(sandbox, outside):
    script = (REPOSITORY / "tests/engine/guests/symlink_swapper.py").read_text()
    await sandbox.files.write("symlink_swapper.py", script)
    await sandbox.files.write("swapped/canary", "inside")
    await sandbox.commands.run(f"ln -s {outside} link")
    attack = await sandbox.commands.run("python3 symlink_swapper.py swapped link", background=True)
    read = set()
    for number in range(150):
        path = "/home/user/swapped/canary"
        outcomes = await asyncio.gather(
            sandbox.files.write(path, f"{number}", user="root"),
            sandbox.files.read(path),
            sandbox.files.write(f"/home/user/swapped/{number}", "x"),
            return_exceptions=True,
        )
        read.add(str(outcomes[1]))
    await attack.kill()
    assert not any(SECRET in each for each in read)
    assert any(each.isdigit() for each in read)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("nul\0in it", InvalidArgumentException),
        ("n" * 256, SandboxException),
        ("deep/" * 900, SandboxException),
        ("~somebody/file", InvalidArgumentException),
    ],
    ids=["NUL", "too long a name", "too long a path", "another's home"],
)
async def test_file_refusal__invalid_name_is_rejected(shared, directory, name, error):
    path = name if name.startswith("~") else f"{directory}/{name}"
    await shared.files.write(f"{directory}/kept", "x")
    for attempt in (
        shared.files.read(path),
        shared.files.write(path, "x"),
        shared.files.write(path, "x", use_octet_stream=True),
        shared.files.get_info(path),
        shared.files.list(path),
        shared.files.make_dir(path),
        shared.files.rename(f"{directory}/kept", path),
    ):
        with pytest.raises(error):
            await attempt
    assert [entry.name for entry in await shared.files.list(directory)] == ["kept"]


async def test_file_refusal__file_and_directory_are_not_interchangeable(shared, directory):
    await shared.files.write(f"{directory}/dir/file", "kept")
    with pytest.raises(InvalidArgumentException, match="is a directory"):
        await shared.files.read(f"{directory}/dir")
    for form in ({}, {"use_octet_stream": True}, {"gzip": True}):
        with pytest.raises(InvalidArgumentException, match="is a directory"):
            await shared.files.write(f"{directory}/dir", "x", **form)
        with pytest.raises(SandboxException):
            await shared.files.write(f"{directory}/dir/file/below", "x", **form)
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        await shared.files.list(f"{directory}/dir/file")
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        await shared.files.make_dir(f"{directory}/dir/file")
    with pytest.raises(SandboxException):
        await shared.files.make_dir(f"{directory}/dir/file/below")
    with pytest.raises(SandboxException):
        await shared.files.read(f"{directory}/dir/file/below")
    assert await shared.files.read(f"{directory}/dir/file") == "kept"


async def test_file_refusal__unknown_user_is_rejected(shared, directory):
    for attempt in (
        shared.files.read("/etc/passwd", user="nobody-we-know"),
        shared.files.write(f"{directory}/x", "x", user="nobody-we-know"),
        shared.files.list(directory, user="nobody-we-know"),
        shared.files.make_dir(f"{directory}/x", user="0"),
        shared.files.exists(directory, user="../root"),
    ):
        with pytest.raises(AuthenticationException):
            await attempt
    assert await shared.files.list(directory) == []


async def test_file_refusal__link_loops_are_rejected(shared, directory):
    await shared.commands.run("ln -s a b; ln -s b a", cwd=directory)
    for attempt in (
        shared.files.read(f"{directory}/a"),
        shared.files.write(f"{directory}/a", "x"),
        shared.files.list(f"{directory}/a"),
    ):
        with pytest.raises(SandboxException):
            await attempt


async def test_file_refusal__mount_points_are_kept(shared):
    for path in ("/dev", "/proc", "/dev/shm", "/.init"):
        with pytest.raises(SandboxException):
            await shared.files.remove(path, user="root")
        with pytest.raises(SandboxException):
            await shared.files.rename(path, "/home/user/moved", user="root")
    assert (await shared.commands.run("echo x > /dev/null && ls /proc/1/comm")).exit_code == 0
    assert await shared.files.write("/dev/shm/file", "in memory")
    assert await shared.files.read("/dev/shm/file") == "in memory"
