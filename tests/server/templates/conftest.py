from contextlib import suppress

import pytest

from sandbox_server.domain.errors import BackendError
from sandbox_server.domain.templates import is_made_by_a_server
from tests.server.templates.template_builds import Building


@pytest.fixture
async def sweeping(backend_at):
    """Remove the test's templates from the engine."""
    yield
    provider = backend_at().templates
    for left in await provider.list_all():
        if any(map(is_made_by_a_server, left.names)):
            with suppress(BackendError):
                await provider.delete(left.id)


@pytest.fixture
def building(api, server, sweeping):
    """Build templates at the engine."""
    return Building(api, server)
