"""Failed checks of branches whose diagnosis is published as a comment."""

from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from sandbox_server.db.models import Task
from sandbox_server.domain.errors import NotSupportedByForge
from sandbox_server.domain.tasks.forges import PullLifecycle
from sandbox_server.jobs.kinds import FORGE_WRITES
from sandbox_server.tasks.outbox import OutboxWorker
from sandbox_server.tasks.stages.report_comments import ReportComments
from sandbox_server.tasks.stages.work import TaskWork
from sandbox_server.tasks.transitions import TaskTransitions
from tests.server.support.memory_forge import widgets
from tests.server.support.task_rows import HEAD, NEXT, pull_facts
from tests.server.tasks.following.conftest import job_of
from tests.server.tasks.triggers.test_deliveries import FAILED_RUN


@pytest.fixture
async def diagnosed(triggered):
    await triggered.set_triggers(ci_fix=True, ci_fix_mode="comment")
    return triggered


async def diagnose(triggered, sha, words):
    """Have the checks of a commit fail and the agent report; gives the task."""
    triggered.forge.set_checks(sha, build="failure")
    assert "created" in await triggered.deliver("check", "completed", FAILED_RUN, subject=sha)
    task = (await triggered.tasks())[-1]
    async with triggered.sessions.begin() as session:
        values = {"stage": "publishing", "base_sha": sha, "report": {"summary": words}}
        await session.execute(update(Task).where(Task.id == task.id).values(values))
    await publish(triggered, task.id)
    worker = OutboxWorker(triggered.sessions, triggered.forges)
    await worker.work(job_of(FORGE_WRITES, triggered.forge_id))
    await publish(triggered, task.id)
    return await read(triggered, task.id)


async def read(triggered, task_id):
    async with triggered.sessions() as session:
        return await session.get_one(Task, task_id)


async def publish(triggered, task_id):
    """Do what the step of the stage `publishing` does once."""
    row = await triggered.repositories.row(triggered.repository_id)
    transitions = TaskTransitions(triggered.sessions)
    comments = ReportComments(triggered.sessions, triggered.forges, transitions)
    work = TaskWork(await read(triggered, task_id), row, datetime.now(UTC))
    await comments.publish(work)


async def end(triggered, task):
    async with triggered.sessions.begin() as session:
        ended = update(Task).where(Task.id == task.id)
        await session.execute(ended.values(stage="done", ended_at=triggered.forge.tick()))


async def test_a_diagnosis_is_one_comment_on_the_pull_request_edited_in_place(diagnosed):
    diagnosed.forge.pulls[7] = pull_facts(number=7, head_ref="feature")
    first = await diagnose(diagnosed, HEAD, "A semicolon is missing.")
    assert (first.pull_request, first.outcome) == ("comment", "done")
    assert [each.data.get("may_rerun") for each in await diagnosed.messages()] == [None, False]
    await end(diagnosed, first)
    await diagnose(diagnosed, NEXT, "Now a brace is missing.")
    [comment] = diagnosed.forge.comments[7]
    assert "Now a brace is missing." in comment.body
    assert NEXT in comment.body
    assert [kind for kind, _ in diagnosed.forge.written] == ["comment", "edit"]


async def test_without_an_open_pull_request_the_commit_is_commented(diagnosed):
    diagnosed.forge.pulls[7] = pull_facts(
        number=7, head_ref="feature", lifecycle=PullLifecycle.CLOSED
    )
    await diagnose(diagnosed, HEAD, "A semicolon is missing.")
    [(kind, body)] = diagnosed.forge.written
    assert kind == f"comment on {HEAD}"
    assert "A semicolon is missing." in body


async def test_a_comment_that_somebody_has_deleted_is_written_anew(diagnosed):
    diagnosed.forge.pulls[7] = pull_facts(number=7, head_ref="feature")
    await end(diagnosed, await diagnose(diagnosed, HEAD, "A semicolon is missing."))
    diagnosed.forge.comments[7].clear()
    await diagnose(diagnosed, NEXT, "Now a brace is missing.")
    assert len(diagnosed.forge.comments[7]) == 1


async def test_a_forge_that_has_no_such_comments_leaves_the_diagnosis_in_the_task(diagnosed):
    diagnosed.forge.refuse_writes(NotSupportedByForge("github", "No comments on commits."))
    task = await diagnose(diagnosed, HEAD, "A semicolon is missing.")
    assert "No comments on commits" in task.stage_reason
    assert task.outcome == "done"


async def test_a_credential_that_may_not_push_is_enough_for_a_comment(diagnosed):
    facts = widgets(permissions=frozenset({"pull"}))
    await diagnosed.repositories.observe(diagnosed.repository_id, facts)
    diagnosed.forge.set_checks(HEAD, build="failure")
    assert "created" in await diagnosed.deliver("check", "completed", FAILED_RUN, subject=HEAD)
