import json

import pytest

pytestmark = pytest.mark.needs_engine


def test_overlaps__tasks_that_would_conflict_are_listed_with_their_files(sbx, repository):
    run = ("task", "run", repository, "Say more.", "--pull-request", "ready", "--command")
    for line in ("two", "three"):
        done = sbx(
            *run, f"echo {line} >> overlapping.txt && git add . && git commit -qm 'docs: {line}'"
        )
        assert done.returncode == 0, done.stderr
    tasks = json.loads(sbx("--json", "task", "list", "--repository", repository).stdout)
    ids = {task["id"] for task in tasks[:2]}
    shown = sbx("task", "overlaps", "--repository", repository).stdout
    [line] = [line for line in shown.splitlines() if "overlapping.txt" in line]
    kind, name, one, other, *_ = line.split()
    assert (kind, name, {one, other}) == ("conflict", repository, ids)
    found = json.loads(sbx("--json", "task", "overlaps").stdout)
    assert found["compared"] >= 2
