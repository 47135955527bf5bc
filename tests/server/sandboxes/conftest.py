import pytest

from sandbox_server.db.locks import Locks
from sandbox_server.domain.deadlines import Rules
from sandbox_server.files.contents import FileContents
from sandbox_server.files.file_access import FileAccess
from sandbox_server.files.path_locks import PathLocks
from sandbox_server.verbs.service import Verbs
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


@pytest.fixture
async def verbs_of():
    """Make the use cases of the verbs on a server."""
    opened = []

    def verbs_of(server, **fields):
        locks = Locks(server.living.sessions)
        opened.append(locks)
        contents = FileContents(FileAccess(server.controller), PathLocks(locks))
        return Verbs(server.controller, server.commands, contents, **fields)

    yield verbs_of
    for locks in opened:
        await locks.close()
