import secrets

import pytest
from e2b import AsyncSandbox, AsyncVolume


@pytest.fixture
def volume_options(monkeypatch, engine):
    """Point the SDK's volumes at the shared engine."""
    monkeypatch.setenv("E2B_VOLUME_API_URL", engine.url)
    return engine.options


@pytest.fixture
async def volume(volume_options):
    """Create a volume of the test's own."""
    volume = await AsyncVolume.create(f"v-{secrets.token_hex(6)}", **volume_options)
    yield volume
    await AsyncVolume.destroy(volume.volume_id, **volume_options)


@pytest.fixture
async def mounted(volume, volume_options):
    """Create a sandbox with the volume in it."""
    async with await AsyncSandbox.create(
        timeout=300, volume_mounts={"/mnt/data": volume}, **volume_options
    ) as sandbox:
        yield sandbox
