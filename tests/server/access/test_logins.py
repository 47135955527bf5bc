from datetime import UTC, timedelta

import pytest
from sqlalchemy import func, select, text, update

from sandbox_server.access import logins as module
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.logins import Logins
from sandbox_server.access.tickets import Tickets
from sandbox_server.admin.retention_repository import RetentionRepository
from sandbox_server.db.models import Login
from sandbox_server.domain.access import Scope, TicketScope
from sandbox_server.domain.errors import LoginRefused, RateLimited, Unauthenticated


@pytest.fixture
def logins(sessions, authenticator):
    return Logins(sessions, authenticator)


@pytest.fixture
def caller(issue, authenticator):
    """Create a caller with a new key."""

    async def caller(**fields):
        return await authenticator.authenticate((await issue(**fields)).secret)

    return caller


@pytest.fixture
def end(sessions):
    """Expire all logins."""

    async def end():
        async with sessions.begin() as session:
            await session.execute(update(Login).values(expires_at=text("clock_timestamp()")))

    return end


async def test_login__the_session_has_the_keys_scopes(logins, authenticator, caller):
    key = await caller(scopes=[Scope.ADMIN], max_priority=9, rate_per_s=50)
    found = await authenticator.authenticate_login((await logins.begin(key)).secret)
    assert (found.tenant_id, found.key_id, found.actor) == (key.tenant_id, key.key_id, key.actor)
    assert (found.scopes, found.max_priority, found.rate_per_s) == (key.scopes, 9, 50)


async def test_login__the_session_follows_changes_of_the_keys_scopes(
    logins, authenticator, caller, api_keys
):
    key = await caller(scopes=[Scope.ADMIN])
    login = await authenticator.authenticate_login((await logins.begin(key)).secret)
    await api_keys.update(key.key_id, {"scopes": ["read"]})
    assert (await authenticator.recheck(login)).scopes == {Scope.READ}


async def test_login__the_session_expires_after_twelve_hours_of_the_databases_clock(
    logins, authenticator, caller, sessions, end, clock
):
    new = await logins.begin(await caller())
    async with sessions() as session:
        left = await session.scalar(select(Login.expires_at - text("clock_timestamp()")))
    assert timedelta(hours=11, minutes=59) < left <= timedelta(hours=12)
    assert new.owned.login.expires_at.tzinfo is UTC
    login = await authenticator.authenticate_login(new.secret)
    await end()
    clock.now += 1
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate_login(new.secret)
    with pytest.raises(Unauthenticated):
        await authenticator.recheck(login)
    with pytest.raises(Unauthenticated):
        await logins.get(login)


async def test_login__revoking_the_key_ends_the_session_on_every_server_within_a_second(
    logins, authenticator, caller, api_keys, sessions, clock
):
    key = await caller()
    new = await logins.begin(key)
    other = Authenticator(sessions, clock=clock)
    for each in (authenticator, other):
        await each.authenticate_login(new.secret)
    await api_keys.revoke(key.key_id)
    clock.now += 0.999
    for each in (authenticator, other):
        with pytest.raises(Unauthenticated):
            await each.authenticate_login(new.secret)


async def test_login__signing_out_ends_only_this_session_at_once(logins, authenticator, caller):
    key = await caller()
    ours, other = await logins.begin(key), await logins.begin(key)
    await logins.end(await authenticator.authenticate_login(ours.secret))
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate_login(ours.secret)
    await authenticator.authenticate_login(other.secret)


async def test_login__signing_in_requires_a_key(logins, authenticator, caller, sessions):
    key = await caller()
    login = await authenticator.authenticate_login((await logins.begin(key)).secret)
    tickets = Tickets(sessions, authenticator)
    issued = await tickets.issue(key, scope=TicketScope.READ, ttl=timedelta(hours=1))
    for each in (login, await tickets.find(issued.secret)):
        with pytest.raises(LoginRefused):
            await logins.begin(each)


async def test_login__logins_keys_and_tickets_are_not_interchangeable(
    logins, authenticator, issue, caller
):
    login, key = (await logins.begin(await caller())).secret, (await issue()).secret
    for authenticate, secret in (
        (authenticator.authenticate, login),
        (authenticator.authenticate_ticket, login),
        (authenticator.authenticate_login, key),
        (authenticator.authenticate_login, f"sbl_{'a' * 43}"),
        (authenticator.authenticate_login, ""),
    ):
        with pytest.raises(Unauthenticated):
            await authenticate(secret)


async def test_login__the_session_and_its_key_share_one_rate_limit(logins, authenticator, caller):
    slow = await caller(rate_per_s=0.01)  # its only request was the lookup
    new = await logins.begin(slow)
    with pytest.raises(RateLimited):
        await authenticator.authenticate_login(new.secret)


async def test_login__the_oldest_sessions_of_a_key_end_beyond_the_limit(
    logins, authenticator, caller, monkeypatch
):
    monkeypatch.setattr(module, "MAX_PER_KEY", 2)
    other = await logins.begin(await caller())
    key = await caller()
    first, *rest = [await logins.begin(key) for _ in range(3)]
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate_login(first.secret)
    for each in (*rest, other):
        await authenticator.authenticate_login(each.secret)


async def test_login__the_database_stores_no_secret(logins, caller, sessions):
    new = await logins.begin(await caller())
    async with sessions() as session:
        row = str((await session.execute(text("SELECT t::text FROM logins t"))).all())
    assert new.secret[4:12] not in row
    assert new.secret not in repr(new)


async def test_login__expired_sessions_are_removed(logins, caller, sessions, end):
    await logins.begin(await caller())
    await end()
    async with sessions.begin() as session:
        assert await RetentionRepository(session, limit=10).remove_logins() == 1
        assert await session.scalar(select(func.count()).select_from(Login)) == 0
