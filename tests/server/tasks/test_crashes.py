import asyncio

import pytest
from sqlalchemy import func, update

from sandbox_server.db.models import Command
from tests.server.support.full_server import serving_outside
from tests.server.tasks.support.crashes import crashing, crashing_again
from tests.server.tasks.support.task_client import TaskClient

pytestmark = pytest.mark.needs_engine

TASKS = 14
MOST_CRASHES = 200
FEWEST_CRASHES = 20


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "when",
    [
        "after_commit",
        pytest.param("before_commit", marks=pytest.mark.slow),  # the same path, at other points
    ],
)
async def test_crash__at_each_commit_nothing_is_done_twice_and_no_work_is_lost(
    tasks, forge_world, when
):
    await tasks.add_repository(max_open=TASKS, setup="true", checks="grep -q line- log")
    with crashing(tasks=TASKS, when=when) as crashes:
        made = [await tasks.create('echo "line-$TASK_RUN" >> log') for _ in range(TASKS)]
        done = await asyncio.gather(
            *(tasks.until(task["id"], "in-review", timeout=300) for task in made)
        )
    assert crashes.crashed >= {*range(1, 2 * TASKS + 1)}
    assert max(crashes.crashed) > 2 * TASKS  # up to the last of most tasks
    pulls = forge_world.list_pulls(per_page="100")
    assert sorted(pull["head"]["ref"] for pull in pulls) == sorted(t["branch"] for t in done)
    for task in done:
        assert forge_world.head(task["branch"]) == task["published_sha"]
        found = await tasks.get(f"/v1/tasks/{task['id']}/diff")
        runs = await tasks.items(task["id"], "runs")
        started = await tasks.get(f"/v1/sandboxes/{task['sandbox_id']}/commands", limit=100)
        assert {each["id"] for each in started["items"]} <= {run["command_id"] for run in runs}
        for run in runs:
            lines = found["diff"].count(f"\n+line-{run['number']}\n")
            assert lines == 1 if is_done(run) else lines <= 1
        assert len(await tasks.sandboxes_of(task["id"])) == 1


def is_done(run):
    return (run["kind"], run["outcome"]) == ("agent", "succeeded")


@pytest.mark.slow  # dozens of crashes
@pytest.mark.timeout(900)
async def test_crash__again_and_again_amid_attempts_one_is_chosen_and_no_work_is_lost(
    tasks, forge_world
):
    await tasks.add_repository(setup="true", checks="grep -q good log")
    attempts = [{"command": f'echo "{word} $TASK_RUN" >> log'} for word in ("bad", "good")]
    body = {"repository": "acme/widgets", "instructions": "Do it.", "attempts": attempts}
    with crashing_again(most=MOST_CRASHES) as crashes:
        task = await tasks.post("/v1/tasks", json=body)
        done = await tasks.until(task["id"], "in-review", timeout=800)
    assert FEWEST_CRASHES < crashes.count < MOST_CRASHES
    assert done["chosen_attempt"] == 2
    [pull] = forge_world.list_pulls()
    assert forge_world.head(pull["head"]["ref"]) == done["published_sha"]
    for number, word in ((1, "bad"), (2, "good")):
        diff = (await tasks.get(f"/v1/tasks/{task['id']}/diff", to=f"attempt:{number}"))["diff"]
        assert diff.count(f"\n+{word} ") == 1
    runs = await tasks.items(task["id"], "runs")
    # Lost runs were not started: the crash was between their record and their process.
    whole = [run for run in runs if run["attempt"] and run["outcome"] != "lost"]
    assert sorted((run["kind"], run["attempt"], run["outcome"]) for run in whole) == [
        *(("agent", 1, "succeeded"), ("agent", 2, "succeeded")),
        *(("checks", 1, "failed"), ("checks", 2, "succeeded")),
    ]
    assert len(await tasks.sandboxes_of(task["id"])) == 3


@pytest.mark.timeout(300)
async def test_crash__two_servers_on_one_database_make_one_pull_request_per_task(
    tasks, forge_world, database_url, engine, tmp_path
):
    await tasks.add_repository(max_open=6)
    (tmp_path / "other").mkdir()
    key_file = tmp_path / "state" / "encryption.key"
    (tmp_path / "other" / "encryption.key").write_bytes(key_file.read_bytes())
    (tmp_path / "other" / "encryption.key").chmod(0o600)
    async with serving_outside(
        database_url, engine, state_dir=tmp_path / "other", forge_hosts=forge_world.hosts
    ):
        made = [await tasks.create(f"echo {n} > file-{n}") for n in range(6)]
        done = [await tasks.until(task["id"], "in-review", timeout=200) for task in made]
    pulls = forge_world.list_pulls(per_page="100")
    assert sorted(pull["head"]["ref"] for pull in pulls) == sorted(t["branch"] for t in done)


async def test_crash__checks_whose_end_was_not_recorded_run_again(
    database_url, sessions, engine, forge_world, tmp_path
):
    """They would fail, and they pass when they run again."""
    own = {"state_dir": tmp_path / "state", "forge_hosts": forge_world.hosts}
    own["state_dir"].mkdir()
    checks = """
    [ ! -e .git/again ] || exit 0
    echo 1 >.git/again; sleep 300; exit 1"""
    async with serving_outside(database_url, engine, **own) as outside, outside.api() as api:
        tasks = TaskClient(api, outside.components)
        await tasks.put_forge(**forge_world.app)
        await tasks.add_repository(checks=checks)
        task = await tasks.create("echo two >> README.md")
        await tasks.until_run(task["id"], count=2)
        sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
        await tasks.until_file(sandbox_id, "/home/user/widgets/.git/again")
    async with sessions.begin() as session:  # as a server that finds no such process
        running = update(Command).where(Command.ended_at.is_(None))
        await session.execute(running.values(state="lost", ended_at=func.clock_timestamp()))
    async with serving_outside(database_url, engine, **own) as outside, outside.api() as api:
        tasks = TaskClient(api, outside.components)
        await tasks.until(task["id"], "in-review")
        runs = await tasks.items(task["id"], "runs")
    assert [(run["kind"], run["outcome"]) for run in runs] == [
        ("agent", "succeeded"),
        ("checks", "lost"),
        ("checks", "succeeded"),
    ]
