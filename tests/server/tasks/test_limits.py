import pytest

pytestmark = pytest.mark.needs_engine


async def test_budget__runs_are_limited_and_a_retry_grants_them_anew(tasks):
    await tasks.add_repository(checks="test -e done")
    command = '[ "$TASK_RUN" -gt 2 ] && touch done; date +%N >> log'
    task = await tasks.create(command, budget={"runs": 1})
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "budget"
    assert waiting["waits_for"]["data"] == {"limit": "runs"}
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    await tasks.until(task["id"], "in-review", after=waiting)


async def test_budget__the_deadline_ends_work_and_not_a_review(tasks):
    await tasks.add_repository(checks="until test -e /tmp/is-late; do sleep 0.1; done; false")
    task = await tasks.create("date +%N >> log", budget={"deadline_s": 3600})
    checking = await tasks.until(task["id"], "checking")
    await tasks.pass_deadline(task["id"])
    await tasks.write_file(checking["sandbox_id"], "/tmp/is-late")
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["data"] == {"limit": "deadline"}
    assert await tasks.items(task["id"], "saves")


async def test_task__a_repository_without_push_permission_waits_with_a_reason(tasks, forge_world):
    await tasks.put_forge(**forge_world.token)
    await tasks.add_repository()
    await tasks.put_forge(**{**forge_world.token, "token": forge_world.github.visitor_token})
    task = await tasks.create("echo two >> README.md")
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "forge"
    assert "permission" in waiting["stage_reason"]
    assert waiting["sandbox_id"] is None


async def test_task__a_base_that_does_not_exist_waits_with_a_reason(tasks):
    await tasks.add_repository()
    task = await tasks.create("echo two >> README.md", base="no-such-branch")
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert "no-such-branch" in waiting["stage_reason"]
