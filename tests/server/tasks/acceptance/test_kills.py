"""`kill -9` of servers, engine, sandbox and agent at each stage: one branch, one pull request, no line lost that was saved."""

import asyncio
import os
import signal

import pytest

from sandbox_server.domain.tasks.stages import RunKind
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from tests.server.tasks.acceptance.replicas import LINES, PATIENCE_S, WRITING, processes_with

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(900)]

SETTINGS = {"setup": "sleep 1", "checks": "sleep 1; grep -q 'line 1 ' log", "labels": ["agent"]}
EARLY = 4


async def _reach(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.002)


class Moments:
    """The points of a task at which something is killed."""

    def __init__(self, replicas, task):
        self.replicas, self.task = replicas, task

    async def row(self):
        return await self.replicas.row(self.task["id"])

    async def preparing(self):
        return (await self.row()).stage == "preparing"

    async def setup(self):
        return await self._has_run(RunKind.SETUP)

    async def working(self):
        await asyncio.sleep(0.2)  # reading a file is work for the server
        return len(await self.replicas.lines(self.task)) >= EARLY

    async def checking(self):
        return await self._has_run(RunKind.CHECKS)

    async def publishing(self):
        return (await self.row()).stage == "publishing"

    async def pushed(self):
        branch = (await self.row()).branch
        return branch is not None and self.replicas.world.head(branch) is not None

    async def pull_request(self):
        branch = (await self.row()).branch
        return (await self.row()).stage == "publishing" and bool(self.replicas.pulls(branch))

    async def cleanup(self):
        row = await self.row()
        if row.stage == "in-review" and row.target != "cancelled":
            await self.replicas.tasks.post(f"/v1/tasks/{row.id}/cancel")
        return row.outcome is not None and row.ended_at is None

    async def _has_run(self, kind):
        async with self.replicas.sessions() as session:
            run = await TaskHistoryRepository(session).find_open_run(self.task["id"])
        return run is not None and run.kind == kind


MOMENTS = (
    *("preparing", "setup", "working", "checking", "publishing"),
    *("pushed", "pull_request", "cleanup"),
)


async def _kill_server(replicas, victim, name):
    """Have all done by one server up to a moment, kill it there, and let the other one finish."""
    replicas.leave_to(victim)
    task = await replicas.tasks.create(WRITING)
    await _reach(getattr(Moments(replicas, task), name))
    before = await replicas.row(task["id"])
    replicas.kill(victim)
    older = await replicas.lines(task)
    end = "cancelled" if name == "cleanup" else "in-review"
    done = await replicas.tasks.until(task["id"], end, timeout=PATIENCE_S)
    replicas.require_whole(done, older)
    assert len(await replicas.tasks.sandboxes_of(task["id"])) == 1
    agents = [
        run for run in await replicas.tasks.items(task["id"], "runs") if run["kind"] == "agent"
    ]
    assert [run["outcome"] for run in agents] == ["succeeded"]
    if name == "pushed":
        assert before.published_sha is None
    await asyncio.to_thread(victim.start)


async def test_kill__of_a_server_right_after_its_push_makes_one_branch_and_one_pull_request(
    replicas,
):
    await replicas.tasks.add_repository(**SETTINGS)
    await _kill_server(replicas, replicas.servers[0], "pushed")


@pytest.mark.slow
@pytest.mark.parametrize("name", MOMENTS)
async def test_kill__of_either_server_at_each_stage_loses_no_line(replicas, name):
    await replicas.tasks.add_repository(**SETTINGS)
    for victim in replicas.servers:
        await _kill_server(replicas, victim, name)


async def _finish(replicas, task, name):
    if name == "in_review":
        done = await replicas.tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
        await replicas.tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Write more."})
        return await replicas.tasks.until(task["id"], "in-review", after=done, timeout=PATIENCE_S)
    return await replicas.tasks.until(task["id"], "in-review", timeout=PATIENCE_S)


async def _come_to(replicas, task, name):
    """Wait for a moment; gives what has been saved by then."""
    if name == "in_review":
        await replicas.tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
        return await replicas.lines(task) or replicas.published(
            await replicas.tasks.task(task["id"])
        )
    await _reach(getattr(Moments(replicas, task), name))
    if name != "working":
        return [] if name in ("preparing", "setup") else await replicas.lines(task)
    older = await replicas.lines(task)
    await replicas.tasks.post(f"/v1/tasks/{task['id']}/saves")
    await replicas.written(task, len(older) + 1)
    return older


OF_SANDBOXES = ("setup", "working", "checking", "publishing", "in_review")


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_SANDBOXES)
async def test_kill__of_the_sandbox_loses_no_line_that_was_saved(replicas, name):
    await replicas.tasks.add_repository(**SETTINGS)
    task = await replicas.tasks.create(WRITING)
    older = await _come_to(replicas, task, name)
    row = await replicas.row(task["id"])
    await replicas.tasks.kill_at_provider(row.sandbox_id)
    done = await _finish(replicas, task, name)
    replicas.require_whole(done, older, count=LINES + 5 * (name == "in_review"))
    if name == "working":
        assert older
        assert done["sandbox_id"] != row.sandbox_id


@pytest.mark.slow
@pytest.mark.parametrize("name", ["preparing", *OF_SANDBOXES])
async def test_kill__of_the_engine_loses_no_line_that_was_saved(replicas, name):
    await replicas.tasks.add_repository(**SETTINGS)
    task = await replicas.tasks.create(WRITING)
    older = await _come_to(replicas, task, name)
    await replicas.engine.restart()
    done = await _finish(replicas, task, name)
    replicas.require_whole(done, older, count=LINES + 5 * (name == "in_review"))


@pytest.mark.slow
async def test_kill__of_the_agent_waits_with_a_reason_and_goes_on_after_a_retry(replicas):
    await replicas.tasks.add_repository(**SETTINGS)
    task = await replicas.tasks.create(f": agent-to-be-killed; {WRITING}")
    await replicas.written(task, EARLY)
    for pid in processes_with("agent-to-be-killed"):
        os.kill(pid, signal.SIGKILL)
    waiting = await replicas.tasks.until(task["id"], "waiting-for-user", timeout=PATIENCE_S)
    assert waiting["waits_for"]["kind"] == "run-failed"
    assert "retry" in waiting["waits_for"]["actions"]
    older = await replicas.lines(task)
    await replicas.tasks.post(f"/v1/tasks/{task['id']}/retry")
    done = await replicas.tasks.until(task["id"], "in-review", after=waiting, timeout=PATIENCE_S)
    replicas.require_whole(done, older)


@pytest.mark.slow
async def test_kill__of_a_server_amid_ten_tasks_makes_ten_branches_and_ten_pull_requests(replicas):
    victim, survivor = replicas.servers
    await replicas.tasks.add_repository(max_open=10)
    made = []
    for number in range(10):
        replicas.ask(replicas.servers[number % 2])
        made.append(await replicas.tasks.create(WRITING.replace("line", f"line-{number}")))
    await _reach(lambda: _is_any_published(replicas))
    replicas.kill(victim)
    replicas.ask(survivor)
    done = [
        await replicas.tasks.until(task["id"], "in-review", timeout=PATIENCE_S) for task in made
    ]
    branches = replicas.world.git.branches(replicas.world.repository)
    assert sorted(branches) == sorted(["main", *(task["branch"] for task in done)])
    pulls = replicas.world.list_pulls(per_page="100")
    assert sorted(pull["head"]["ref"] for pull in pulls) == sorted(task["branch"] for task in done)
    for number, task in enumerate(done):
        lines = replicas.published(task)
        wanted = [f"line-{number} {count}" for count in range(1, LINES + 1)]
        assert [line.rpartition(" ")[0] for line in lines] == wanted


async def _is_any_published(replicas):
    await asyncio.sleep(0.2)
    return len(replicas.world.git.branches(replicas.world.repository)) > 1
