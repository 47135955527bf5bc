import asyncio

import pytest

pytestmark = pytest.mark.needs_engine

STAGES = (
    "queued",
    "preparing",
    "working",
    "checking",
    "publishing",
    "in-review",
    "waiting-for-user",
)
AT = {
    "queued": {},
    "preparing": {"setup": "sleep 300"},
    "working": {"command": "echo two >> README.md; sleep 300"},
    "checking": {"checks": "sleep 300"},
    "publishing": {},
    "in-review": {},
    "waiting-for-user": {"command": "true"},
}


@pytest.mark.parametrize("stage", STAGES)
async def test_cancel__in_every_stage_ends_the_task_and_deletes_its_sandbox(
    stage, tasks, forge_world
):
    settings = dict(AT[stage])
    command = settings.pop("command", "echo two >> README.md")
    await tasks.add_repository(max_open=1, **settings)
    if stage == "queued":
        blocker = await tasks.create("sleep 300")
        await tasks.until_run(blocker["id"])
    if stage == "publishing":
        forge_world.github.fault(path="/pulls", status=502, times=1000)
    task = await tasks.create(command)
    reached = await tasks.until(task["id"], stage)
    if stage in {"preparing", "working", "checking"}:
        await tasks.until_run(task["id"], count=1 + (stage == "checking"))
    cancelled = await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    again = await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    assert cancelled["id"] == again["id"]
    forge_world.github.fault(path="^$", status=200, times=0)
    ended = await tasks.until(task["id"], "cancelled", after=reached)
    assert ended["state"] == "cancelled"
    assert {await tasks.sandbox_state(one) for one in await tasks.sandboxes_of(task["id"])} <= {
        "stopped"
    }
    runs = await tasks.items(task["id"], "runs")
    assert all(run["ended_at"] for run in runs)


async def test_cancel__the_work_is_kept_and_a_retry_goes_on_with_it(tasks):
    await tasks.add_repository()
    command = "test -e half && echo rest > rest || { echo half > half; sleep 300; }"
    task = await tasks.create(command)
    await tasks.until_run(task["id"])
    await tasks.until_file((await tasks.task(task["id"]))["sandbox_id"], "/home/user/widgets/half")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    ended = await tasks.until(task["id"], "cancelled")
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=ended)
    found = await tasks.get(f"/v1/tasks/{task['id']}/diff")
    assert sorted(file["path"] for file in found["files"]) == ["half", "rest"]


async def test_cancel__an_agent_that_ignores_the_signal_is_killed(tasks):
    await tasks.add_repository()
    task = await tasks.create("trap '' TERM; echo two >> README.md; while true; do sleep 1; done")
    await tasks.until_run(task["id"])
    await asyncio.sleep(1)
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    await tasks.until(task["id"], "cancelled")
    assert "+two" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
