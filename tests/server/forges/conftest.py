from datetime import timedelta

import pytest

from sandbox_server.domain.tasks.forges import ForgeAuth, ForgeKind
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.service import ForgeDefinition, Forges
from tests.server.forges.support import forgejo_description, gitlab_description
from tests.server.forges.support.described_api import find_unknown
from tests.server.forges.support.scripted_server import scripted_server
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import add_tenant


@pytest.fixture
async def caller(sessions):
    return caller_of(await add_tenant(sessions))


@pytest.fixture
async def make_forges(sessions, vault):
    """Make the use cases of a server whose operator allows these hosts."""
    made = []

    def make(*hosts, write_interval=timedelta(milliseconds=1)):
        made.append(Forges(sessions, vault, AllowedHosts(hosts), write_interval=write_interval))
        return made[-1]

    yield make
    for forges in made:
        await forges.close()


@pytest.fixture
def connect(make_forges, caller):
    """Store the forge of a world and give its adapter, with what belongs to it."""

    async def connect(world, *, auth=ForgeAuth.APP, **options):
        forges = make_forges(*world.hosts, **options)
        is_app = auth is ForgeAuth.APP
        definition = ForgeDefinition(
            kind=ForgeKind.GITHUB,
            auth=auth,
            api_url=world.github.url,
            git_url=world.git.url,
            app_id=world.github.app_id if is_app else None,
            secret=world.github.private_key if is_app else world.github.owner_token,
            webhook_secret=world.github.app["webhook_secret"],
        )
        row, _ = await forges.put(caller, "github", definition)
        adapter = await forges.adapter(row.id)
        return Connected(forges, row, adapter)

    return connect


class Connected:
    def __init__(self, forges, row, adapter):
        self.forges, self.row, self.adapter = forges, row, adapter


@pytest.fixture
def inbox():
    """Take webhook deliveries."""
    with scripted_server() as server:
        yield server


@pytest.fixture
def scripted():
    """Answer as a forge would, as the test says."""
    with scripted_server() as server:
        yield server


@pytest.fixture
def reach(scripted, make_forges, caller):
    """Store a forge at the scripted server, or at another URL; gives its adapter."""

    async def reach(kind, url=None, **fields):
        url = url or scripted.url
        forges = make_forges(url)
        plain = {"auth": ForgeAuth.TOKEN, "api_url": url, "git_url": url, "secret": "the-token"}
        row, _ = await forges.put(caller, "other", ForgeDefinition(kind=kind, **plain | fields))
        kinds.append(kind)
        return await forges.adapter(row.id)

    kinds = []
    yield reach
    if ForgeKind.FORGEJO in kinds:
        require_described(scripted.sent, forgejo_description.CLIENT, forgejo_description)
    if ForgeKind.GITLAB in kinds:
        require_described(scripted.sent, gitlab_description.OBJECTS, gitlab_description)


def require_described(requests, file, description):
    """Require that a description of the API has the path, the query and the body of each request."""
    if file.exists():  # `make check` does without; `make test` installs it
        operations = description.read_operations()
        assert [unknown for each in requests for unknown in find_unknown(each, operations)] == []
