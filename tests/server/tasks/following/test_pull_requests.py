import asyncio
from dataclasses import replace
from datetime import timedelta

from sandbox_server.domain.errors import ForgeLimited, ForgeUnavailable
from sandbox_server.domain.tasks.forges import PullLifecycle
from sandbox_server.jobs.kinds import TASK
from tests.server.support.task_rows import NEXT

MINUTE = timedelta(minutes=1)


async def test_a_merged_pull_request_wakes_its_task_and_is_not_followed_any_more(followed):
    followed.forge.change_pull(5, lifecycle=PullLifecycle.MERGED)
    assert await followed.look() is None
    assert (await followed.pull()).lifecycle == "merged"
    assert await followed.has_job(TASK)
    asked = len(followed.forge.asked)
    assert await followed.look() is None
    assert len(followed.forge.asked) == asked


async def test_an_open_pull_request_is_read_every_ten_minutes_at_no_cost(followed):
    await followed.look()
    before = (await followed.pull()).validator
    due = await followed.look()
    pull = await followed.pull()
    assert pull.validator == before
    assert 9 * MINUTE < due - pull.looked_at < 11 * MINUTE


async def test_a_push_of_a_person_is_noted(followed):
    followed.forge.change_pull(5, head_sha=NEXT)
    await followed.look()
    assert (await followed.pull()).head_sha == NEXT
    assert await followed.has_job(TASK)


async def test_older_descriptions_never_replace_newer_ones(followed):
    newer = followed.forge.change_pull(5, lifecycle=PullLifecycle.CLOSED)
    await followed.look()
    followed.forge.pulls[5] = replace(
        newer, lifecycle=PullLifecycle.OPEN, updated_at=newer.updated_at - MINUTE
    )
    await followed.look()
    assert (await followed.pull()).lifecycle == "closed"


async def test_a_conflict_is_told_once_per_head(followed):
    followed.forge.change_pull(5, mergeable=False)
    await followed.look()
    await followed.look()
    [message] = await followed.messages()
    assert message.origin == "conflict"
    assert "merge it into the branch" in message.text


async def test_a_conflict_is_not_told_while_the_agent_works(followed):
    await followed.set_task(stage="fixing")
    followed.forge.change_pull(5, mergeable=False)
    await followed.look()
    assert await followed.messages() == []


async def test_two_servers_that_look_at_once_tell_once(followed):
    followed.forge.change_pull(5, mergeable=False)
    followed.forge.add_review(5, "alice", "No.", state="changes_requested")
    await asyncio.gather(*(followed.look() for _ in range(4)))
    assert sorted(message.origin for message in await followed.messages()) == ["conflict", "review"]


async def test_a_limit_of_the_forge_postpones_the_look(followed):
    followed.forge.refusal = ForgeLimited("github", "Slow down.", retry_after=7 * MINUTE)
    due = await followed.look()
    assert due - (await followed.pull()).looked_at >= 6 * MINUTE


async def test_an_outage_of_the_forge_is_waited_for_without_end(followed):
    followed.forge.refusal = ForgeUnavailable("github", "No answer.")
    for _ in range(12):  # more than the attempts of a job
        due = await followed.look()
        assert due - (await followed.pull()).looked_at < 2 * MINUTE


async def test_a_task_that_has_ended_is_not_followed(followed):
    await followed.set_task(stage="cancelled", ended_at=followed.forge.clock)
    assert await followed.look() is None
    assert all(call != "get_pull" for call, *_ in followed.forge.asked)
