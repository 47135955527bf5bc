"""Mirrors, pushes and kept pushes against git's own HTTP backend under nginx."""

import os

import pytest

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import RemoteRefused, RemoteUnreachable
from sandbox_server.git.mirrors import Mirrors
from tests.server.git.conftest import NOW
from tests.server.git.endpoint.test_kept_pushes import job_of
from tests.server.git.endpoint.test_push import BRANCH, at_forge, branches_at_forge, run
from tests.server.git.git_server import PASSWORD
from tests.server.git.nginx_server import needs_nginx, running_nginx

pytestmark = [
    pytest.mark.slow,
    needs_nginx,
]  # each starts two programs; the paths have faster tests


@pytest.fixture
def forge(tmp_path):
    """Serve the repositories by nginx."""
    (tmp_path / "served").mkdir()
    with running_nginx(tmp_path / "served", tmp_path / "nginx") as server:
        yield server


@pytest.fixture
async def client(place, git_in):
    """Clone the repository in the sandbox of a task."""
    client = git_in()
    await run(client, "clone", "-q", place.remote(await place.task_sandbox()), ".")
    client.git("switch", "-q", "-c", BRANCH)
    return client


async def test_nginx__a_sandbox_fetches_what_is_new_there(place, client, forge, seeded):
    sha = seeded.commit("feat: more", more__txt="1")
    seeded.push(forge.path("acme/widgets"))
    place.age_mirror()
    await run(client, "fetch", "origin")
    assert client.git("rev-parse", "origin/main") == sha
    assert "POST /acme/widgets.git/git-upload-pack HTTP/1.1 200" in forge.answers


async def test_nginx__pushes_arrive_small_large_and_with_a_lease(client, forge):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == client.git("rev-parse", "HEAD")
    client.commit("feat: large", large__bin=os.urandom(3_000_000))
    await run(client, "push", "origin", BRANCH)
    client.git("commit", "-q", "--amend", "-m", "feat: better")
    assert "rejected" in await run(client, "push", "origin", BRANCH, fails=True)
    await run(client, "push", "--force-with-lease", "origin", BRANCH)
    assert at_forge(forge) == client.git("rev-parse", "HEAD")


async def test_nginx__a_lease_is_lost_to_the_commit_of_somebody_else(client, forge, seeded):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    seeded.git("fetch", "-q", str(forge.path("acme/widgets")), BRANCH)
    seeded.git("checkout", "-q", "FETCH_HEAD")
    person = seeded.commit("fix: by a person", person__txt="1")
    seeded.push(forge.path("acme/widgets"), f"HEAD:refs/heads/{BRANCH}")
    client.git("commit", "-q", "--amend", "-m", "feat: better")
    await run(client, "push", "--force-with-lease", "origin", BRANCH, fails=True)
    assert at_forge(forge) == person


async def test_nginx__a_refusal_of_the_forge_arrives_in_its_words(place, client, forge):
    hook = forge.path("acme/widgets") / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'The branch is frozen until Monday.' >&2\nexit 1\n")
    hook.chmod(0o755)
    client.commit()
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "The branch is frozen until Monday." in said
    assert await place.pushes() == []
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_nginx__a_push_while_it_is_down_is_kept_and_delivered(place, client, forge):
    sha = client.commit(work__txt="a line")
    forge.stop()
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "kept by the server, which pushes it when git.example.org answers" in said
    [push] = await place.pushes()
    assert await place.kept.work(job_of(push.id)) is not None
    [push] = await place.pushes()
    assert push.state == "kept"
    forge.start()
    assert await place.kept.work(job_of(push.id)) is None
    assert at_forge(forge) == sha
    [push] = await place.pushes()
    assert push.state == "pushed"


async def test_nginx__mirrors_tell_a_wrong_password_from_an_outage(
    mirrors, repository, forge, seeded, tmp_path
):
    async def wrong(row: Repository, _access: object):
        return forge.credential(row.full_name, password=f"not-{PASSWORD}")

    others = Mirrors(tmp_path / "others", wrong, limit=2**30)
    with pytest.raises(RemoteRefused):
        await others.fetch(repository)
    async with mirrors.use(repository, max_age=None):
        pass
    forge.stop()
    with pytest.raises(RemoteUnreachable):
        await others.fetch(repository)
    async with mirrors.use(repository, max_age=NOW) as mirror:  # as it was
        assert await mirror.head("main")
    sha = seeded.commit("feat: more", more__txt="1")
    seeded.push(forge.path("acme/widgets"))
    forge.start()
    async with mirrors.use(repository, max_age=NOW) as mirror:
        assert await mirror.head("main") == sha
