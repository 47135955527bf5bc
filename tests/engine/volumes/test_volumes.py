import secrets

import httpx
import pytest
from e2b import AsyncVolume, VolumeException, VolumeNotFoundException

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def name():
    return f"V_{secrets.token_hex(6)}-1"


async def test_a_volume_is_created_found_and_destroyed(volume_options, name):
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
async def test_a_name_of_other_characters_is_refused(volume_options, wrong):
    with pytest.raises(VolumeException, match="400: Invalid volume name"):
        await AsyncVolume.create(wrong, **volume_options)


async def test_names_are_unique_and_free_again_after_a_volume_is_destroyed(volume_options, volume):
    with pytest.raises(VolumeException, match=r"400: .* already exists"):
        await AsyncVolume.create(volume.name, **volume_options)
    await volume.write_file("/old", "x")
    await AsyncVolume.destroy(volume.volume_id, **volume_options)
    again = await AsyncVolume.create(volume.name, **volume_options)
    assert await again.list("/") == []
    await AsyncVolume.destroy(again.volume_id, **volume_options)


async def test_contents_need_the_volumes_own_token(engine, volume, volume_options):
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
