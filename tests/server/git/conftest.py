from datetime import timedelta

import pytest

from sandbox_server.db.models import Repository
from sandbox_server.domain.ids import new_id
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.checkouts import CheckoutRequest, Checkouts
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.git.rewriting import Identity
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from tests.server.git.git_server import running_git_server
from tests.server.git.work_trees import WorkTree, git

NAME = "acme/widgets"
NOW = timedelta(0)
DIRECTORY = "/home/user/widgets"


@pytest.fixture
def forge(tmp_path):
    """Serve repositories over HTTP."""
    (tmp_path / "served").mkdir()
    with running_git_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
def seeded(forge, tmp_path):
    """Seed the repository `acme/widgets` with three commits, and keep the clone of its author."""
    path = forge.path(NAME)
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--bare", "--initial-branch=main")
    git(path, "config", "http.receivepack", "true")
    tree = WorkTree(tmp_path / "author")
    tree.commit("feat: begin", README__md="# Widgets\n", src___main__py="print('one')\n")
    tree.commit("feat: count", src___main__py="print('one')\nprint('two')\n")
    tree.git("branch", "other")
    tree.git("tag", "v1")
    tree.commit("docs: say more", README__md="# Widgets\n\nThey are counted.\n")
    tree.push(path, "main", "other", "v1")
    return tree


@pytest.fixture
def repository(forge, seeded):
    """Describe the repository as its row does."""
    return Repository(
        id=new_id(),
        tenant_id=new_id(),
        forge_id=new_id(),
        external_id="1",
        full_name=NAME,
        default_branch="main",
        url=f"https://git.example.org/{NAME}",
        settings={},
    )


@pytest.fixture
def mirrors(forge, tmp_path):
    async def credentials(repository, _access):
        return forge.credential(repository.full_name)

    return Mirrors(tmp_path / "mirrors", credentials, limit=2**30)


@pytest.fixture
def task_repositories(mirrors):
    return TaskRepositories(mirrors)


@pytest.fixture
async def bare(task_repositories, repository):
    """Open the scratch repository of a task."""
    async with task_repositories.open(repository, "task") as bare:
        yield bare


@pytest.fixture
async def used(living):
    """Start a sandbox at the engine, to be used as features do."""
    sandbox_id = await living.started()
    access = SandboxAccess(living.backends, living.vault)
    return access.usable(await living.row(sandbox_id))


@pytest.fixture
def shell(used):
    """Run commands in the sandbox, as its user and below its home."""

    async def run(command, *, fails=False):
        inside = used.backend.inside(used.access)
        done = await inside.run_command(command, timeout=timedelta(seconds=60))
        said = done.output.decode(errors="replace").strip()
        assert fails == bool(done.exit_code), said
        return said

    return run


@pytest.fixture
def checkouts(mirrors):
    return Checkouts(mirrors)


@pytest.fixture
def request_of(repository):
    """Describe a checkout of the seeded repository."""

    def describe(**fields) -> CheckoutRequest:
        given = {
            "repository": repository,
            "directory": DIRECTORY,
            "branch": "task-1",
            "base_ref": "main",
            "identity": Identity(name="Ada", email="ada@example.org"),
            **fields,
        }
        return CheckoutRequest(**given)

    return describe


@pytest.fixture
async def checked_out(checkouts, used, request_of):
    """Check the repository out in the sandbox."""
    return await checkouts.check_out(used, request_of())
