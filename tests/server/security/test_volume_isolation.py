"""Isolation of tenants that share one account at a provider."""

from dataclasses import replace
from datetime import timedelta

import pytest
from e2b import AsyncVolume

from sandbox_server.domain.errors import BackendRefused
from sandbox_server.providers.e2b import wire

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def backend(backend_at):
    return backend_at()


@pytest.fixture
async def new_volume(options):
    """Create volumes in the provider's account; deleted after the test."""
    made = []

    async def make(name):
        made.append(await AsyncVolume.create(name, **options))
        return made[-1]

    yield make
    for volume in made:
        await AsyncVolume.destroy(volume.volume_id, **options)


async def test_volumes__the_same_name_is_another_volume_for_each_tenant(
    backend, new_sandbox, new_volume
):
    accesses = {}
    for tenant_id in ("a" * 20, "b" * 20):
        await new_volume(wire.volume_name("data", tenant_id=tenant_id))
        wanted = new_sandbox(tenant_id=tenant_id, volumes={"/mnt": "data"})
        accesses[tenant_id] = await backend.create(wanted)
        await backend.inside(accesses[tenant_id]).run_command(
            f"printf {tenant_id} > /mnt/whose", timeout=timedelta(seconds=20)
        )
    for tenant_id, access in accesses.items():
        found = await backend.inside(access).read_file("/mnt/whose", limit=100)
        assert found == tenant_id.encode()
        await backend.kill(access.provider_id)


async def test_volumes__no_name_reaches_another_tenants_volume(backend, new_sandbox, new_volume):
    neighbours = await new_volume(wire.volume_name("data", tenant_id="b" * 20))
    operators = await new_volume("operators-own")
    wanted = new_sandbox(tenant_id="a" * 20)
    for volume in (neighbours, operators):
        for name in (volume.name, volume.volume_id, f"../{volume.name}", f"x/../{volume.name}"):
            with pytest.raises(BackendRefused):
                await backend.create(replace(wanted, volumes={"/mnt": name}))
