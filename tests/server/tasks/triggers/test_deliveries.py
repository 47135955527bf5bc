import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from sandbox_server.db.models import Task
from sandbox_server.domain.errors import ForgePermissionMissing, ForgeUnavailable
from sandbox_server.jobs.kinds import PULL_REQUEST, TASK
from sandbox_server.tasks.quotes import full_text
from tests.server.support.memory_forge import BOT, widgets
from tests.server.support.task_rows import HEAD, add_pull, add_task, pull_facts

FAILED_RUN: dict[str, dict[str, Any]] = {
    "repository": {"id": 1001},
    "workflow_run": {
        "conclusion": "failure",
        "head_branch": "feature",
        "head_repository": {"id": 1001},
    },
}


async def test_a_labelled_issue_becomes_a_task(triggered):
    assert "created" in await triggered.label()
    [task] = await triggered.tasks()
    assert (task.source, task.source_ref, task.requester) == ("issue", "7", "alice")
    assert await triggered.jobs(TASK) == [task.id]


async def test_another_label_starts_nothing(triggered):
    assert "Ignored" in await triggered.label("bug")
    assert await triggered.tasks() == []


async def test_an_issue_has_one_open_task(triggered):
    await triggered.label()
    assert "open" in await triggered.label()
    assert len(await triggered.tasks()) == 1


async def test_two_servers_that_process_deliveries_of_an_issue_start_one_task(triggered):
    ids = [
        await triggered.store("issue", "labeled", {"label": {"name": "agent"}}) for _ in range(4)
    ]
    await asyncio.gather(*(triggered.process(each) for each in ids for _ in range(2)))
    assert len(await triggered.tasks()) == 1


async def test_a_retried_delivery_starts_no_second_task_after_the_first_has_ended(triggered):
    delivery_id = await triggered.store("issue", "labeled", {"label": {"name": "agent"}})
    await triggered.process(delivery_id)
    await end_tasks(triggered, stage="merged")
    async with triggered.sessions.begin() as session:
        row = await session.merge(await triggered.delivery(delivery_id))
        row.done_at = None
    await triggered.process(delivery_id)
    assert len(await triggered.tasks()) == 1
    await triggered.label()
    assert len(await triggered.tasks()) == 2


async def end_tasks(triggered, **columns):
    async with triggered.sessions.begin() as session:
        ended = update(Task).where(Task.ended_at.is_(None))
        await session.execute(ended.values(ended_at=triggered.forge.tick(), **columns))


@pytest.mark.parametrize("actor", ["mallory", "ci[bot]", BOT, "agent"])
async def test_only_users_with_write_permission_start_tasks(triggered, actor):
    triggered.forge.writers |= {"ci[bot]", BOT, "agent"}
    assert "Ignored" in await triggered.label(actor=actor)
    assert "Ignored" in await triggered.mention(actor=actor)
    assert await triggered.tasks() == []


async def test_listed_users_and_bots_start_tasks(triggered):
    await triggered.set_triggers(labels=["agent"], users=["mallory", "ci[bot]"])
    assert "created" in await triggered.label(actor="mallory", subject="1")
    assert "created" in await triggered.label(actor="ci[bot]", subject="2")


async def test_a_mention_starts_a_task_with_the_comment_as_instructions(triggered):
    assert "created" in await triggered.mention("Please, @Agent, fix the parser.")
    [task] = await triggered.tasks()
    assert task.instructions == "Please, @Agent, fix the parser."


async def test_a_mention_is_told_to_the_open_task_of_the_issue(triggered):
    await triggered.label()
    outcome = await triggered.mention("@agent and the docs")
    [task] = await triggered.tasks()
    assert task.id in outcome
    assert "and the docs" in [message.text for message in await triggered.messages()][-1]


@pytest.mark.parametrize("body", ["no word", "@agent <!-- sandbox-server:0abc -->"])
async def test_a_comment_without_a_mention_or_with_our_marker_starts_nothing(triggered, body):
    assert "Ignored" in await triggered.mention(body)
    assert await triggered.tasks() == []


@pytest.mark.parametrize("action", ["edited", "deleted"])
async def test_only_new_comments_start_tasks(triggered, action):
    payload = {"issue": {"number": 7}, "comment": {"id": 1, "body": "@agent go"}}
    assert "Ignored" in await triggered.deliver("comment", action, payload)


async def add_followed(triggered, **columns):
    task_id = await add_task(
        triggered.sessions, await triggered.repositories.row(triggered.repository_id), **columns
    )
    await add_pull(triggered.sessions, task_id, pull_facts())
    return task_id


@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("pull", "5"),
        ("review", "5"),
        ("review-comment", "5"),
        ("check", HEAD),
        ("push", "refs/heads/main"),
        ("push", "refs/heads/task-x"),
    ],
)
async def test_what_happens_to_a_tasks_pull_request_wakes_its_job(triggered, kind, subject):
    await add_followed(triggered)
    outcome = await triggered.deliver(kind, "x", {}, subject=subject)
    assert outcome == "Pull request #5 will be read."
    assert await triggered.jobs(PULL_REQUEST) == [f"{triggered.repository_id}/5"]


async def test_a_comment_on_a_tasks_pull_request_wakes_its_job(triggered):
    await add_followed(triggered)
    payload = {"issue": {"pull_request": {}}, "comment": {"id": 1, "body": "@agent"}}
    await triggered.deliver("comment", "created", payload, subject="5")
    assert await triggered.jobs(PULL_REQUEST) == [f"{triggered.repository_id}/5"]
    assert len(await triggered.tasks()) == 1


async def test_other_pull_requests_are_left_alone(triggered):
    assert "no task" in await triggered.deliver("pull", "opened", {}, subject="6")
    assert await triggered.jobs(PULL_REQUEST) == []


async def test_failed_checks_of_a_branch_become_a_task_where_enabled(triggered):
    triggered.forge.set_checks(HEAD, build="failure", lint="success")
    triggered.forge.logs["build"] = b"error: no semicolon"
    assert "created" in await triggered.deliver("check", "completed", FAILED_RUN, subject=HEAD)
    [task] = await triggered.tasks()
    assert (task.source, task.source_ref, task.base_ref) == ("ci-fix", "feature", "feature")
    assert "no semicolon" in "".join(full_text(each) for each in await triggered.messages())


async def test_failed_checks_start_nothing_where_not_enabled(triggered):
    await triggered.set_triggers()
    triggered.forge.set_checks(HEAD, build="failure")
    assert "ci_fix" in await triggered.deliver("check", "completed", FAILED_RUN, subject=HEAD)
    assert await triggered.tasks() == []


async def test_a_branch_is_fixed_once_per_failure_and_has_one_open_task(triggered):
    triggered.forge.set_checks(HEAD, build="failure")
    await triggered.deliver("check", "completed", FAILED_RUN, subject=HEAD)
    assert "Ignored" in await triggered.deliver("check", "completed", FAILED_RUN, subject=HEAD)
    await end_tasks(triggered, stage="closed")
    assert "before" in await triggered.deliver("check", "completed", FAILED_RUN, subject=HEAD)
    assert len(await triggered.tasks()) == 1


async def test_a_failure_of_a_branch_waits_for_its_other_checks(triggered):
    triggered.forge.set_checks(HEAD, build="failure", slow=None)
    delivery_id = await triggered.store("check", "completed", FAILED_RUN, subject=HEAD)
    due = await triggered.process(delivery_id)
    assert due is not None
    assert (await triggered.delivery(delivery_id)).done_at is None
    triggered.forge.set_checks(HEAD, build="failure", slow="success")
    assert await triggered.process(delivery_id) is None
    assert len(await triggered.tasks()) == 1


async def test_a_tasks_own_branch_and_forks_are_not_fixed(triggered):
    triggered.forge.set_checks(HEAD, build="failure")
    fork = {"workflow_run": {**FAILED_RUN["workflow_run"], "head_repository": {"id": 666}}}
    outcome = await triggered.deliver("check", "completed", {**FAILED_RUN, **fork}, subject=HEAD)
    assert "Ignored" in outcome
    task_id = await add_task(
        triggered.sessions, await triggered.repositories.row(triggered.repository_id)
    )
    own = {"workflow_run": {**FAILED_RUN["workflow_run"], "head_branch": f"task-{task_id}"}}
    outcome = await triggered.deliver("check", "completed", {**FAILED_RUN, **own}, subject=HEAD)
    assert "belongs to a task" in outcome


async def test_three_failed_tasks_in_a_row_pause_the_triggers(triggered):
    for number in range(3):
        await triggered.label(subject=str(number))
        await end_tasks(triggered, stage="failed", stage_reason="no template")
    assert "paused" in await triggered.label(subject="9")
    row = await triggered.repositories.row(triggered.repository_id)
    assert "no template" in row.triggers_paused_reason
    assert "paused" in await triggered.label(subject="10")
    assert len(await triggered.tasks()) == 3


async def test_a_repository_that_cannot_be_pushed_to_starts_nothing(triggered):
    facts = widgets(permissions=frozenset({"pull"}))
    await triggered.repositories.observe(triggered.repository_id, facts)
    assert "may not push" in await triggered.label()


async def test_a_repository_whose_forge_does_not_tell_whether_it_can_be_pushed_to_starts_tasks(
    triggered,
):
    row = await triggered.repositories.observe(
        triggered.repository_id, widgets(permissions=frozenset())
    )
    assert row.may_push is None
    assert "created" in await triggered.label()


async def test_a_delivery_of_an_unknown_or_removed_repository_is_ignored(triggered):
    assert "not one of" in await triggered.label(repository="999")
    assert "not about" in await triggered.label(repository=None)
    await triggered.repositories.remove(triggered.caller, triggered.repository_id)
    assert "not one of" in await triggered.label()


async def test_a_renamed_repository_is_followed(triggered):
    await triggered.label(repository_name="acme/gadgets")
    row = await triggered.repositories.row(triggered.repository_id)
    assert row.full_name == "acme/gadgets"


async def test_a_failing_forge_leaves_the_delivery_to_the_queue(triggered):
    triggered.forge.set_checks(HEAD, build="failure")
    delivery_id = await triggered.store("check", "completed", FAILED_RUN, subject=HEAD)
    triggered.forge.refusal = ForgeUnavailable("github", "No answer.")
    assert await triggered.process(delivery_id) is not None
    row = await triggered.delivery(delivery_id)
    assert row.done_at is None
    assert "No answer." in row.outcome
    triggered.forge.refusal = ForgePermissionMissing("github", "checks: read is missing")
    await triggered.process(delivery_id)
    assert "checks: read" in (await triggered.delivery(delivery_id)).outcome


async def test_a_delivery_without_its_body_wakes_the_pull_request_nevertheless(triggered):
    await add_followed(triggered)
    await triggered.deliver("pull", "synchronize", {}, subject="5", body=None)
    assert await triggered.jobs(PULL_REQUEST) == [f"{triggered.repository_id}/5"]


@pytest.mark.parametrize(
    "payload",
    [
        {"label": None},
        {"label": {"name": ["agent"]}},
        {"label": "agent"},
        {"issue": [], "comment": {"id": {}, "body": 7}},
        {"workflow_run": "x"},
        {"object_attributes": {"note": None}},
    ],
)
@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("issue", "labeled"),
        ("comment", "created"),
        ("check", "completed"),
        ("pull", "x"),
        ("push", "push"),
        ("other", "x"),
    ],
)
async def test_fields_of_other_types_start_nothing(triggered, payload, kind, action):
    outcome = await triggered.deliver(kind, action, payload)
    assert outcome
    assert await triggered.tasks() == []
