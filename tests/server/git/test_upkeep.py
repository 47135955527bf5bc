from datetime import timedelta

import pytest

from sandbox_server.domain.access import Caller
from sandbox_server.domain.ids import ApiKeyId
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import ForgeAuth, ForgeKind
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.service import ForgeDefinition, Forges
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.git.upkeep import ForgeCredentials, MirrorJob
from sandbox_server.jobs.kinds import REPOSITORY
from sandbox_server.repositories.service import Repositories, RepositoryChanges
from sandbox_server.vault import Vault
from tests.server.git.conftest import NAME
from tests.server.git.git_server import PASSWORD, USER


def _job(repository_id):
    return LeasedJob(id=1, kind=REPOSITORY, subject=repository_id, attempts=1, leased_by="test")


@pytest.fixture
async def forges(sessions, forge):
    hosts = AllowedHosts([f"http://127.0.0.1:{forge.port}"])
    forges = Forges(sessions, Vault([b"k" * 32]), hosts)
    yield forges
    await forges.close()


@pytest.fixture
async def added(sessions, forges, forge, seeded, living):
    """Add the seeded repository of a git server as a caller does; give its row and use cases."""
    caller = Caller(tenant_id=living.tenant_id, key_id=ApiKeyId("a-key"), scopes=frozenset())
    await forges.put(
        caller,
        "git",
        ForgeDefinition(
            kind=ForgeKind.GIT,
            auth=ForgeAuth.TOKEN,
            git_url=f"http://127.0.0.1:{forge.port}",
            git_username=USER,
            secret=PASSWORD,
        ),
    )
    repositories = Repositories(sessions, Vault([b"k" * 32]), forges)
    entry = await repositories.create(
        caller, forge="git", full_name=NAME, wanted=RepositoryChanges()
    )
    return entry.row, repositories, caller


async def test_the_job_fetches_the_mirror_with_the_credential_of_the_forge(
    added, forges, forge, seeded, tmp_path
):
    row, repositories, caller = added
    mirrors = Mirrors(tmp_path / "mirrors", ForgeCredentials(forges).mint, limit=2**30)
    job = MirrorJob(repositories, mirrors)
    assert await job.work(_job(row.id)) is None
    new = seeded.commit("feat: more", a="b")
    seeded.push(forge.path(NAME))
    await job.work(_job(row.id))
    async with mirrors.use(row, max_age=timedelta(hours=1)) as mirror:
        assert await mirror.head("main") == new
    await repositories.remove(caller, row.id)
    await job.work(_job(row.id))
    assert not list(mirrors.directory.glob("*.git"))
