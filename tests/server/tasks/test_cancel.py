import asyncio

import pytest

from tests.server.tasks.support.task_client import WAIT

pytestmark = pytest.mark.needs_engine

README = "/home/user/widgets/README.md"
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


@pytest.mark.slow  # waits until signals are given up, as the test of an interrupt does
async def test_cancel__an_agent_that_ignores_the_signal_is_killed(tasks):
    await tasks.add_repository()
    task = await tasks.create("trap '' TERM; echo two >> README.md; while true; do sleep 1; done")
    await _until_changed(tasks, task, "two")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    await tasks.until(task["id"], "cancelled")
    assert "+two" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]


async def test_cancel__saves_what_the_agents_children_write_at_the_end(tasks):
    """The agent ends at once, and its child a moment later."""
    await tasks.add_repository()
    child = "trap 'sleep 1; echo last >> README.md; exit' TERM; echo two >> README.md; while :; do sleep 0.1; done"
    task = await tasks.create(f'sh -c "{child}" & wait')
    await _until_changed(tasks, task, "two")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    await tasks.until(task["id"], "cancelled")
    assert "+last" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]


async def test_cancel__a_task_whose_work_cannot_be_saved_ends_and_keeps_its_sandbox(tasks):
    await tasks.add_repository()
    task = await tasks.create("cd ..; echo 1 >ready; rm -rf widgets; sleep 300")
    await tasks.until_run(task["id"])
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(sandbox_id, "/home/user/ready")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    ended = await tasks.until(task["id"], "cancelled")
    assert "The sandbox was kept" in ended["stage_reason"]
    assert await tasks.sandbox_state(sandbox_id) == "running"
    [run] = await tasks.items(task["id"], "runs")
    assert run["outcome"] == "interrupted"
    await tasks.api.delete(f"/v1/sandboxes/{sandbox_id}")


async def test_interrupt__ends_all_processes_of_a_run_before_the_next_one_begins(tasks):
    """The agent ignores all signals, and so does what it has detached."""
    await tasks.add_repository()
    beats = "trap '' INT TERM HUP; while :; do date +%N >>../beats; sleep 0.05; done"
    command = f"""
    if [ "$TASK_RUN" = 1 ]; then
        trap '' INT TERM; setsid --fork sh -c "{beats}"; echo two >>README.md; while :; do sleep 1; done
    fi
    cp ../beats ../before; sleep 0.5; cmp ../beats ../before && echo quiet >>README.md"""
    task = await tasks.create(command)
    await _until_changed(tasks, task, "two")
    body = {"text": "Stop.", "interrupt": True}
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json=body)
    await tasks.until(task["id"], "in-review")
    assert "+quiet" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
    outcomes = [run["outcome"] for run in await tasks.items(task["id"], "runs")]
    assert outcomes == ["interrupted", "succeeded"]


async def _until_changed(tasks, task, line):
    """Wait until the README has a line."""
    await tasks.until_run(task["id"])
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    async with asyncio.timeout(WAIT):
        while line not in (await tasks.read_file(sandbox_id, README) or ""):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
