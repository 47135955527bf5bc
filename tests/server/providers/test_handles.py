import pytest

from sandbox_server.providers.protocol.errors import SandboxGone

pytestmark = pytest.mark.needs_engine

CONTROL = ("POST /v2/sandboxes", "POST /sandboxes", "GET /sandboxes", "GET /v2/sandboxes")


async def test_handle__work_in_a_sandbox_needs_no_provider_request(backend_at, proxy, wanted):
    backend = backend_at(proxy.url)
    access = await backend.create(wanted)
    created = len(proxy.seen)
    for _ in range(3):
        assert (await backend.handle(access).commands.run("echo hi")).stdout == "hi\n"
    assert await backend.is_answering(access)
    worked = proxy.seen[created:]
    assert len(worked) >= 4
    assert not [line for line in worked if line.startswith(CONTROL)]


async def test_handle__is_reused_until_the_access_changes(backend, wanted):
    access = await backend.create(wanted)
    handle = backend.handle(access)
    assert backend.handle(access) is handle
    await backend.pause(access.provider_id)
    assert backend.handle(await backend.connect(access.provider_id, timeout=wanted.timeout)) is (
        handle
    )


async def test_handle__a_killed_sandboxs_is_dropped(backend, wanted):
    access = await backend.create(wanted)
    handle = backend.handle(access)
    await backend.kill(access.provider_id)
    assert backend.handle(access) is not handle


async def test_handle__a_lost_sandboxs_is_dropped(backend, backend_at, wanted):
    access = await backend.create(wanted)
    handle = backend.handle(access)
    await backend_at().kill(access.provider_id)
    with pytest.raises(SandboxGone):
        await backend.info(access.provider_id)
    assert backend.handle(access) is not handle


async def test_handle__only_recently_used_ones_are_cached(backend_at, new_sandbox):
    backend = backend_at(handles=2)
    first, second, third = [await backend.create(new_sandbox()) for _ in range(3)]
    kept, dropped = backend.handle(first), backend.handle(second)
    backend.handle(first)
    backend.handle(third)
    assert backend.handle(first) is kept
    assert backend.handle(second) is not dropped
