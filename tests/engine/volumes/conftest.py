import secrets

import pytest
from e2b import AsyncSandbox, AsyncVolume

from tests.engine.engine_process import running_engine


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
        timeout=300,
        volume_mounts={"/mnt/data": volume},
        metadata={"volume": volume.name},
        **volume_options,
    ) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def small_engine():
    """Run an engine with small volumes that tests may fill, and which they may kill."""
    with running_engine("--pool-size", "1", "--disk-mb", "64", "--volume-mb", "64") as engine:
        yield engine


@pytest.fixture
def small_options(monkeypatch, small_engine):
    """Point the SDK at the engine with small volumes."""
    monkeypatch.setenv("E2B_VOLUME_API_URL", small_engine.url)
    return small_engine.options


@pytest.fixture
async def small_volume(small_options):
    """Create a small volume of the test's own."""
    volume = await AsyncVolume.create(f"v-{secrets.token_hex(6)}", **small_options)
    yield volume
    await AsyncVolume.destroy(volume.volume_id, **small_options)
