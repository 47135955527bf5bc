import asyncio

import pytest
from e2b import AsyncSandbox, Sandbox, SandboxException, SandboxNotFoundException

from tests.engine.polling import until
from tests.engine.snapshots.forks import fork_of, forks_of, kill_all

pytestmark = pytest.mark.needs_engine

SLEEPERS = "pgrep -c -f 'sleep 100[0]' || true"


async def test_fork__has_the_files_but_no_processes(options):
    envs, metadata = {"GREETING": "hello"}, {"of": "all"}
    async with await AsyncSandbox.create(
        timeout=120, envs=envs, metadata=metadata, **options
    ) as source:
        await source.commands.run("sleep 1000", background=True, timeout=0)
        await source.commands.run("echo first > note; dd if=/dev/urandom of=big bs=1M count=20")
        digest = (await source.commands.run("sha256sum big")).stdout
        forks = await forks_of(source, 3)
        await asyncio.gather(*(one.files.write("note", one.sandbox_id) for one in forks))
        for fork in forks:
            assert await fork.files.read("note") == fork.sandbox_id
            assert (await fork.commands.run("sha256sum big; echo $GREETING")).stdout == (
                f"{digest}hello\n"
            )
            assert (await fork.commands.run(SLEEPERS)).stdout == "0\n"
            info, of_source = await fork.get_info(), await source.get_info()
            assert (info.template_id, info.metadata) == (of_source.template_id, {"of": "all"})
        assert (await source.commands.run(SLEEPERS)).stdout == "1\n"
        assert await source.files.read("note") == "first\n"
        await kill_all(forks)


async def test_fork__source_continues(sandbox):
    heard: list[str] = []
    counting = await sandbox.commands.run(
        "i=0; while [ ! -e stop ]; do echo $i | tee -a log; i=$((i+1)); sleep 0.01; done",
        background=True,
        timeout=0,
        on_stdout=heard.append,
    )

    async def hear_more():
        enough = len(heard) + 5
        await until(lambda: _is(len(heard) > enough), timeout=60)

    await hear_more()
    for _ in range(3):
        await (await fork_of(sandbox)).kill()
        await hear_more()
    await sandbox.files.write("stop", "")
    said = (await counting.wait()).stdout.split()
    assert said == [str(number) for number in range(len(said))]
    assert (await sandbox.files.read("log")).split() == said


async def test_fork__fork_of_a_fork_survives_its_source(sandbox):
    await sandbox.files.write("note", "from the first")
    second = await fork_of(sandbox)
    await sandbox.kill()
    await second.files.write("other", "from the second")
    third = await fork_of(second)
    await second.kill()
    await third.pause(mode="filesystem")
    await third.connect(timeout=60)
    assert await third.files.read("note") == "from the first"
    assert await third.files.read("other") == "from the second"
    await third.kill()


async def test_fork__eight_forks_have_all_earlier_writes(sandbox):
    async def fork(number):
        await sandbox.commands.run(
            f"dd if=/dev/urandom of=big-{number} bs=1M count=12 conv=fsync status=none;"
            f" sha256sum big-{number} > sum-{number}"
        )
        forked = await fork_of(sandbox)
        await forked.commands.run(f"sha256sum -c sum-{number}")
        await forked.kill()

    await asyncio.gather(*(fork(number) for number in range(8)))


@pytest.mark.slow  # loads the machine
async def test_fork__races_with_pauses_kills_and_commands(options):
    async def contend(sandbox):
        await asyncio.gather(
            sandbox.fork(count=2, timeout=60),
            sandbox.pause(),
            sandbox.commands.run("echo x > note; sync"),
            sandbox.connect(timeout=60),
            sandbox.create_snapshot(),
            sandbox.pause(mode="filesystem"),
            sandbox.kill(),
            return_exceptions=True,
        )

    mark = {"race": "forks"}
    for _ in range(5):
        await contend(await AsyncSandbox.create(timeout=120, metadata=mark, **options))
    pages = AsyncSandbox.list(**options)
    left = [one for one in await pages.next_items() if one.metadata == mark]
    for info in left:
        fork = await AsyncSandbox.connect(info.sandbox_id, timeout=60, **options)
        assert (await fork.commands.run("echo up")).stdout == "up\n"
        await fork.kill()


async def test_fork__invalid_forks_are_rejected(sandbox, options):
    with pytest.raises(SandboxNotFoundException):
        await AsyncSandbox.fork("i0000000000000000000", **options)
    with pytest.raises(SandboxException, match="Timeout cannot be greater"):
        await sandbox.fork(timeout=100_000)


def test_fork__sync_sdk_works_too(options):
    with Sandbox.create(timeout=120, **options) as sandbox:
        sandbox.files.write("note", "text")
        (fork,) = sandbox.fork()
        assert isinstance(fork, Sandbox)
        assert fork.files.read("note") == "text"
        fork.kill()


async def _is(condition):
    return condition
