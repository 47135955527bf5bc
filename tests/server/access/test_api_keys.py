import asyncio
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, select, text, update

from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.secrets import new_secret
from sandbox_server.db.models import ApiKey
from sandbox_server.domain.access import Scope
from sandbox_server.domain.errors import KeyNotFound, Unauthenticated
from tests.server.support.locks import waiting_for_a_lock


@pytest.fixture
def statements(database):
    """Record the SQL statements."""
    run = []

    def note(_connection, _cursor, statement, *_):
        run.append(statement)

    event.listen(database.sync_engine, "before_cursor_execute", note)
    return run


async def test_api_keys__a_secret_identifies_its_caller(issue, authenticator):
    issued = await issue(scopes=[Scope.READ], max_priority=3, rate_per_s=2.5)
    caller = await authenticator.authenticate(issued.secret)
    assert caller.tenant_id == issued.owned.key.tenant_id
    assert caller.key_id == issued.owned.key.id
    assert caller.scopes == {Scope.READ}
    assert (caller.max_priority, caller.rate_per_s) == (3, 2.5)


async def test_api_keys__the_database_stores_no_secret(issue, sessions):
    secret = (await issue()).secret
    async with sessions() as session:
        row = str(
            (await session.execute(select(text("k::text")).select_from(text("api_keys k")))).all()
        )
    assert secret[:10] in row
    assert secret[:14] not in row


@pytest.mark.parametrize(
    "secret",
    [None, "", "sbx_", "sbx_short", "Bearer x", "sbx_" + "ä" * 43, "sbx_" + "a" * 43 + "\n"],
    ids=repr,
)
async def test_api_keys__a_malformed_key_is_rejected_without_a_query(
    authenticator, statements, secret
):
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(secret)
    assert statements == []


async def test_api_keys__an_unknown_key_costs_one_lookup_like_a_valid_one(
    issue, authenticator, statements
):
    secret = (await issue()).secret
    statements.clear()
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(new_secret())
    wrong = len(statements)
    statements.clear()
    await authenticator.authenticate(secret)
    assert wrong <= len(statements)


async def test_api_keys__a_recently_found_key_is_not_looked_up_again(
    issue, authenticator, statements
):
    secret = (await issue()).secret
    await authenticator.authenticate(secret)
    statements.clear()
    await authenticator.authenticate(secret)
    assert statements == []


async def test_api_keys__concurrent_requests_with_one_key_share_lookups(
    issue, authenticator, statements
):
    secret = (await issue()).secret
    statements.clear()
    await asyncio.gather(*(authenticator.authenticate(secret) for _ in range(50)))
    assert len([each for each in statements if each.startswith("SELECT")]) <= 4


async def test_api_keys__a_flood_of_invalid_keys_leaves_database_connections_free(
    authenticator, sessions, database
):
    async with sessions.begin() as session:
        await session.execute(text("LOCK TABLE api_keys"))  # each lookup waits here
        flood = [asyncio.create_task(authenticator.authenticate(new_secret())) for _ in range(100)]
        await waiting_for_a_lock(sessions)
        assert database.sync_engine.pool.checkedout() < database.sync_engine.pool.size()
    answers = await asyncio.gather(*flood, return_exceptions=True)
    assert {type(answer) for answer in answers} == {Unauthenticated}


async def test_api_keys__an_unknown_key_is_not_cached(authenticator, issue, sessions):
    secret = (await issue()).secret
    async with sessions.begin() as session:
        await session.execute(update(ApiKey).values(revoked_at=datetime.now(UTC)))
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(secret)
    async with sessions.begin() as session:
        await session.execute(update(ApiKey).values(revoked_at=None))
    await authenticator.authenticate(secret)


async def test_api_keys__a_revoked_key_is_rejected_at_once_by_the_same_server(
    issue, api_keys, authenticator
):
    issued = await issue()
    await authenticator.authenticate(issued.secret)
    await api_keys.revoke(issued.owned.key.id)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(issued.secret)


async def test_api_keys__a_revoked_key_is_rejected_by_other_servers_within_a_second(
    issue, api_keys, sessions, clock
):
    issued = await issue()
    other = Authenticator(sessions, clock=clock)
    await other.authenticate(issued.secret)
    await api_keys.revoke(issued.owned.key.id)
    clock.now += 0.999
    with pytest.raises(Unauthenticated):
        await other.authenticate(issued.secret)


async def test_api_keys__a_lookup_in_progress_during_a_revocation_is_not_cached(
    issue, api_keys, authenticator, sessions
):
    issued = await issue()
    async with sessions.begin() as session:
        # The lookup has read the key and waits to record its use.
        await session.execute(select(ApiKey).with_for_update())
        looking_up = asyncio.create_task(authenticator.authenticate(issued.secret))
        await waiting_for_a_lock(sessions)
        await session.execute(update(ApiKey).values(revoked_at=datetime.now(UTC)))
        authenticator.clear_cache()
    await looking_up
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(issued.secret)


async def test_api_keys__revoking_again_keeps_the_first_timestamp(issue, api_keys):
    key_id = (await issue()).owned.key.id
    await api_keys.revoke(key_id)
    first = (await api_keys.get(key_id)).key.revoked_at
    await api_keys.revoke(key_id)
    assert (await api_keys.get(key_id)).key.revoked_at == first


async def test_api_keys__revoking_an_unknown_key_fails(api_keys):
    with pytest.raises(KeyNotFound):
        await api_keys.revoke("0" * 20)


async def test_api_keys__use_is_recorded_at_most_once_a_minute(
    issue, api_keys, authenticator, clock, sessions
):
    issued = await issue()
    await authenticator.authenticate(issued.secret)
    first = (await api_keys.get(issued.owned.key.id)).key.last_used_at
    assert first is not None
    clock.now += 1
    await authenticator.authenticate(issued.secret)
    assert (await api_keys.get(issued.owned.key.id)).key.last_used_at == first
    async with sessions.begin() as session:
        await session.execute(
            update(ApiKey).values(last_used_at=text("clock_timestamp() - interval '61 s'"))
        )
    clock.now += 1
    await authenticator.authenticate(issued.secret)
    assert (await api_keys.get(issued.owned.key.id)).key.last_used_at > first


async def test_api_keys__printing_a_key_does_not_show_its_secret(issue):
    issued = await issue()
    assert issued.secret not in repr(issued)
