import asyncio

import pytest
from e2b import (
    AuthenticationException,
    InvalidArgumentException,
    SandboxException,
    SandboxState,
)

from tests.engine.polling import until
from tests.engine.syscall_attack import attack

pytestmark = pytest.mark.needs_engine


# Neighbours


async def test_tenant_isolation__neighbour_processes_memory_and_files_are_hidden(
    sandbox, neighbour, engine
):
    await neighbour.commands.run("exec -a next-door sleep 600", background=True)
    await attack(
        neighbour,
        """
answer = libc.shmget(4711, 4096, 0o1666) >= 0
open("/dev/shm/next-door", "w").write("x")
""",
    )
    answer = await attack(
        sandbox,
        f"""
texts = [open(f"/proc/{{pid}}/cmdline").read() for pid in os.listdir("/proc") if pid.isdigit()]
texts += [open("/proc/self/mountinfo").read(), open("/proc/self/cgroup").read()]
answer = [
    any("next-door" in text or {neighbour.sandbox_id!r} in text for text in texts),
    libc.shmget(4711, 0, 0) >= 0, os.path.exists("/dev/shm/next-door"),
]
""",
    )
    assert answer == [False, False, False]


async def test_tenant_isolation__neighbour_is_unreachable_over_the_network(sandbox, neighbour):
    await neighbour.commands.run("python3 -m http.server 8000", background=True)
    await until(lambda: _listens(neighbour, 8000))
    address = (await neighbour.commands.run("hostname -I")).stdout.split()[0]
    answer = await attack(
        sandbox,
        f"""
import socket
try:
    socket.create_connection(({address!r}, 8000), 1)
    answer = "connected"
except OSError as error:
    answer = "no way"
""",
    )
    assert answer == "no way"


# What the sandbox says of itself


@pytest.mark.parametrize(
    "entry",
    [
        "evil:x:70000:70000::/:/bin/bash",
        "evil:x:4294967295:0::/:/bin/bash",
        "evil:x:99999999999999999999:0::/:/bin/bash",
        "evil:x:-1:-1::/:/bin/bash",
        "evil:x:0x0:0::/:/bin/bash",
        "evil:x::::/bin/bash",
        "evil",
    ],
)
async def test_tenant_isolation__invalid_account_is_rejected(shared, entry):
    await shared.commands.run(
        f"cp /etc/passwd /etc/passwd.bak && echo {entry} >> /etc/passwd", user="root"
    )
    try:
        with pytest.raises((AuthenticationException, InvalidArgumentException)):
            await shared.commands.run("id", user="evil")
    finally:
        await shared.commands.run("mv /etc/passwd.bak /etc/passwd", user="root")
    assert (await shared.commands.run("id -un")).stdout == "user\n"


@pytest.mark.parametrize(
    "replace",
    [
        "rm /etc/passwd",
        "rm /etc/passwd && mkfifo /etc/passwd",
        "rm /etc/passwd && mkdir /etc/passwd",
        "ln -sf /dev/zero /etc/passwd",
        "ln -sf /proc/kmsg /etc/passwd",
        "rm /etc/passwd && ln -s passwd /etc/passwd",
        "truncate -s 8G /etc/passwd",
        "head -c 1M /dev/urandom > /etc/passwd",
    ],
)
async def test_tenant_isolation__invalid_account_file_is_harmless(sandbox, neighbour, replace):
    await sandbox.commands.run(replace, user="root")
    async with asyncio.timeout(10):
        with pytest.raises((AuthenticationException, InvalidArgumentException)):
            await sandbox.commands.run("true", user="user")
        assert (await neighbour.commands.run("echo well")).stdout == "well\n"


async def test_tenant_isolation__root_can_end_the_sandbox_but_keeps_its_files(sandbox):
    await sandbox.files.write("kept", "on disk")
    with pytest.raises(SandboxException):
        await sandbox.commands.run("kill -TERM 1; sleep 600", user="root")
    await until(lambda: _is_paused(sandbox))
    await sandbox.connect(timeout=60)
    assert await sandbox.files.read("kept") == "on disk"


async def _is_paused(sandbox):
    return (await sandbox.get_info()).state is SandboxState.PAUSED


async def _listens(sandbox, port):
    table = await sandbox.commands.run("cat /proc/net/tcp")
    return f":{port:04X} 00000000:0000 0A" in table.stdout
