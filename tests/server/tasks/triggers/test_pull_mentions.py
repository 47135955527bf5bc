"""Mentions on pull requests that people have opened."""

import pytest

from sandbox_server.domain.tasks.forges import PullLifecycle
from sandbox_server.jobs.kinds import FORGE_WRITES, PULL_REQUEST
from sandbox_server.tasks.outbox import OutboxWorker
from tests.server.support.task_rows import add_pull, add_task, pull_facts
from tests.server.tasks.following.conftest import job_of


@pytest.fixture
def opened(triggered):
    """Have a person open pull request #7 from the branch `feature`."""
    triggered.forge.pulls[7] = pull_facts(number=7, head_ref="feature", title="Count better")
    return triggered


async def mention(triggered, body="@agent add a test", **columns):
    payload = {"issue": {"number": 7, "pull_request": {}}, "comment": {"id": 1, "body": body}}
    return await triggered.deliver("comment", "created", payload, **columns)


async def test_a_mention_starts_a_task_on_top_of_the_branch_of_the_pull_request(opened):
    assert "created" in await mention(opened)
    [task] = await opened.tasks()
    assert (task.source, task.source_ref, task.base_ref) == ("mention", "7", "feature")
    assert task.branch == f"task-{task.id}"
    assert task.title == "Work on #7: Count better"
    assert task.instructions == "@agent add a test"


async def test_a_comment_without_a_mention_or_by_a_visitor_starts_nothing(opened):
    assert "not mentioned" in await mention(opened, "looks good")
    assert "no write permission" in await mention(opened, actor="mallory")
    assert await opened.tasks() == []


async def test_another_mention_is_told_to_the_open_task(opened):
    await mention(opened)
    assert "before" in await mention(opened)
    payload = {
        "pull_request": {"number": 7},
        "comment": {"id": 1, "body": "@agent and this", "path": "src/widgets.py", "line": 3},
    }
    assert "was told" in await opened.deliver("review-comment", "created", payload)
    assert len(await opened.tasks()) == 1
    assert "On src/widgets.py, line 3:" in (await opened.messages())[-1].text


async def test_a_review_with_a_mention_starts_a_task(opened):
    payload = {"pull_request": {"number": 7}, "review": {"id": 3, "body": "@agent rename it"}}
    assert "created" in await opened.deliver("review", "submitted", payload)


@pytest.mark.parametrize("repository", ["666", None])
async def test_a_fork_is_answered_once_by_a_comment_that_says_why_not(opened, repository):
    opened.forge.change_pull(7, head_repository_id=repository)
    assert "another repository" in await mention(opened)
    await mention(opened, "@agent please")
    assert await opened.jobs(FORGE_WRITES) == [opened.forge_id]
    worker = OutboxWorker(opened.sessions, opened.forges)
    await worker.work(job_of(FORGE_WRITES, opened.forge_id))
    [comment] = opened.forge.comments[7]
    assert "in a fork" in comment.body
    assert await opened.tasks() == []


async def test_a_closed_pull_request_starts_nothing(opened):
    opened.forge.change_pull(7, lifecycle=PullLifecycle.MERGED)
    assert "not open" in await mention(opened)


async def test_the_open_pull_request_of_a_task_that_has_ended_can_be_continued(opened):
    row = await opened.repositories.row(opened.repository_id)
    ended = await add_task(opened.sessions, row, stage="cancelled", ended_at=opened.forge.tick())
    await add_pull(opened.sessions, ended, opened.forge.pulls[7])
    assert "created" in await mention(opened)
    assert await opened.jobs(PULL_REQUEST) == []
