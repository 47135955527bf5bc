"""Labels and mentions whose webhooks never arrived."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from sandbox_server.db.models import Repository, Task, WebhookDelivery
from sandbox_server.domain.errors import ForgeLimited, NotSupportedByForge
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.jobs.kinds import TRIGGER_LOOK
from sandbox_server.tasks.triggers.reconciliation import MissedTriggers
from tests.server.support.memory_forge import BOT
from tests.server.support.task_rows import pull_facts
from tests.server.tasks.following.conftest import job_of
from tests.server.tasks.triggers.test_deliveries import end_tasks

MINUTE = timedelta(minutes=1)


async def look(triggered):
    """Do what the hourly job does, and process what it found; gives when it is due again."""
    deliveries = Deliveries(triggered.sessions, triggered.forges)
    worker = MissedTriggers(
        triggered.sessions, deliveries, triggered.forges, triggered.repositories
    )
    due = await worker.work(job_of(TRIGGER_LOOK, triggered.repository_id))
    async with triggered.sessions() as session:
        found = select(WebhookDelivery.id).where(WebhookDelivery.done_at.is_(None))
        for delivery_id in (await session.scalars(found)).all():
            await triggered.process(delivery_id)
    return due


@pytest.fixture
async def looked(triggered):
    """Have looked an hour ago."""
    await look(triggered)
    async with triggered.sessions.begin() as session:
        row = await session.get_one(Repository, triggered.repository_id)
        hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        row.trigger_looks = {name: {"since": hour_ago} for name in row.trigger_looks}
    return triggered


async def test_a_repository_with_triggers_is_looked_at_every_hour(triggered):
    assert await triggered.jobs(TRIGGER_LOOK) == [triggered.repository_id]
    due = await look(triggered)
    assert 59 * MINUTE < due - datetime.now(UTC) <= 60 * MINUTE
    await triggered.set_triggers()
    assert await look(triggered) is None
    assert await triggered.jobs(TRIGGER_LOOK) == []


async def test_what_was_there_before_the_triggers_starts_nothing(triggered):
    triggered.forge.label(7, "agent", "alice", age=30 * MINUTE)
    await look(triggered)
    await look(triggered)
    assert await triggered.tasks() == []


async def test_a_label_whose_webhook_was_lost_becomes_one_task(looked):
    looked.forge.label(7, "agent", "alice", age=30 * MINUTE)
    await look(looked)
    await asyncio.gather(look(looked), look(looked))
    [task] = await looked.tasks()
    assert (task.source, task.source_ref, task.requester) == ("issue", "7", "alice")
    await end_tasks(looked, stage="merged")
    await look(looked)
    assert len(await looked.tasks()) == 1


async def test_two_servers_that_look_at_once_start_one_task(looked):
    looked.forge.label(7, "agent", "alice", age=30 * MINUTE)
    await asyncio.gather(*(look(looked) for _ in range(4)))
    assert len(await looked.tasks()) == 1


async def test_a_label_whose_webhook_arrived_starts_no_second_task(looked):
    looked.forge.label(7, "agent", "alice", age=30 * MINUTE)
    await looked.label()
    async with looked.sessions.begin() as session:
        ended = {"stage": "merged", "ended_at": datetime.now(UTC) - MINUTE}
        await session.execute(update(Task).values(ended))
    await look(looked)
    assert len(await looked.tasks()) == 1


async def test_a_label_that_is_added_again_after_its_task_starts_another_one(looked):
    await looked.label()
    async with looked.sessions.begin() as session:
        ended = {"stage": "closed", "ended_at": datetime.now(UTC) - 20 * MINUTE}
        await session.execute(update(Task).values(ended))
    looked.forge.label(7, "agent", "alice", age=10 * MINUTE)
    await look(looked)
    assert len(await looked.tasks()) == 2


async def test_a_label_of_somebody_without_permission_starts_nothing(looked):
    looked.forge.label(7, "agent", "mallory", age=30 * MINUTE)
    await look(looked)
    assert await looked.tasks() == []


async def test_a_list_that_is_too_long_for_one_look_is_read_on_at_once(looked):
    for number, age in ((7, 30), (8, 20)):
        looked.forge.add_comment(number, "alice", "@agent fix it", age=age * MINUTE)
    looked.forge.longest_list = 1
    due = await look(looked)
    assert due - datetime.now(UTC) < MINUTE
    assert [task.source_ref for task in await looked.tasks()] == ["7"]
    looked.forge.longest_list = None
    due = await look(looked)
    assert due - datetime.now(UTC) > 59 * MINUTE
    assert sorted(task.source_ref for task in await looked.tasks()) == ["7", "8"]


async def test_mentions_whose_webhooks_were_lost_are_heard_once(looked):
    looked.forge.pulls[9] = pull_facts(number=9, head_ref="feature")
    for number, body in ((7, "@agent fix it"), (8, "thanks"), (9, "@agent add a test")):
        looked.forge.add_comment(number, "alice", body, age=30 * MINUTE)
    looked.forge.add_comment(8, BOT, "You can call me with @agent.", age=30 * MINUTE)
    await look(looked)
    await look(looked)
    tasks = await looked.tasks()
    assert sorted((task.source, task.source_ref) for task in tasks) == [
        ("issue", "7"),
        ("mention", "9"),
    ]
    assert len(await looked.messages()) == 2


async def test_a_mention_whose_webhook_arrived_is_not_told_again(looked):
    made = looked.forge.add_comment(7, "alice", "@agent fix it", age=30 * MINUTE)
    payload = {"issue": {"number": 7}, "comment": {"id": made.id, "body": made.body}}
    await looked.deliver("comment", "created", payload)
    await look(looked)
    assert len(await looked.messages()) == 1


async def test_nothing_new_is_asked_for_with_a_validator(looked):
    await look(looked)
    await look(looked)
    row = await looked.repositories.row(looked.repository_id)
    assert all(each["validator"] for each in row.trigger_looks.values())
    looked.forge.label(7, "agent", "alice", age=MINUTE)
    await look(looked)
    assert len(await looked.tasks()) == 1


async def test_a_limit_postpones_the_look_and_loses_nothing(looked):
    looked.forge.label(7, "agent", "alice", age=30 * MINUTE)
    looked.forge.refusal = ForgeLimited("github", "Slow down.", retry_after=7 * MINUTE)
    due = await look(looked)
    assert 6 * MINUTE < due - datetime.now(UTC) < 8 * MINUTE
    looked.forge.refusal = None
    await look(looked)
    assert len(await looked.tasks()) == 1


async def test_a_forge_without_issues_is_not_looked_at(looked):
    looked.forge.refusal = NotSupportedByForge("git", "There are no issues.")
    assert await look(looked) is None
