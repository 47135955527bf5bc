from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from sandbox_server.db.models import PullRequest, Task
from sandbox_server.domain.errors import ForgePermissionMissing
from tests.server.support.task_rows import HEAD, NEXT

MINUTE = timedelta(minutes=1)


@pytest.fixture
async def draft(followed):
    """Make the pull request a draft that was published half an hour ago."""
    followed.forge.change_pull(5, draft=True)
    await followed.look()
    await pushed(followed, 30 * MINUTE)
    return followed


async def pushed(followed, age):
    """Let the head have been published `age` ago."""
    async with followed.sessions.begin() as session:
        await session.execute(update(Task).values(stage_at=datetime.now(UTC) - age))


async def settle(followed):
    """Look, do what is due at the forge, and look again."""
    due = await followed.look()
    await followed.write()
    await followed.look()
    return due


def made_ready(followed):
    return [body for kind, body in followed.forge.written if kind == "draft"]


async def test_a_draft_becomes_ready_when_its_checks_have_passed(draft):
    draft.forge.set_checks(HEAD, build=None)
    await settle(draft)
    assert made_ready(draft) == []
    draft.forge.set_checks(HEAD, build="success")
    await settle(draft)
    await settle(draft)
    assert made_ready(draft) == ["False"]
    assert draft.forge.pulls[5].draft is False
    assert (await draft.pull()).draft is False


@pytest.mark.parametrize("conclusion", ["failure", "timed_out"])
async def test_a_draft_whose_checks_failed_stays_one(draft, conclusion):
    draft.forge.set_checks(HEAD, build=conclusion, lint="success")
    await settle(draft)
    assert made_ready(draft) == []


async def test_checks_that_passed_within_a_minute_wait_for_others_to_be_created(draft):
    await pushed(draft, 20 * timedelta(seconds=1))
    draft.forge.set_checks(HEAD, quick="success")
    due = await settle(draft)
    assert made_ready(draft) == []
    assert due - (await draft.pull()).looked_at < MINUTE
    draft.forge.set_checks(HEAD, quick="success", slow="failure")
    await pushed(draft, 2 * MINUTE)
    await settle(draft)
    assert made_ready(draft) == []


async def test_without_checks_a_draft_becomes_ready_ten_minutes_after_the_last_change(draft):
    await pushed(draft, 9 * MINUTE)
    due = await settle(draft)
    assert made_ready(draft) == []
    assert due - (await draft.pull()).looked_at < 2 * MINUTE
    await pushed(draft, 11 * MINUTE)
    await settle(draft)
    assert made_ready(draft) == ["False"]


async def test_a_change_by_others_delays_a_draft_without_checks(draft):
    draft.forge.clock = datetime.now(UTC)
    draft.forge.change_pull(5, head_sha=NEXT)
    await settle(draft)
    assert made_ready(draft) == []


async def test_a_draft_whose_checks_in_the_sandbox_failed_is_not_ready_without_others(draft):
    await draft.set_task(report={"checks": {"outcome": "failed"}})
    await settle(draft)
    assert made_ready(draft) == []
    draft.forge.set_checks(HEAD, build="success")
    await settle(draft)
    assert made_ready(draft) == ["False"]


async def test_a_draft_whose_answer_was_lost_is_made_ready_once(draft):
    draft.forge.set_checks(HEAD, build="success")
    await draft.look()
    draft.forge.answer_lost = True
    assert await draft.write() is not None
    assert await draft.write() is None
    assert made_ready(draft) == ["False"]


async def test_a_head_that_was_pushed_meanwhile_is_not_made_ready(draft):
    draft.forge.set_checks(HEAD, build="success")
    await draft.look()
    draft.forge.change_pull(5, head_sha=NEXT)
    await draft.write()
    assert made_ready(draft) == []
    draft.forge.set_checks(NEXT, build="success")
    await settle(draft)
    assert made_ready(draft) == ["False"]


async def test_what_a_person_makes_a_draft_again_stays_one(draft):
    draft.forge.set_checks(HEAD, build="success")
    await settle(draft)
    draft.forge.change_pull(5, draft=True, head_sha=NEXT)
    draft.forge.set_checks(NEXT, build="success")
    await settle(draft)
    assert made_ready(draft) == ["False"]
    assert draft.forge.pulls[5].draft is True


@pytest.mark.parametrize(
    "columns", [{"pull_request": "ready"}, {"stage": "fixing"}, {"stage": "waiting-for-user"}]
)
async def test_only_drafts_of_tasks_in_review_that_wanted_one_are_made_ready(draft, columns):
    await draft.set_task(**columns)
    draft.forge.set_checks(HEAD, build="success")
    await settle(draft)
    assert made_ready(draft) == []


async def test_a_refusal_of_the_forge_leaves_the_draft_and_the_task_as_they_are(draft):
    draft.forge.set_checks(HEAD, build="success")
    await draft.look()
    draft.forge.refusal = ForgePermissionMissing("github", "pull_requests")
    assert await draft.write() is None
    draft.forge.refusal = None
    await settle(draft)
    [write] = await draft.writes()
    assert "pull_requests" in write.error
    assert (await draft.task()).stage == "in-review"


async def test_an_unchanged_pull_request_is_noted_as_seen(draft):
    async with draft.sessions.begin() as session:
        await session.execute(
            update(PullRequest).values(looked_at=PullRequest.looked_at - 99 * MINUTE)
        )
    before = (await draft.pull()).looked_at
    await draft.look()
    assert (await draft.pull()).looked_at - before > 98 * MINUTE
