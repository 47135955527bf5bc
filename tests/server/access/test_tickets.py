from datetime import UTC, timedelta

import pytest
from sqlalchemy import select, text, update

from sandbox_server.access import tickets as module
from sandbox_server.access.authenticator import Authenticator
from sandbox_server.access.tickets import Tickets
from sandbox_server.db.models import Tenant, Ticket
from sandbox_server.domain.access import Scope, TicketScope
from sandbox_server.domain.errors import (
    RateLimited,
    SandboxNotFound,
    ScopeMissing,
    TicketRefused,
    TooManyTickets,
    Unauthenticated,
)
from sandbox_server.domain.ids import new_id
from tests.server.support.rows import add_sandbox

HOUR = timedelta(hours=1)


@pytest.fixture
def tickets(sessions, authenticator):
    return Tickets(sessions, authenticator)


@pytest.fixture
def caller(issue, authenticator):
    """Create a caller with a new key."""

    async def caller(**fields):
        return await authenticator.authenticate((await issue(**fields)).secret)

    return caller


@pytest.fixture
async def operator(caller):
    return await caller(scopes=[Scope.SANDBOXES])


@pytest.fixture
def end(sessions):
    """Expire all tickets."""

    async def end():
        async with sessions.begin() as session:
            await session.execute(update(Ticket).values(expires_at=text("clock_timestamp()")))

    return end


async def add_tenant(sessions):
    tenant = Tenant(id=new_id(), name="other", max_running=1, max_queued=1)
    async with sessions.begin() as session:
        session.add(tenant)
    return tenant.id


async def test_tickets__a_ticket_has_its_keys_tenant_and_only_its_own_scope(tickets, caller):
    admin = await caller(scopes=[Scope.ADMIN], max_priority=9, rate_per_s=50)
    issued = await tickets.issue(admin, scope=TicketScope.READ, ttl=HOUR)
    found = await tickets.find(issued.secret)
    assert (found.tenant_id, found.key_id) == (admin.tenant_id, admin.key_id)
    assert found.scopes == {Scope.READ}
    assert (found.max_priority, found.rate_per_s) == (0, 50)


async def test_tickets__a_port_ticket_is_rejected_by_the_api(tickets, operator, sessions):
    row = await add_sandbox(sessions, operator.tenant_id)
    issued = await tickets.issue(
        operator, scope=TicketScope.PORT, sandbox_id=row.id, port=3000, ttl=HOUR
    )
    found = await tickets.find(issued.secret)
    assert (found.sandbox_id, found.port, found.scopes) == (row.id, 3000, frozenset())


@pytest.mark.parametrize("scope", [TicketScope.SANDBOXES, TicketScope.PORT])
async def test_tickets__a_key_cannot_create_a_ticket_with_more_scope_than_its_own(
    tickets, caller, scope
):
    reader = await caller(scopes=[Scope.READ])
    with pytest.raises(ScopeMissing):
        await tickets.issue(reader, scope=scope, ttl=HOUR)


async def test_tickets__a_ticket_cannot_create_tickets(tickets, operator):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    with pytest.raises(TicketRefused):
        await tickets.issue(await tickets.find(issued.secret), scope=TicketScope.READ, ttl=HOUR)


async def test_tickets__another_tenants_sandbox_is_not_found(tickets, operator, sessions):
    theirs = await add_sandbox(sessions, await add_tenant(sessions))
    with pytest.raises(SandboxNotFound):
        await tickets.issue(operator, scope=TicketScope.READ, sandbox_id=theirs.id, ttl=HOUR)


async def test_tickets__a_ticket_is_valid_repeatedly_until_it_expires(
    tickets, operator, clock, end
):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    for _ in range(3):
        await tickets.find(issued.secret)
        clock.now += 1
    await end()
    with pytest.raises(Unauthenticated):
        await tickets.find(issued.secret)


async def test_tickets__expiry_uses_the_databases_clock(tickets, operator, sessions):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    async with sessions() as session:
        left = await session.scalar(select(Ticket.expires_at - text("clock_timestamp()")))
    assert timedelta(minutes=59) < left <= HOUR
    assert issued.expires_at.tzinfo is UTC


async def test_tickets__revoking_the_key_ends_its_tickets(tickets, operator, api_keys):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    await tickets.find(issued.secret)
    await api_keys.revoke(operator.key_id)
    with pytest.raises(Unauthenticated):
        await tickets.find(issued.secret)


async def test_tickets__revoking_the_key_ends_its_tickets_on_other_servers_within_a_second(
    tickets, operator, api_keys, sessions, clock
):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    other = Tickets(sessions, Authenticator(sessions, clock=clock))
    await other.find(issued.secret)
    await api_keys.revoke(operator.key_id)
    clock.now += 0.999
    with pytest.raises(Unauthenticated):
        await other.find(issued.secret)


async def test_tickets__reducing_the_keys_scopes_ends_wider_tickets(tickets, operator, api_keys):
    wide, narrow = [
        await tickets.issue(operator, scope=scope, ttl=HOUR)
        for scope in (TicketScope.SANDBOXES, TicketScope.READ)
    ]
    await api_keys.update(operator.key_id, {"scopes": ["read"]})
    await tickets.find(narrow.secret)
    with pytest.raises(Unauthenticated):
        await tickets.find(wide.secret)


async def test_tickets__a_ticket_and_its_key_share_one_rate_limit(tickets, caller):
    slow = await caller(rate_per_s=0.01)  # its only request was the lookup
    issued = await tickets.issue(slow, scope=TicketScope.READ, ttl=HOUR)
    with pytest.raises(RateLimited):
        await tickets.find(issued.secret)


async def test_tickets__the_database_stores_no_secret(tickets, operator, sessions):
    issued = await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    async with sessions() as session:
        row = str((await session.execute(text("SELECT t::text FROM tickets t"))).all())
    assert issued.secret[4:12] not in row
    assert issued.secret not in repr(issued)


@pytest.mark.parametrize("secret", ["", "sbt_", "sbt_" + "a" * 44, "sbx_" + "a" * 43], ids=repr)
async def test_tickets__a_malformed_ticket_is_rejected(tickets, secret):
    with pytest.raises(Unauthenticated):
        await tickets.find(secret)


async def test_tickets__keys_and_tickets_are_not_interchangeable(
    tickets, issue, authenticator, operator
):
    key, ticket = await issue(), await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    with pytest.raises(Unauthenticated):
        await tickets.find(key.secret)
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(ticket.secret)


async def test_tickets__rechecking_a_caller_costs_no_rate(
    tickets, caller, authenticator, api_keys, clock, end
):
    slow = await caller(rate_per_s=0.01)
    clock.now += 1000
    ticket = await tickets.find(
        (await tickets.issue(slow, scope=TicketScope.READ, ttl=HOUR)).secret
    )
    for each in (slow, ticket):
        await authenticator.recheck(each)
    await end()
    clock.now += 1
    await authenticator.recheck(slow)
    with pytest.raises(Unauthenticated):
        await authenticator.recheck(ticket)
    await api_keys.revoke(slow.key_id)
    with pytest.raises(Unauthenticated):
        await authenticator.recheck(slow)


async def test_tickets__the_number_of_valid_tickets_per_tenant_is_limited(
    tickets, operator, end, monkeypatch
):
    monkeypatch.setattr(module, "MAX_PER_TENANT", 2)
    for _ in range(2):
        await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    with pytest.raises(TooManyTickets):
        await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
    await end()
    await tickets.issue(operator, scope=TicketScope.READ, ttl=HOUR)
