import pytest

pytestmark = pytest.mark.needs_engine

WRITE = "echo two >> README.md && git commit -qam 'Add a line'"


async def test_task__an_issue_ends_in_a_merged_pull_request(tasks, forge_world):
    number = forge_world.open_issue("Count is wrong", "It should be 2.")
    await tasks.add_repository(checks="grep -q two README.md", draft=False)
    task = await tasks.create(WRITE, issue=number)
    reviewed = await tasks.until(task["id"], "in-review")
    [pull] = forge_world.list_pulls()
    assert pull["head"]["ref"] == reviewed["branch"] == f"task-{task['id']}"
    assert f"Closes #{number}" in pull["body"]
    assert forge_world.head(reviewed["branch"]) == reviewed["published_sha"]
