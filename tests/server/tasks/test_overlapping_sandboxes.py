import pytest

pytestmark = pytest.mark.needs_engine


async def test_overlaps__tasks_in_review_are_told_which_of_them_conflict(tasks):
    await tasks.add_repository()
    changes = ("two", "three", "two")
    made = [
        await tasks.create(f"echo {line} >> README.md && git commit -qam 'docs: say {line}'")
        for line in changes
    ]
    for task in made:
        await tasks.until(task["id"], "in-review")
    one, other, same = (task["id"] for task in made)
    found = await tasks.get("/v1/tasks/overlaps", repository="acme/widgets")
    kinds = {
        frozenset(side["task_id"] for side in each["tasks"]): each["kind"]
        for each in found["items"]
    }
    assert kinds == {
        frozenset({one, other}): "conflict",
        frozenset({one, same}): "identical",
        frozenset({other, same}): "conflict",
    }
    assert {tuple(each["files"]) for each in found["items"]} == {("README.md",)}
    assert (found["compared"], found["skipped"]) == (3, [])


async def test_overlaps__an_unknown_repository_is_not_found(tasks):
    answer = await tasks.api.get("/v1/tasks/overlaps", params={"repository": "acme/nothing"})
    assert (answer.status_code, answer.json()["code"]) == (404, "repository-not-found")
