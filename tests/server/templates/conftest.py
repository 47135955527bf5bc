from contextlib import suppress

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Template
from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.templates import name_at_provider
from tests.server.templates.template_builds import Building


@pytest.fixture
async def sweeping(sessions, backend_at):
    """Remove the test's templates from the engine, which tests of other processes use too."""
    yield
    async with sessions() as session:
        own = {
            name_at_provider(template_id)
            for template_id in await session.scalars(select(Template.id))
        }
    provider = backend_at().templates
    for left in await provider.list_all():
        if own.intersection(left.names):
            with suppress(BackendError):
                await provider.delete(left.id)


@pytest.fixture
def building(api, server, sweeping):
    """Build templates at the engine."""
    return Building(api, server)
