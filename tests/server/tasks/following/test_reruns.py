"""Failed jobs that the agent reports as flaky."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from sandbox_server.db.models import ForgeWrite
from sandbox_server.domain.errors import NotSupportedByForge
from sandbox_server.tasks.following.reruns import request_rerun
from sandbox_server.tasks.outbox_repository import WriteOwner
from tests.server.support.task_rows import HEAD

MINUTE = timedelta(minutes=1)


async def report_flaky(followed):
    """Do what follows a run without a change whose agent says that the failure is flaky."""
    async with followed.sessions.begin() as session:
        return await request_rerun(
            session,
            WriteOwner(forge_id=followed.forge_id, repository_id=followed.repository_id),
            await followed.messages(),
            reason="The registry did not answer.",
            number=5,
        )


@pytest.fixture
async def flaky(followed):
    """Have a check fail, and the agent report it as flaky."""
    followed.forge.set_checks(HEAD, build="failure", lint="success")
    await followed.look()
    said = await report_flaky(followed)
    assert "build. The registry did not answer." in said
    return followed


async def test_a_flaky_job_is_rerun_once_and_its_success_counts(flaky):
    await flaky.look()  # the rerun is still to be requested
    await flaky.write()
    due = await flaky.look()  # the forge still shows the old failure
    pull = await flaky.pull()
    assert (pull.checks, flaky.forge.written) == ("pending", [("rerun", "build")])
    assert 9 * MINUTE < due - pull.looked_at < 11 * MINUTE
    flaky.forge.set_checks(HEAD, build="success", lint="success")
    await flaky.look()
    assert (await flaky.pull()).checks == "success"
    assert len(await flaky.messages()) == 1


async def test_a_second_failure_of_the_same_job_is_told_as_a_failure(flaky):
    await flaky.write()
    flaky.forge.set_checks(HEAD, build="failure", lint="success")
    await flaky.look()
    await flaky.look()
    first, second = await flaky.messages()
    assert (first.data["may_rerun"], second.data["may_rerun"]) == (True, False)
    assert "rerun once" in second.text
    assert await report_flaky(flaky) is not None  # of the first message
    await flaky.write()
    assert [kind for kind, _ in flaky.forge.written] == ["rerun"]


async def test_another_job_that_fails_is_not_waited_for(flaky):
    await flaky.write()
    flaky.forge.set_checks(HEAD, build=None, lint="failure")
    await flaky.pass_time(11 * MINUTE)
    await flaky.look()
    await flaky.pass_time(11 * MINUTE)
    await flaky.look()
    assert len(await flaky.messages()) == 2


async def test_a_rerun_that_never_appears_is_a_failure(flaky):
    await flaky.write()
    async with flaky.sessions.begin() as session:
        await session.execute(update(ForgeWrite).values(done_at=ForgeWrite.done_at - 11 * MINUTE))
    await flaky.look()
    assert len(await flaky.messages()) == 2


async def test_a_forge_that_cannot_rerun_jobs_is_said_to_a_person(flaky):
    flaky.forge.refuse_writes(NotSupportedByForge("github", "Its API cannot rerun jobs."))
    await flaky.write()
    flaky.forge.write_refusal = None
    await flaky.look()
    task = await flaky.task()
    assert task.stage == "waiting-for-user"
    assert "The registry did not answer." in task.stage_reason
    assert "cannot rerun jobs" in task.stage_reason


async def test_a_rerun_whose_answer_was_lost_is_requested_again(flaky):
    flaky.forge.answer_lost = True
    assert await flaky.write() is not None
    assert await flaky.write() is None
    assert (await flaky.writes())[0].done_at is not None


async def test_a_person_who_reruns_a_job_is_believed(followed):
    followed.forge.set_checks(HEAD, build="failure")
    await followed.look()
    followed.forge.attempts["build"] = 1
    followed.forge.set_checks(HEAD, build="success")
    await followed.look()
    assert (await followed.pull()).checks == "success"
