import asyncio

import pytest

from sandbox_server.access import caller_cache as module
from sandbox_server.access.caller_cache import CallerCache
from sandbox_server.domain.access import Caller
from sandbox_server.domain.ids import ApiKeyId, TenantId


@pytest.fixture
def looked_up():
    return []


@pytest.fixture
def caller_cache(looked_up, clock):
    async def look_up(secret_hash):
        looked_up.append(secret_hash)
        return Caller(
            tenant_id=TenantId("t"),
            key_id=ApiKeyId("k"),
            scopes=frozenset(),
            secret_hash=secret_hash,
        )

    return CallerCache(look_up, limit=asyncio.Semaphore(4), clock=clock)


async def test_caller_cache__entries_are_valid_for_half_a_second(caller_cache, looked_up, clock):
    for later in (0, 0.499, 0.001):
        clock.now += later
        await caller_cache.find(b"a")
    assert looked_up == [b"a", b"a"]


async def test_caller_cache__expired_entries_are_purged(caller_cache, clock, monkeypatch):
    monkeypatch.setattr(module, "_PURGE_AT", 10)
    for number in range(100):
        await caller_cache.find(bytes([number]))
        clock.now += 0.1
    assert len(caller_cache._entries) <= 10


async def test_caller_cache__a_cached_match_among_several_secrets_needs_no_lookup(
    caller_cache, looked_up
):
    for secret_hash in (b"a", b"b"):
        await caller_cache.find(secret_hash)

    async def look_up():
        looked_up.append(b"again")
        return await caller_cache.find(b"a")

    found = await caller_cache.find_any(
        [b"a", b"b", b"c"], look_up, matches=lambda found: found.secret_hash == b"b"
    )
    assert (found.secret_hash, looked_up) == (b"b", [b"a", b"b"])
    found = await caller_cache.find_any([b"c"], look_up)
    assert (found.secret_hash, looked_up) == (b"a", [b"a", b"b", b"again"])
