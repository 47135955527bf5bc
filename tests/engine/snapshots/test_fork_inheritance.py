import secrets

import pytest
from e2b import AsyncSandbox, AsyncTemplate, AsyncVolume, wait_for_file

from tests.engine.snapshots.forks import fork_of

pytestmark = pytest.mark.needs_engine

START = "echo started >> ~/starts; sleep 1000"


@pytest.fixture
async def equipped(monkeypatch, engine):
    """Create a sandbox with a start command, a volume and ports that are closed to strangers."""
    monkeypatch.setenv("E2B_VOLUME_API_URL", engine.url)
    name = f"equipped-{secrets.token_hex(4)}"
    template = AsyncTemplate().from_base_image()
    ready = wait_for_file("/home/user/starts")
    await AsyncTemplate.build(template.set_start_cmd(START, ready), name, **engine.options)
    volume = await AsyncVolume.create(name, **engine.options)
    async with await AsyncSandbox.create(
        name,
        timeout=300,
        volume_mounts={"/mnt/data": volume},
        network={"allow_public_traffic": False},
        lifecycle={"on_timeout": "pause", "auto_resume": True},
        **engine.options,
    ) as sandbox:
        yield sandbox
    await AsyncVolume.destroy(volume.volume_id, **engine.options)


async def test_fork__keeps_settings_but_has_its_own_tokens(equipped):
    fork = await fork_of(equipped)
    info, of_source = await fork.get_info(), await equipped.get_info()
    assert (info.lifecycle, info.template_id) == (of_source.lifecycle, of_source.template_id)
    assert fork.traffic_access_token not in (None, equipped.traffic_access_token)
    await equipped.commands.run("echo shared > /mnt/data/file")
    assert await fork.files.read("/mnt/data/file") == "shared\n"
    await fork.kill()


async def test_fork__start_command_runs_again(equipped, options):
    snapshot = await equipped.create_snapshot()
    fork = await fork_of(equipped)
    created = await AsyncSandbox.create(snapshot.snapshot_id, timeout=120, **options)
    for sandbox in (fork, created):
        assert isinstance(sandbox, AsyncSandbox)
        assert (await sandbox.files.read("starts")).splitlines() == ["started"] * 2
        assert [one.cmd for one in await sandbox.commands.list()] != []
        await sandbox.kill()
    await AsyncSandbox.delete_snapshot(snapshot.snapshot_id, **options)
