"""`kill -9` of a server amid attempts: one is chosen, each agent has run once, and the work of all is kept."""

import asyncio

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Sandbox, Snapshot, TaskAttempt
from tests.server.tasks.acceptance.replicas import PATIENCE_S

pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.timeout(900),
    pytest.mark.slow,  # two servers and an engine, and a lease expires for each kill
]

LONG, SHORT = "seq 90 > long; sleep 1", "echo good >> README.md; sleep 1"


class Moments:
    """The points between the steps of attempts at which a server is killed."""

    def __init__(self, replicas, task):
        self.replicas, self.task = replicas, task

    async def snapshot(self):
        """Return whether a snapshot is begun, which may not be noted yet."""
        async with self.replicas.sessions() as session:
            return await session.scalar(select(Snapshot.id).limit(1)) is not None

    async def copied(self):
        """Return whether a sandbox is being created for an attempt, which is not noted yet."""
        async with self.replicas.sessions() as session:
            created = select(Sandbox.id).where(Sandbox.labels.has_key("attempt"))
            return await session.scalar(created.limit(1)) is not None

    async def running(self):
        return all(attempt.runs for attempt in await self._attempts())

    async def finished(self):
        """Return whether all have finished, and none is chosen."""
        return {attempt.state for attempt in await self._attempts()} == {"finished"}

    async def chosen(self):
        """Return whether one is chosen; the sandbox of the other is not deleted yet."""
        states = {attempt.state for attempt in await self._attempts()}
        return "chosen" in states

    async def _attempts(self):
        async with self.replicas.sessions() as session:
            own = select(TaskAttempt).where(TaskAttempt.task_id == self.task["id"])
            return (await session.scalars(own)).all()


async def _reach(condition):
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.002)


async def _end_of(replicas, task):
    """Wait until nothing is left to do for the attempts."""
    path = f"/v1/tasks/{task['id']}/attempts"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            attempts = (await replicas.tasks.get(path))["items"]
            if all(attempt["ended_at"] for attempt in attempts):
                return attempts
            await asyncio.sleep(0.2)


@pytest.mark.parametrize("name", ["snapshot", "copied", "running", "finished", "chosen"])
async def test_kill__of_a_server_amid_attempts_publishes_the_same_winner_once(replicas, name):
    await replicas.tasks.add_repository(setup="true", checks="true", labels=["agent"])
    victim = replicas.servers[0]
    replicas.leave_to(victim)
    attempts = [{"command": LONG}, {"command": SHORT}]
    body = {"repository": "acme/widgets", "instructions": "Do it.", "attempts": attempts}
    task = await replicas.tasks.post("/v1/tasks", json=body)
    await _reach(getattr(Moments(replicas, task), name))
    replicas.kill(victim)
    done = await replicas.tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
    attempts = await _end_of(replicas, task)
    assert [attempt["state"] for attempt in attempts] == ["not-chosen", "chosen"]
    assert [attempt["added"] for attempt in attempts] == [90, 1]
    [pull] = replicas.pulls(done["branch"])
    assert pull["head"]["sha"] == done["published_sha"]
    branches = replicas.world.git.branches(replicas.world.repository)
    assert [one for one in branches if task["id"] in one] == [done["branch"]]
    runs = await replicas.tasks.items(task["id"], "runs")
    agents = [(run["attempt"], run["outcome"]) for run in runs if run["kind"] == "agent"]
    assert sorted(agents) == [(1, "succeeded"), (2, "succeeded")]
    states = [
        await replicas.tasks.sandbox_state(one)
        for one in await replicas.tasks.sandboxes_of(task["id"])
    ]
    assert states.count("stopped") == 2
    assert len(states) == 3
    lost = await replicas.tasks.get(f"/v1/tasks/{task['id']}/diff", to="attempt:1")
    assert [file["path"] for file in lost["files"]] == ["long"]
    assert (await replicas.tasks.get("/v1/snapshots"))["items"] == []
