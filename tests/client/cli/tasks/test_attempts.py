import json

import pytest

pytestmark = pytest.mark.needs_engine


def test_attempts__are_listed_with_what_came_of_each(sbx, repository):
    command = "[ $TASK_ATTEMPT = 2 ] && seq 9 > attempted.txt; echo x >> attempted.txt"
    run = ("task", "run", repository, "Try it.", "--pull-request", "ready", "--command", command)
    done = sbx(*run, "--attempts", "2")
    assert done.returncode == 0, done.stderr
    [task] = json.loads(sbx("--json", "task", "list", "--repository", repository).stdout)[:1]
    shown = sbx("task", "attempts", task["id"]).stdout.splitlines()
    assert "chosen" in shown[1]
    assert "attempt 1 changes less" in shown[2]
    assert "attempts      2, 1 was chosen" in sbx("task", "show", task["id"]).stdout
    found = json.loads(sbx("--json", "task", "attempts", task["id"]).stdout)
    assert [attempt["state"] for attempt in found] == ["chosen", "not-chosen"]


@pytest.mark.parametrize(
    "options",
    [("--attempt", "nobody"), ("--attempt", "claude", "--model", "x"), ("--attempts", "one")],
)
def test_attempts__wrong_options_are_usage_errors(sbx, options):
    assert sbx("task", "run", "acme/widgets", "Do it.", *options).returncode == 2
