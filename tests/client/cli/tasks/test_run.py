"""sbx task run and watch, with a command instead of an agent."""

import asyncio
import json
import re

import pytest

pytestmark = pytest.mark.needs_engine

FIX = "echo fixed >> README.md && git commit -qam 'fix(readme): say more' && echo work is done"
ASK = "echo 'Which name?' > \"$TASK_QUESTION_FILE\""


def id_of(stderr):
    found = re.search(r"^Task: ([a-z0-9]{20})$", stderr, re.MULTILINE)
    assert found, stderr
    return found.group(1)


def test_task_run__follows_until_the_pull_request_is_open(sbx, world, repository, task_of):
    done = sbx("task", "run", repository, "Say more in the README", "--command", FIX)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    stages = [line.split("── ")[1].split()[0] for line in lines if "── " in line]
    assert stages == ["preparing", "working", "checking", "publishing", "in-review"]
    assert any(line.endswith("  work is done") for line in lines)
    task = task_of(id_of(done.stderr))
    [pull] = [each for each in world.list_pulls() if each["head"]["ref"] == task["branch"]]
    assert lines[-1] == pull["html_url"]
    assert f"Task {task['id']} is in review" in done.stderr


def test_task_run__a_question_exits_with_3_and_its_answer_goes_on(sbx, repository):
    command = f'if [ "$TASK_RUN" = 1 ]; then {ASK}; else {FIX}; fi'
    asked = sbx("--json", "task", "run", repository, "Rename it", "--command", command)
    assert asked.returncode == 3, asked.stderr
    task = json.loads(asked.stdout.splitlines()[-1])
    assert task["waits_for"]["text"] == "Which name?"
    told = sbx("task", "watch", task["id"])
    assert told.returncode == 3
    assert f'sbx task message {task["id"]} "…"' in told.stderr
    assert "Which name?" in told.stderr
    done = sbx("task", "message", "--follow", task["id"][-6:], "Call it widgets.")
    assert done.returncode == 0, done.stderr
    assert "── in-review" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("http")


def test_task_run__ctrl_c_detaches_and_cancel_stops(sit, sbx, repository, task_of):
    words = ("task", "run", repository, "Wait", "--command", "echo begun; sleep 600")
    with sit(*words) as person:
        person.see("  begun")
        person.type("\x03")
        shown = person.see("Come back:  sbx task watch ")
        assert "Detached; the task goes on." in shown
        assert person.end() == 130
        task_id = person.seen.split()[0].decode()
    assert task_of(task_id)["stage"] == "working"
    watched = sbx("task", "watch", task_id, "--wait", "1s")
    assert watched.returncode == 124
    assert "The time is over; the task goes on." in watched.stderr
    assert sbx("task", "cancel", task_id).stdout == f"{task_id}\n"
    ended = sbx("task", "watch", task_id)
    assert ended.returncode == 1
    assert f"Task {task_id} is cancelled" in ended.stderr
    assert f"sbx task retry {task_id}" in ended.stderr


async def test_task_watch__lost_connections_lose_and_repeat_nothing(start, sbx, wire, repository):
    count = "for i in $(seq 1 8); do echo line-$i; sleep 1; done; echo x > new && git add new && git commit -qm 'feat: add x'"
    created = sbx("task", "run", repository, "Count", "--command", count, "--detach")
    [task_id] = created.stdout.split()
    process = start("--url", wire.url, "task", "watch", "--from-start", task_id)
    lines: list[str] = []

    def read_until(text):
        while not (lines and text in lines[-1]):
            lines.append(process.stdout.readline().decode())
            assert lines[-1], process.stderr.read()

    for text in ("line-2", "line-5"):
        await asyncio.to_thread(read_until, text)
        await wire.cut()
    rest, told = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, told
    lines += rest.decode().splitlines()
    counted = [line.split()[-1] for line in lines if "line-" in line and "echo" not in line]
    assert counted == [f"line-{number}" for number in range(1, 9)]


def test_task_run__says_what_to_do_about_an_unknown_repository(sbx):
    failed = sbx("task", "run", "acme/nothing", "Do it")
    assert failed.returncode == 125
    assert "`sbx repo add acme/nothing`" in failed.stderr
    assert sbx("task", "run", "acme/nothing").returncode == 2
    assert "The text is empty" in sbx("task", "run", "acme/nothing", "-", stdin=b"\n").stderr
