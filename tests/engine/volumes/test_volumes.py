import asyncio
import secrets

import httpx
import pytest
from e2b import AsyncSandbox, AsyncVolume, VolumeException, VolumeNotFoundException

from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def name():
    return f"V_{secrets.token_hex(6)}-1"


async def test_volume__is_created_found_and_destroyed(volume_options, name):
    made = await AsyncVolume.create(name, **volume_options)
    assert made.name == name
    info = await AsyncVolume.get_info(made.volume_id, **volume_options)
    assert (info.name, info.token) == (name, made.token)
    listed = await AsyncVolume.list(**volume_options)
    assert [one.name for one in listed if one.volume_id == made.volume_id] == [name]
    connected = await AsyncVolume.connect(made.volume_id, **volume_options)
    assert await connected.list("/") == []
    assert await AsyncVolume.destroy(made.volume_id, **volume_options)
    assert not await AsyncVolume.destroy(made.volume_id, **volume_options)
    assert made.volume_id not in {one.volume_id for one in await AsyncVolume.list(**volume_options)}
    with pytest.raises(VolumeNotFoundException):
        await AsyncVolume.connect(made.volume_id, **volume_options)


@pytest.mark.parametrize("wrong", ["", "a b", "a/b", "..", "é", "x" * 129])
async def test_volume__invalid_name_is_rejected(volume_options, wrong):
    with pytest.raises(VolumeException, match="400: Invalid volume name"):
        await AsyncVolume.create(wrong, **volume_options)


async def test_volume__names_are_unique_until_destroyed(volume_options, volume):
    with pytest.raises(VolumeException, match=r"400: .* already exists"):
        await AsyncVolume.create(volume.name, **volume_options)
    await volume.write_file("/old", "x")
    await AsyncVolume.destroy(volume.volume_id, **volume_options)
    again = await AsyncVolume.create(volume.name, **volume_options)
    assert await again.list("/") == []
    await AsyncVolume.destroy(again.volume_id, **volume_options)


async def test_volume__concurrent_creates_of_one_name_succeed_once(volume_options, name):
    answers = await asyncio.gather(
        *(AsyncVolume.create(name, **volume_options) for _ in range(6)), return_exceptions=True
    )
    made = [one for one in answers if isinstance(one, AsyncVolume)]
    listed = await AsyncVolume.list(**volume_options)
    assert [one.volume_id for one in listed if one.name == name] == [made[0].volume_id]
    assert len(made) == 1
    await AsyncVolume.destroy(made[0].volume_id, **volume_options)


async def test_volume__destroy_during_starts_is_consistent(engine, volume_options, name):
    for _ in range(3):
        volume = await AsyncVolume.create(name, **volume_options)
        starting = [
            asyncio.create_task(
                AsyncSandbox.create(timeout=60, volume_mounts={"/data": name}, **volume_options)
            )
            for _ in range(3)
        ]
        await AsyncVolume.destroy(volume.volume_id, **volume_options)
        for started in await asyncio.gather(*starting, return_exceptions=True):
            if isinstance(started, AsyncSandbox):
                assert (await started.commands.run("echo x > /data/file; cat /data/file")).stdout
                await started.kill()
            else:
                assert "not found" in str(started)
        assert not (engine.state_dir / "volumes" / volume.volume_id).exists()


async def test_volume__destroy_during_reads_works(engine, volume_options, name):
    for _ in range(10):
        volume = await AsyncVolume.create(name, **volume_options)
        await volume.write_file("/file", "x")
        reading = [asyncio.create_task(volume.read_file("/file")) for _ in range(4)]
        await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        assert await AsyncVolume.destroy(volume.volume_id, **volume_options)
        for read in await asyncio.gather(*reading, return_exceptions=True):
            assert read == "x" or "not found" in str(read)
        place = engine.state_dir / "volumes" / volume.volume_id
        await _removed(place)


async def _removed(place):
    async def is_removed():
        return not place.exists()

    await until(is_removed, timeout=60)


async def test_volume__contents_require_the_volume_token(engine, volume, volume_options):
    other = await AsyncVolume.create(f"{volume.name}-other", **volume_options)
    await volume.write_file("/secret", "x")
    path = f"{engine.url}/volumecontent/{volume.volume_id}/file?path=/secret"
    async with httpx.AsyncClient(timeout=60) as api:
        for wrong in ({}, {"X-API-Key": engine.api_key}, _bearer(other.token), _bearer("0" * 64)):
            assert (await api.get(path, headers=wrong)).status_code == 401
        assert (await api.get(path, headers=_bearer(volume.token))).text == "x"
    await AsyncVolume.destroy(other.volume_id, **volume_options)


def _bearer(token):
    return {"Authorization": f"Bearer {token}"}
