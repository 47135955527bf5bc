"""What is asked about tasks that are there."""

import json
import subprocess

import pytest

pytestmark = pytest.mark.needs_engine

WRITE = "printf 'one\\n\\033[2Jtwo\\n' > notes.txt && git add notes.txt && git commit -qm 'docs: add notes'"


@pytest.fixture(scope="module")
def finished():
    """Remember the task that these tests share."""
    return []


@pytest.fixture
def task_id(finished, sbx, repository):
    """Have a task whose work is published."""
    if not finished:
        done = sbx("--json", "task", "run", repository, "Add notes", "--command", WRITE)
        assert done.returncode == 0, done.stderr
        finished.append(json.loads(done.stdout.splitlines()[-1])["id"])
    return finished[0]


def test_task_diff__prints_a_patch_that_applies(sbx, world, task_id, tmp_path):
    patch = sbx("task", "diff", task_id).stdout
    assert "+\x1b[2Jtwo" in patch
    clone = tmp_path / "clone"
    subprocess.run(
        ["git", "clone", "-q", world.git.directory / f"{world.repository}.git", clone], check=True
    )
    subprocess.run(["git", "-C", clone, "apply"], input=patch.encode(), check=True)
    assert (clone / "notes.txt").read_text() == "one\n\x1b[2Jtwo\n"
    assert sbx("task", "diff", "--stat", task_id).stdout == "A  notes.txt\n"
    assert "Nothing was changed" in sbx("task", "diff", "--path", "src", task_id).stderr
    assert json.loads(sbx("--json", "task", "diff", task_id).stdout)["is_cut"] is False


def test_task_diff__a_terminal_gets_colours_but_no_control_characters(sit, task_id):
    with sit("task", "diff", "--no-pager", task_id) as person:
        shown = person.see("two")
        assert "\033[32m+\\x1b[2J" in shown
        assert "\x1b[2J" not in shown
        assert person.end() == 0


def test_task_diff__a_terminal_gets_the_users_pager(sit, task_id):
    with sit("task", "diff", task_id, env={"PAGER": "sed s/^/paged:/"}) as person:
        assert "paged:" in person.see("notes.txt")
        assert person.end() == 0


def test_task_list__shows_open_tasks_and_all(sbx, task_id, repository):
    listed = sbx("task", "list", "--repository", repository).stdout
    [row] = [line for line in listed.splitlines() if line.startswith(task_id)]
    assert row.split()[1:3] == [repository, "in-review"]
    assert task_id in sbx("-q", "task", "list", "--all").stdout.split()
    assert task_id not in sbx("-q", "task", "list", "--state", "queued").stdout.split()
    assert task_id in [each["id"] for each in json.loads(sbx("--json", "task", "list").stdout)]


def test_task_show__describes_task_pull_request_and_runs(sbx, world, task_id):
    shown = sbx("task", "show", task_id[-8:]).stdout
    facts = dict(line.split(None, 1) for line in shown.splitlines() if line.strip())
    assert facts["stage"].startswith("in-review")
    assert f"/{world.repository}/pull" in shown
    assert [line.split()[:4] for line in shown.splitlines() if line.startswith("1 ")] == [
        ["1", "agent", "created", "succeeded"]
    ]


def test_task__an_unknown_task_is_explained(sbx):
    for words in (("show", "0" * 20), ("watch", "nothing"), ("cancel", "zzz")):
        failed = sbx("task", *words)
        assert failed.returncode in (1, 125)
        assert "not found" in failed.stderr
        assert "sbx task list --all" in failed.stderr
    assert "at least 3 characters" in sbx("task", "show", "x").stderr


def test_task_approve__explains_why_not(sbx, task_id):
    failed = sbx("task", "approve", task_id)
    assert failed.returncode == 1
    assert "in-review" in failed.stderr
