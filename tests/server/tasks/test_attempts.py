"""Several agents work on copies of one prepared sandbox; the best work is published, and only that."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import update

from sandbox_server.db.models import Task, Tenant

pytestmark = pytest.mark.needs_engine

CHECKS = "grep -q good README.md"


def by(*commands, **fields):
    return {"attempts": [{"command": command} for command in commands], **fields}


async def create(tasks, **fields):
    body = {"repository": "acme/widgets", "instructions": "Do it.", **fields}
    return await tasks.post("/v1/tasks", json=body)


async def attempts_of(tasks, task):
    return await tasks.items(task["id"], "attempts")


async def until_attempts(tasks, task, condition):
    async with asyncio.timeout(90):
        while not condition(found := await attempts_of(tasks, task)):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)
    return found


def have_ended(attempts):
    return all(attempt["ended_at"] for attempt in attempts)


async def test_attempts__only_the_winner_is_published_and_the_work_of_others_is_kept(
    tasks, forge_world
):
    await tasks.add_repository(setup="echo kept > /home/user/setup", checks=CHECKS)
    test = "test -e /home/user/setup"
    task = await create(
        tasks,
        **by(
            f"{test} && echo bad >> README.md",
            f"{test} && echo good >> README.md",
            f"{test} && echo good >> README.md && echo more > more",
        ),
    )
    done = await tasks.until(task["id"], "in-review")
    attempts = await until_attempts(tasks, task, have_ended)
    assert [attempt["state"] for attempt in attempts] == ["not-chosen", "chosen", "not-chosen"]
    assert [attempt["checks"] for attempt in attempts] == ["failed", "succeeded", "succeeded"]
    assert "attempt 2 has better checks" in attempts[0]["reason"]
    assert "attempt 2 changes less" in attempts[2]["reason"]
    assert (attempts[2]["files"], attempts[2]["added"]) == (2, 2)
    assert done["chosen_attempt"] == 2
    assert done["sandbox_id"] == attempts[1]["sandbox_id"]
    [pull] = forge_world.list_pulls()
    assert pull["head"]["ref"] == done["branch"] == f"task-{task['id']}"
    assert sorted(forge_world.git.branches(forge_world.repository)) == ["main", done["branch"]]
    assert "+good" in tasks.patches(forge_world, done["branch"])
    for number in (0, 2):
        assert await tasks.sandbox_state(attempts[number]["sandbox_id"]) == "stopped"
    lost = await tasks.get(f"/v1/tasks/{task['id']}/diff", to="attempt:1")
    assert "+bad" in lost["diff"]
    states = [await tasks.sandbox_state(one) for one in await tasks.sandboxes_of(task["id"])]
    assert sorted(states) == ["paused", "stopped", "stopped", "stopped"]
    assert (await tasks.get("/v1/snapshots"))["items"] == []
    runs = await tasks.items(task["id"], "runs")
    assert [run["kind"] for run in runs if run["attempt"]].count("checks") == 3
    assert len(runs) == 7
    told = {event["reason"] for event in await tasks.events() if event["type"] == "task.attempt"}
    assert f"Attempt 1: {attempts[0]['reason']}" in told


async def test_attempts__an_operator_chooses_instead_of_the_server(tasks, forge_world):
    await tasks.add_repository()
    commands = by("seq 9 > long", "echo one > short")
    task = await create(tasks, choice="operator", **commands)
    path = f"/v1/tasks/{task['id']}/attempts"
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "choice"
    assert waiting["waits_for"]["actions"] == ["choose", "cancel"]
    assert (await tasks.api.post(f"{path}/3/choose")).json()["code"] == "attempt-not-found"
    await tasks.post(f"{path}/1/choose")
    done = await tasks.until(task["id"], "in-review", after=waiting)
    attempts = await until_attempts(tasks, task, have_ended)
    assert [attempt["state"] for attempt in attempts] == ["chosen", "not-chosen"]
    assert attempts[0]["reason"].startswith("Chosen by request.")
    assert "+9" in tasks.patches(forge_world, done["branch"])
    await tasks.post(f"{path}/1/choose")
    assert (await tasks.api.post(f"{path}/2/choose")).status_code == 409


async def test_attempts__one_that_is_chosen_early_ends_those_that_still_work(tasks, forge_world):
    await tasks.add_repository()
    task = await create(tasks, **by("echo half > half; sleep 300", "sleep 1; echo one > one"))
    working = await until_attempts(tasks, task, lambda found: found[0]["state"] == "working")
    await tasks.until_file(working[0]["sandbox_id"], "/home/user/widgets/half")
    await tasks.post(f"/v1/tasks/{task['id']}/attempts/2/choose")
    done = await tasks.until(task["id"], "in-review")
    attempts = await until_attempts(tasks, task, have_ended)
    assert [attempt["state"] for attempt in attempts] == ["not-chosen", "chosen"]
    assert await tasks.sandbox_state(attempts[0]["sandbox_id"]) == "stopped"
    assert done["chosen_attempt"] == 2
    kept = await tasks.get(f"/v1/tasks/{task['id']}/diff", to="attempt:1")
    assert [file["path"] for file in kept["files"]] == ["half"]


@pytest.mark.slow  # a fix after a choice is covered by the fixes of tasks
async def test_attempts__failed_checks_of_all_are_fixed_in_the_best(tasks, forge_world):
    await tasks.add_repository(checks=CHECKS)
    fix = 'if grep -q "checks of the repository fail" "$TASK_PROMPT_FILE"; then echo good >> README.md; else'
    task = await create(tasks, **by(f"{fix} seq 9 > long; fi", f"{fix} echo bad >> README.md; fi"))
    done = await tasks.until(task["id"], "in-review")
    assert done["chosen_attempt"] == 2
    diff = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
    assert "+bad" in diff
    assert "+good" in diff
    runs = await tasks.items(task["id"], "runs")
    assert [(run["kind"], run["outcome"]) for run in runs if not run["attempt"]] == [
        ("agent", "succeeded"),
        ("checks", "succeeded"),
    ]


async def test_attempts__one_that_dies_or_asks_is_passed_over(tasks, forge_world):
    await tasks.add_repository()
    ask = 'echo "Red or blue?" > $TASK_QUESTION_FILE'
    task = await create(tasks, **by("echo half > half; kill -9 $$", ask, "seq 99 > long", "true"))
    await tasks.until(task["id"], "in-review")
    attempts = await until_attempts(tasks, task, have_ended)
    assert [attempt["state"] for attempt in attempts] == [
        *("not-chosen", "not-chosen", "chosen", "not-chosen")
    ]
    kinds = [attempt["waits_for"] and attempt["waits_for"]["kind"] for attempt in attempts]
    assert kinds == ["run-failed", "question", None, "nothing-changed"]
    lost = await tasks.get(f"/v1/tasks/{task['id']}/diff", to="attempt:1")
    assert [file["path"] for file in lost["files"]] == ["half"]


@pytest.mark.slow  # that it is noted is covered above
async def test_attempts__a_question_is_asked_if_no_attempt_is_done_without_an_answer(tasks):
    await tasks.add_repository()
    ask = 'echo "Red or blue?" > $TASK_QUESTION_FILE'
    command = f'if grep -q "Blue." "$TASK_PROMPT_FILE"; then echo blue > color; else {ask}; fi'
    task = await create(tasks, **by("exit 3", command))
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "question"
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": "Blue."})
    done = await tasks.until(task["id"], "in-review", after=waiting)
    assert done["chosen_attempt"] == 2


async def test_attempts__a_cancellation_saves_the_work_of_all_and_a_retry_goes_on_with_it(
    tasks, forge_world
):
    await tasks.add_repository()
    command = 'test -e half && echo rest > rest || { echo "$TASK_ATTEMPT" > half; sleep 300; }'
    task = await create(tasks, attempts=2, command=command)
    working = await until_attempts(
        tasks, task, lambda found: all(each["state"] == "working" for each in found)
    )
    for attempt in working:
        await tasks.until_file(attempt["sandbox_id"], "/home/user/widgets/half")
    await tasks.post(f"/v1/tasks/{task['id']}/cancel")
    ended = await tasks.until(task["id"], "cancelled")
    attempts = await attempts_of(tasks, task)
    assert [attempt["state"] for attempt in attempts] == ["cancelled", "cancelled"]
    states = [await tasks.sandbox_state(one) for one in await tasks.sandboxes_of(task["id"])]
    assert set(states) == {"stopped"}
    for number in (1, 2):
        diff = (await tasks.get(f"/v1/tasks/{task['id']}/diff", to=f"attempt:{number}"))["diff"]
        assert f"+{number}\n" in diff
    assert (await tasks.get("/v1/snapshots"))["items"] == []
    assert forge_world.list_pulls() == []
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    done = await tasks.until(task["id"], "in-review", after=ended)
    files = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["files"]
    assert sorted(file["path"] for file in files) == ["half", "rest"]
    assert done["chosen_attempt"] == 1


async def test_attempts__with_fewer_places_than_attempts_one_waits_for_the_other(tasks, serving):
    await tasks.add_repository(checks=CHECKS)
    async with serving.components.sessions.begin() as session:
        await session.execute(update(Tenant).values(max_running=1))
    task = await create(tasks, attempts=2, command="echo good >> README.md")
    done = await tasks.until(task["id"], "in-review")
    runs = await tasks.items(task["id"], "runs")
    first, second = (run for run in runs if run["kind"] == "agent")
    assert first["ended_at"] < second["started_at"]
    assert done["chosen_attempt"] == 1


@pytest.mark.slow  # sandboxes that were lost are replaced in test_saves.py too
async def test_attempts__a_lost_sandbox_is_copied_again_and_its_work_restored(tasks):
    await tasks.add_repository(setup="echo kept > /home/user/setup")
    resumed = 'grep -q "You were interrupted" "$TASK_PROMPT_FILE"'
    command = (
        f"if {resumed}; then test -e /home/user/setup && test -e half && echo rest > rest; else"
    )
    task = await create(tasks, **by(f"{command} echo half > half; sleep 300; fi", "exit 3"))
    await tasks.until_run(task["id"], count=3)
    first, _ = await attempts_of(tasks, task)
    await tasks.until_file(first["sandbox_id"], "/home/user/widgets/half")
    await tasks.api.delete(f"/v1/sandboxes/{first['sandbox_id']}")
    done = await tasks.until(task["id"], "in-review")
    assert done["chosen_attempt"] == 1
    assert done["sandbox_id"] != first["sandbox_id"]
    files = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["files"]
    assert sorted(file["path"] for file in files) == ["half", "rest"]


@pytest.mark.slow  # other limits of tasks are tested in test_limits.py
async def test_attempts__are_interrupted_when_together_they_have_cost_the_budget(tasks, serving):
    await tasks.add_repository()
    command = "echo two >> README.md; sleep 300"
    task = await create(tasks, attempts=2, command=command, budget={"usd": 1})
    await tasks.until_run(task["id"], count=2)
    async with serving.components.sessions.begin() as session:
        await session.execute(update(Task).values(spent_usd=1))
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "budget"
    assert waiting["waits_for"]["data"] == {"limit": "usd"}
    assert "+two" in (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]


@pytest.mark.slow  # it waits for runs of both attempts twice
async def test_attempts__an_interrupting_message_reaches_all_of_them(tasks):
    await tasks.add_repository()
    command = 'grep -q "faster" "$TASK_PROMPT_FILE" && echo done > a || sleep 300'
    task = await create(tasks, attempts=2, command=command)
    await tasks.until_run(task["id"], count=2)
    message = {"text": "Do it faster.", "interrupt": True}
    await tasks.post(f"/v1/tasks/{task['id']}/messages", json=message)
    done = await tasks.until(task["id"], "in-review")
    runs = await tasks.items(task["id"], "runs")
    outcomes = sorted((run["attempt"], run["outcome"]) for run in runs)
    assert outcomes == [
        *((1, "interrupted"), (1, "succeeded"), (2, "interrupted"), (2, "succeeded")),
    ]
    told = {message["run"] for message in await tasks.items(task["id"], "messages")}
    assert told == {run["number"] for run in runs if run["attempt"] == done["chosen_attempt"]}


BAD: dict[str, dict[str, Any]] = {
    "none": {"attempts": 0},
    "one": {"attempts": 1},
    "too many": {"attempts": 9},
    "a text": {"attempts": "3"},
    "one in a list": {"attempts": [{"command": "true"}]},
    "an unknown agent": {"attempts": [{"agent": "nobody"}, {"command": "true"}]},
    "agent and command": {"attempts": [{"agent": "claude", "command": "true"}, {}]},
    "an agent besides": {"attempts": [{}, {}], "agent": "claude"},
    "an unknown field": {"attempts": [{"branch": "x"}, {}]},
    "a choice among none": {"choice": "operator"},
    "fewer runs": {"attempts": 3, "budget": {"runs": 2}},
}


async def test_attempts__bad_input_is_refused_with_a_reason(tasks):
    await tasks.add_repository()
    for name, fields in BAD.items():
        body = {"repository": "acme/widgets", "instructions": "Do it.", **fields}
        answer = await tasks.api.post("/v1/tasks", json=body)
        assert answer.status_code in (400, 422), f"{name}: {answer.text}"
        assert "attempts" in answer.text
    assert (await tasks.get("/v1/tasks"))["items"] == []
