"""Pushes while the forge is down: kept in the database, and forwarded by a job."""

import asyncio
import shutil
from datetime import timedelta

import pytest
from sqlalchemy import select

from sandbox_server.admin.retention_repository import RetentionRepository
from sandbox_server.db.models import GitPush, GitPushPart, Job
from sandbox_server.domain.jobs import LeasedJob
from tests.server.git.endpoint.test_push import BRANCH, at_forge, branches_at_forge, run
from tests.server.git.work_trees import git

REF = f"refs/heads/{BRANCH}"


def job_of(push_id):
    return LeasedJob(id=1, kind="git-push", subject=push_id, attempts=1, leased_by="test")


@pytest.fixture
def settings():
    return {}


@pytest.fixture
async def client(place, git_in, settings):
    """Clone the repository in the sandbox of a task."""
    sandbox = await place.task_sandbox(settings=settings)
    client = git_in()
    await run(client, "clone", "-q", place.remote(sandbox), ".")
    client.git("switch", "-q", "-c", BRANCH)
    return client


@pytest.fixture
def work(place):
    """Have the job of the push that is kept done; gives when it is to be done again."""

    async def work():
        async with place.sessions() as session:
            [job] = await session.scalars(select(Job).where(Job.kind == "git-push"))
        return await place.kept.work(job_of(job.subject))

    return work


async def test_kept__told_and_forwarded_when_the_forge_answers(place, client, forge, work):
    sha = client.commit()
    forge.answer = 503
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "kept by the server, which pushes it when git.example.org answers" in said
    assert (
        f"remote: sandbox-server: git.example.org does not answer; the server pushes {sha[:10]}"
        in said
    )
    assert await work() is not None
    forge.answer = None
    assert REF not in branches_at_forge(forge)
    assert await work() is None
    assert at_forge(forge) == sha
    [push] = await place.pushes()
    assert (push.state, push.attempts) == ("pushed", 1)
    assert "up-to-date" in await run(client, "push", "origin", BRANCH)


async def test_kept__in_the_database_encrypted(place, client, forge, work, mirrors):
    """Another server has none of the files."""
    sha = client.commit(secret__txt="a line that nobody else knows")
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    async with place.sessions() as session:
        [part] = await session.scalars(select(GitPushPart))
    assert b"git bundle" not in part.content_sealed
    forge.answer = None
    shutil.rmtree(mirrors.directory / "tasks")
    assert await work() is None
    assert at_forge(forge) == sha
    async with place.sessions() as session:
        assert list(await session.scalars(select(GitPushPart))) == []


async def test_kept__a_later_push_takes_its_place(place, client, forge, work):
    client.commit("feat: one")
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    sha = client.commit("feat: two")
    await run(client, "push", "origin", BRANCH, fails=True)
    assert [push.state for push in await place.pushes()] == ["superseded", "kept"]
    forge.answer = None
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == sha
    assert [push.state for push in await place.pushes()] == ["superseded", "superseded", "pushed"]


@pytest.mark.parametrize("settings", [{"accept_offline": True}])
async def test_kept__accepted_where_the_repository_says_so(place, client, forge):
    client.commit("feat: one")
    forge.answer = 503
    said = await run(client, "push", "origin", BRANCH)
    assert "does not answer; the server pushes" in said
    sha = client.commit("feat: two")
    await run(client, "push", "origin", BRANCH)
    forge.answer = None
    [_, kept] = await place.pushes()
    assert await place.kept.work(job_of(kept.id)) is None
    assert at_forge(forge) == sha


async def test_kept__somebody_else_pushed_meanwhile(place, client, forge, seeded, work):
    client.commit("feat: one")
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    person = seeded.commit("fix: by a person", person__txt="1")
    seeded.push(forge.path("acme/widgets"), f"HEAD:{REF}")
    forge.answer = None
    assert await work() is None
    assert at_forge(forge) == person
    [push] = await place.pushes()
    assert push.state == "refused"
    async with place.sessions() as session:
        assert list(await session.scalars(select(GitPushPart)))


async def test_kept__answer_that_was_lost(place, client, forge, work):
    """The push had its effect, and the server does not know it."""
    sha = client.commit()
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    forge.answer = None
    client.git("push", "-q", str(forge.path("acme/widgets")), f"HEAD:{REF}")
    assert await work() is None
    assert at_forge(forge) == sha
    [push] = await place.pushes()
    assert push.state == "pushed"


async def test_kept__given_up_after_a_day(place, client, forge, work):
    client.commit()
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    [push] = await place.pushes()
    await place.set(GitPush, created_at=push.created_at - timedelta(hours=25))
    assert await work() is None
    [push] = await place.pushes()
    assert push.state == "refused"


async def test_push__two_at_once_of_one_branch(place, client, git_in, forge):
    """One of them is first, and the other is told to fetch."""
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    other = git_in("other")
    await run(
        other, "clone", "-q", "--branch", BRANCH, client.git("remote", "get-url", "origin"), "."
    )
    one, two = client.commit("feat: two"), other.commit("feat: three", three__txt="3")

    def push(of):
        try:
            return of.git("push", "origin", BRANCH)
        except AssertionError as refused:
            return f"refused: {refused}"

    said = await asyncio.gather(asyncio.to_thread(push, client), asyncio.to_thread(push, other))
    assert sum(text.startswith("refused: ") for text in said) == 1, said
    assert at_forge(forge) in (one, two)
    assert git(forge.path("acme/widgets"), "fsck", "--no-dangling") == ""


async def test_retention__removes_old_pushes_but_none_that_is_still_kept(place, client, forge):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    client.commit("feat: two")
    forge.answer = 503
    await run(client, "push", "origin", BRANCH, fails=True)
    async with place.sessions.begin() as session:
        assert await RetentionRepository(session, limit=10).remove_pushes(timedelta()) == 1
    assert [push.state for push in await place.pushes()] == ["kept"]
