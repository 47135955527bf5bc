import pytest

from sandbox_server.domain.deadlines import Rules
from tests.server.support.managed_sandboxes import HOUR, MINUTE, living_at


@pytest.fixture
def limited(living):
    """Look after the same sandboxes at a provider that lets none run longer than an hour."""
    return _limited(living)


@pytest.fixture
def limited_faulty(faulty):
    return _limited(faulty)


def _limited(server):
    rules = Rules(longest_run=HOUR, provider_timeout=40 * MINUTE)
    return living_at(server.sessions, server.backend, tenant_id=server.tenant_id, rules=rules)
