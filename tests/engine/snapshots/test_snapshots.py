import asyncio
import secrets
from asyncio.subprocess import PIPE

import httpx
import pytest
from e2b import AsyncSandbox, NotFoundException, Sandbox, SandboxException

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def name():
    """Think of a name that no other test uses."""
    return f"snap-{secrets.token_hex(4)}"


async def test_snapshot__sandbox_from_a_snapshot_is_independent(sandbox, options):
    await sandbox.commands.run("echo first > note; ln note link; sudo chmod 4755 /usr/bin/env")
    await sandbox.commands.run("sudo rm -r /etc/apt; mv /home/user/.bashrc renamed; sync")
    snapshot = await sandbox.create_snapshot()
    await sandbox.files.write("note", "second")

    async with (
        await AsyncSandbox.create(snapshot.snapshot_id, timeout=120, **options) as one,
        await AsyncSandbox.create(snapshot.snapshot_id, timeout=120, **options) as other,
    ):
        await one.commands.run("echo changed > note; rm link")
        assert await other.files.read("note") == await other.files.read("link") == "first\n"
        await other.commands.run("test ! -e /etc/apt -a ! -e .bashrc -a -s renamed")
        assert (await other.commands.run("stat -c %a /usr/bin/env")).stdout == "4755\n"
    assert await sandbox.files.read("note") == "second"
    assert await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **options)


async def test_snapshot__stays_mounted_for_the_next_sandbox_until_it_is_deleted(engine, sandbox):
    snapshot = await sandbox.create_snapshot()
    place = engine.state_dir / "snapshots" / snapshot.snapshot_id.partition(":")[0]
    for _ in range(2):
        created = await AsyncSandbox.create(snapshot.snapshot_id, timeout=60, **engine.options)
        await created.kill()
        assert (place / "disk").is_mount()
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **engine.options)
    assert not place.exists()


async def test_snapshot__busy_disk_gives_a_consistent_file_system(engine, sandbox):
    writing = await sandbox.commands.run(
        "while true; do mkdir -p d; echo $((i++)) > d/$i; [ $((i % 50)) = 0 ] && rm -r d; done",
        background=True,
        timeout=0,
    )
    snapshot = await sandbox.create_snapshot()
    image = engine.state_dir / "snapshots" / snapshot.snapshot_id.partition(":")[0] / "disk.img"
    checked = await asyncio.create_subprocess_exec("e2fsck", "-f", "-n", image, stdout=PIPE)
    told, _ = await checked.communicate()
    assert checked.returncode == 0, told.decode()
    await writing.kill()
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **engine.options)


async def test_snapshot__keeps_the_sandbox_settings(options, name):
    envs, metadata = {"GREETING": "hello", "PLACE": "here"}, {"of": "the source"}
    async with await AsyncSandbox.create(
        timeout=120, envs=envs, metadata=metadata, **options
    ) as sandbox:
        snapshot = await sandbox.create_snapshot(name=name)
    created = await AsyncSandbox.create(
        snapshot.snapshot_id, timeout=120, envs={"PLACE": "there"}, **options
    )
    async with created as sandbox:
        assert (await sandbox.commands.run("echo $GREETING $PLACE")).stdout == "hello there\n"
        info = await sandbox.get_info()
    assert info.name == name
    assert info.metadata == {}
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **options)


async def test_snapshot__name_leads_to_the_latest(sandbox, options, name):
    names = []
    for text in ("old", "new"):
        await sandbox.files.write("note", text)
        names.append(await sandbox.create_snapshot(name=name))
    assert {one.snapshot_id for one in names} == {f"{name}:default"}
    assert names[0].names == [f"{name}:default"]
    async with await AsyncSandbox.create(name, timeout=120, **options) as created:
        assert await created.files.read("note") == "new"
    assert len(await _listed(options, name=name)) == 1
    assert await AsyncSandbox.delete_snapshot(name, **options)


async def test_snapshot__concurrent_snapshots_keep_the_last(sandbox, neighbour, options, name):
    for _ in range(3):
        await asyncio.gather(*(one.create_snapshot(name=name) for one in (sandbox, neighbour) * 2))
        assert len(await _listed(options, name=name)) == 1
    assert await AsyncSandbox.delete_snapshot(name, **options)


async def test_snapshot__tags_distinguish_snapshots(sandbox, options, name):
    for tag in ("v1", "v2"):
        await sandbox.files.write("note", tag)
        await sandbox.create_snapshot(name=f"{name}:{tag}")
    async with await AsyncSandbox.create(f"{name}:v1", timeout=120, **options) as created:
        assert await created.files.read("note") == "v1"
    with pytest.raises(SandboxException, match="404"):
        await AsyncSandbox.create(name, **options)
    assert len(await _listed(options, name=name)) == 2
    assert await AsyncSandbox.delete_snapshot(f"{name}:v1", **options)
    assert await _listed(options, name=name) == [f"{name}:v2"]
    await AsyncSandbox.delete_snapshot(f"{name}:v2", **options)


async def test_snapshot__list_is_newest_first_and_paged(sandbox, options):
    taken = [(await sandbox.create_snapshot()).snapshot_id for _ in range(3)]
    pages = AsyncSandbox.list_snapshots(sandbox_id=sandbox.sandbox_id, limit=2, **options)
    listed = []
    while pages.has_next:
        found = [one.snapshot_id for one in await pages.next_items()]
        for one in found:  # while they are listed, as whoever cleans up does
            assert await AsyncSandbox.delete_snapshot(one, **options)
        listed.append(found)
    assert listed == [[taken[2], taken[1]], [taken[0]]]
    assert await _listed(options, sandbox_id=sandbox.sandbox_id) == []


async def test_snapshot__is_deleted_once_and_keeps_sandboxes(sandbox, options):
    await sandbox.files.write("note", "kept")
    snapshot = (await sandbox.create_snapshot()).snapshot_id
    async with await AsyncSandbox.create(snapshot, timeout=120, **options) as created:
        assert await AsyncSandbox.delete_snapshot(snapshot, **options)
        assert not await AsyncSandbox.delete_snapshot(snapshot, **options)
        with pytest.raises(SandboxException, match="404"):
            await AsyncSandbox.create(snapshot, **options)
        await created.pause(mode="filesystem")
        again = await created.connect(timeout=60)
        assert await again.files.read("note") == "kept"


async def test_snapshot__snapshots_can_be_stacked(sandbox, options):
    taken = []
    async with await AsyncSandbox.create(timeout=120, **options) as lowest:
        await lowest.commands.run("echo 0 > log; sudo mkdir -p /opt/kept; rm .profile")
        taken.append((await lowest.create_snapshot()).snapshot_id)
    for number in range(1, 4):
        async with await AsyncSandbox.create(taken[-1], timeout=120, **options) as higher:
            await higher.commands.run(f"echo {number} >> log; sudo rm -r /opt/kept")
            await higher.commands.run(f"sudo mkdir /opt/kept; sudo touch /opt/kept/{number}")
            taken.append((await higher.create_snapshot()).snapshot_id)
    for one in taken[:-1]:
        assert await AsyncSandbox.delete_snapshot(one, **options)
    async with await AsyncSandbox.create(taken[-1], timeout=120, **options) as top:
        assert await top.files.read("log") == "0\n1\n2\n3\n"
        assert (await top.commands.run("ls /opt/kept; test ! -e .profile")).stdout == "3\n"
    await AsyncSandbox.delete_snapshot(taken[-1], **options)


async def test_snapshot__paused_sandbox_stays_paused(sandbox, options):
    await sandbox.files.write("note", "text")
    for mode in ("full", "filesystem"):
        await sandbox.pause(mode=mode)
        snapshot = (await sandbox.create_snapshot()).snapshot_id
        assert not await sandbox.is_running()
        async with await AsyncSandbox.create(snapshot, timeout=120, **options) as created:
            assert await created.files.read("note") == "text"
        await AsyncSandbox.delete_snapshot(snapshot, **options)
        await sandbox.connect(timeout=120)


async def test_snapshot__response_says_files_only(engine, sandbox):
    async with httpx.AsyncClient(
        base_url=engine.url, headers={"X-API-Key": engine.api_key}, timeout=60
    ) as client:
        for path, body in (("snapshots", {"memory": True}), ("fork", {"timeout": 30})):
            answer = await client.post(f"/sandboxes/{sandbox.sandbox_id}/{path}", json=body)
            assert answer.status_code == 201
            assert answer.headers["X-Snapshot-Mode"] == "filesystem"


def test_snapshot__sync_sdk_works_too(options):
    with Sandbox.create(timeout=120, **options) as sandbox:
        sandbox.files.write("note", "text")
        snapshot = sandbox.create_snapshot(mode="filesystem")
    with Sandbox.create(snapshot.snapshot_id, timeout=120, **options) as created:
        assert created.files.read("note") == "text"
    assert Sandbox.delete_snapshot(snapshot.snapshot_id, **options)


@pytest.mark.parametrize("wrong", [" ", "a/b", "ä", "a:b:c", "x" * 129])
async def test_snapshot__invalid_name_is_rejected(sandbox, wrong):
    with pytest.raises(SandboxException, match=r"name|tag"):
        await sandbox.create_snapshot(name=wrong)


async def test_snapshot__template_name_is_rejected(sandbox):
    with pytest.raises(SandboxException, match="name of a template"):
        await sandbox.create_snapshot(name="base")


async def test_snapshot__unknown_sandbox_is_rejected(options):
    with pytest.raises(NotFoundException):
        await AsyncSandbox.create_snapshot("i0000000000000000000", **options)


async def _listed(options, **query):
    pages = AsyncSandbox.list_snapshots(**query, **options)
    return [one.snapshot_id for one in await pages.next_items()]
