import pytest
from sqlalchemy import select

from sandbox_server.db.models import Snapshot
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

SETUP = "echo built > built.txt"
WORK = "cat built.txt >> README.md && git commit -qam 'feat: add a line'"


async def prepare(tasks, repository):
    path = f"/v1/repositories/{repository['id']}"
    await tasks.post(f"{path}/prepare")

    async def is_done():
        return not (await tasks.get(path))["preparing"]

    await until(is_done, timeout=90)
    read = await tasks.get(path)
    assert read["prepare_error"] is None
    return read


async def find_snapshot(tasks):
    async with tasks.components.sessions() as session:
        return (await session.scalars(select(Snapshot).where(Snapshot.state == "ready"))).one()


async def template_of(tasks, task):
    return (await tasks.get(f"/v1/sandboxes/{task['sandbox_id']}"))["template"]


async def kinds_of_runs(tasks, task):
    return [run["kind"] for run in await tasks.items(task["id"], "runs")]


async def test_task__starts_from_the_prepared_snapshot_without_another_setup(tasks, forge_world):
    repository = await tasks.add_repository(setup=SETUP)
    await prepare(tasks, repository)
    task = await tasks.create(WORK)
    reviewed = await tasks.until(task["id"], "in-review")
    assert await template_of(tasks, reviewed) == (await find_snapshot(tasks)).id
    assert await kinds_of_runs(tasks, task) == ["agent"]
    assert tasks.subjects(forge_world, reviewed["branch"]) == ["feat: add a line"]
    assert "+built" in tasks.patches(forge_world, reviewed["branch"])


async def test_task__a_snapshot_that_the_provider_has_lost_is_given_up(tasks):
    repository = await tasks.add_repository(setup=SETUP)
    await prepare(tasks, repository)
    snapshot = await find_snapshot(tasks)
    backend = tasks.components.backends[snapshot.backend]
    await backend.delete_snapshot(snapshot.backend_snapshot_id)
    task = await tasks.create(WORK)
    reviewed = await tasks.until(task["id"], "in-review")
    assert await template_of(tasks, reviewed) != snapshot.id
    assert await kinds_of_runs(tasks, task) == ["setup", "agent"]
