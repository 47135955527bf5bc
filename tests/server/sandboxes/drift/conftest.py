from contextlib import asynccontextmanager

import pytest

from sandbox_server.domain.ids import new_id
from tests.server.providers.stand_in_provider import imitating
from tests.server.sandboxes.drift.foreign_sandboxes import OTHERS, QUICK
from tests.server.support.in_process_server import running_server
from tests.server.support.managed_sandboxes import new_living


@pytest.fixture
def left_behind(living, new_sandbox):
    """Create sandboxes at the provider that no record is about."""

    async def create(sandbox_id=None, **fields):
        fields = {"sandbox_id": sandbox_id or new_id(), "tenant_id": living.tenant_id, **fields}
        wanted = new_sandbox(**fields)
        return wanted.sandbox_id, await living.backend.create(wanted)

    return create


@pytest.fixture
def at_provider(sessions):
    """Look after sandboxes at a provider of some dialect, which has other people's sandboxes too."""

    @asynccontextmanager
    async def at_provider(dialect):
        async with imitating(dialect) as provider:
            for metadata in OTHERS:
                provider.add(metadata)
            backend = provider.backend()
            try:
                yield await new_living(sessions, backend), provider
            finally:
                await backend.close()

    return at_provider


@pytest.fixture
def serving_at(at_provider, database):
    """Run a whole server's lifecycle at such a provider."""

    @asynccontextmanager
    async def serving_at(dialect):
        async with (
            at_provider(dialect) as (living, provider),
            running_server(database, living, policy=QUICK) as server,
        ):
            yield server, provider

    return serving_at
