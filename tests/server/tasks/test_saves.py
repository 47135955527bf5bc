import asyncio

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Job, TaskSave, TaskSavePart
from sandbox_server.jobs.kinds import TASK_SAVE
from tests.server.tasks.support.task_client import WAIT

pytestmark = pytest.mark.needs_engine

DIRTY = (
    "echo two >> README.md && git commit -qam 'feat: add two' && echo three > new.txt && sleep 300"
)


async def test_save__work_is_saved_before_its_sandbox_is_paused(tasks):
    await tasks.add_repository()
    task = await tasks.create(DIRTY)
    await tasks.until_run(task["id"])
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(sandbox_id, "/home/user/widgets/new.txt")
    await tasks.post(f"/v1/sandboxes/{sandbox_id}/pause")
    [save] = await tasks.items(task["id"], "saves")
    assert (save["kind"], save["cause"]) == ("wip", "pause")
    diff = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
    assert "+two" in diff
    assert "+three" in diff


async def test_save__a_deleted_sandbox_is_replaced_and_its_work_restored(tasks):
    await tasks.add_repository()
    command = f'if grep -q "You were interrupted" "$TASK_PROMPT_FILE"; then test -e new.txt; else {DIRTY}; fi'
    task = await tasks.create(command)
    await tasks.until_run(task["id"])
    lost = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(lost, "/home/user/widgets/new.txt")
    await tasks.api.delete(f"/v1/sandboxes/{lost}")
    done = await tasks.until(task["id"], "in-review")
    assert done["sandbox_id"] != lost
    diff = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
    assert "+two" in diff
    assert "+three" in diff
    outcomes = [run["outcome"] for run in await tasks.items(task["id"], "runs")]
    assert outcomes == ["lost", "succeeded"]


async def test_save__a_sandbox_that_its_provider_killed_is_replaced_from_the_last_save(
    tasks, serving
):
    await tasks.add_repository()
    command = f'if grep -q "You were interrupted" "$TASK_PROMPT_FILE"; then test -e new.txt; else {DIRTY}; fi'
    task = await tasks.create(command)
    await tasks.until_run(task["id"])
    lost = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(lost, "/home/user/widgets/new.txt")
    await tasks.post(f"/v1/tasks/{task['id']}/saves")
    await tasks.kill_at_provider(lost)
    done = await tasks.until(task["id"], "in-review", timeout=150)
    assert done["sandbox_id"] != lost
    assert "+three" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]


async def test_save__diff_and_bundle_are_readable_after_the_sandbox_is_gone(
    tasks, tmp_path, forge_world
):
    await tasks.add_repository()
    task = await tasks.create(DIRTY)
    await tasks.until_run(task["id"])
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(sandbox_id, "/home/user/widgets/new.txt")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    ended = await tasks.until(task["id"], "cancelled")
    assert await tasks.sandbox_state(ended["sandbox_id"]) == "stopped"
    found = await tasks.get(f"/v1/tasks/{task['id']}/diff", **{"from": "base", "to": "run:1"})
    assert sorted(file["path"] for file in found["files"]) == ["README.md", "new.txt"]
    saves = await tasks.items(task["id"], "saves")
    answer = await tasks.api.get(f"/v1/tasks/{task['id']}/saves/{saves[-1]['number']}/content")
    (tmp_path / "work.bundle").write_bytes(answer.content)
    assert answer.content.startswith(b"# v2 git bundle")


async def test_save__is_encrypted_in_the_database(tasks, serving):
    await tasks.add_repository()
    task = await tasks.create("echo a-text-to-be-found > a && sleep 300")
    await tasks.until_run(task["id"])
    await tasks.until_file((await tasks.task(task["id"]))["sandbox_id"], "/home/user/widgets/a")
    await tasks.post(f"/v1/tasks/{task['id']}/saves")
    async with serving.components.sessions() as session:
        parts = list(await session.scalars(select(TaskSavePart)))
        saves = list(await session.scalars(select(TaskSave)))
    assert sum(save.size for save in saves) > 0
    assert parts
    assert not any(b"PACK" in part.content_sealed for part in parts)


async def test_save__of_a_task_can_be_restored_into_a_sandbox_of_the_callers_own(tasks):
    await tasks.add_repository()
    task = await tasks.create("echo three > new.txt")
    await tasks.until(task["id"], "in-review")
    path = f"/v1/tasks/{task['id']}/saves/1/restore"
    sandbox = await tasks.post(path, json={"template": "base"})
    assert await tasks.read_file(sandbox["id"], "/home/user/widgets/new.txt") == "three\n"
    await tasks.api.delete(f"/v1/sandboxes/{sandbox['id']}")


async def test_save__two_requests_at_once_make_one_save_of_one_state(tasks):
    await tasks.add_repository()
    task = await tasks.create(DIRTY)
    await tasks.until_run(task["id"])
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(sandbox_id, "/home/user/widgets/new.txt")
    path = f"/v1/tasks/{task['id']}/saves"
    made = await asyncio.gather(*(tasks.post(path) for _ in range(4)))
    assert {save["number"] for save in made} == {1}


@pytest.mark.parametrize("server_settings", [{"save_every_s": 1}])
async def test_save__at_intervals_while_a_run_writes_and_none_of_unchanged_work(tasks, serving):
    await tasks.add_repository()
    held = "until [ -e .git/go ]; do sleep 0.1; done"
    task = await tasks.create(f"echo one > a; {held}; echo two > a; sleep 300")
    [first] = await _until_saved(tasks, task, 1)
    assert first["cause"] == "interval"
    await _until_looked(serving, task, times=2)
    assert await tasks.items(task["id"], "saves") == [first]
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    path = f"/v1/sandboxes/{sandbox_id}/files/content"
    await tasks.api.put(path, params={"path": "/home/user/widgets/.git/go"}, content=b"")
    await _until_saved(tasks, task, 2)
    assert "+two" in (await tasks.get(f"/v1/tasks/{task['id']}/diff", to="save:2"))["diff"]


async def _until_saved(tasks, task, count):
    async with asyncio.timeout(WAIT):
        while len(saves := await tasks.items(task["id"], "saves")) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    return saves


async def _until_looked(serving, task, *, times):
    """Wait until the job has looked at the work so often."""
    due = select(Job.run_at).where(Job.kind == TASK_SAVE, Job.subject == task["id"])
    seen: set[object] = set()
    async with asyncio.timeout(WAIT):
        while len(seen) <= times + 1:
            async with serving.components.sessions() as session:
                seen.add(await session.scalar(due))
            await asyncio.sleep(0.1)
