"""Tasks at a forge that nobody here wrote, as an administrator installs it."""

import pytest

from tests.server.forges.support.pagure import AGENT, needs_pagure, running_pagure
from tests.server.support.full_server import serving_outside
from tests.server.tasks.support.task_client import TaskClient

# It starts a Pagure, each of whose pushes takes seconds.
pytestmark = [
    pytest.mark.needs_engine,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    needs_pagure,
]

PATIENCE_S = 300
WRITE = "echo two >> README.md && git commit -qam 'feat: add a line'"


@pytest.fixture(scope="module")
def pagure(tmp_path_factory):
    with running_pagure(tmp_path_factory.mktemp("forge") / "pagure") as pagure:
        yield pagure


@pytest.fixture
async def tasks(database_url, engine, tmp_path, pagure):
    """Call the API of a server that has the agent's token for git, and no adapter for Pagure."""
    (tmp_path / "state").mkdir()
    settings = {"state_dir": tmp_path / "state", "forge_hosts": (pagure.url,)}
    async with serving_outside(database_url, engine, **settings) as serving, serving.api() as api:
        client = TaskClient(api, serving.components)
        await client.put_forge(**pagure.forge())
        yield client
        await client.cancel_all()


async def test_pagure__a_person_opens_and_merges_a_pull_request_of_the_pushed_branch(tasks, pagure):
    project = pagure.add_project("widgets")
    pagure.let_agent_push(project)
    await tasks.add_repository(project)
    task = await tasks.create(WRITE, repository=project)
    done = await tasks.until(task["id"], "done", timeout=PATIENCE_S)
    branch, base = done["branch"], done["base"]
    assert branch == f"task-{task['id']}"
    assert pagure.branches(project)[branch] == done["published_sha"]
    opened = pagure.post(
        f"/{project}/pull-request/new", title="Add a line", branch_from=branch, branch_to=base
    )
    assert opened["commit_stop"] == done["published_sha"]
    pagure.post(f"/{project}/pull-request/{opened['id']}/merge", wait=1)
    assert pagure.branches(project)[base] == done["published_sha"]


async def test_pagure__a_refusal_waits_with_its_words_until_the_person_has_granted_the_push(
    tasks, pagure
):
    project = pagure.add_project("foreign")
    await tasks.add_repository(project)
    task = await tasks.create(WRITE, repository=project)
    waiting = await tasks.until(task["id"], "waiting-for-user", timeout=PATIENCE_S)
    assert waiting["waits_for"]["kind"] == "forge"
    denied = f"Denied push for ref 'refs/heads/{waiting['branch']}' for user '{AGENT}'"
    assert denied in waiting["stage_reason"]
    assert waiting["branch"] not in pagure.branches(project)
    pagure.let_agent_push(project)
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    done = await tasks.until(task["id"], "done", after=waiting, timeout=PATIENCE_S)
    assert pagure.branches(project)[done["branch"]] == done["published_sha"]


async def test_pagure__a_refusal_of_its_hook_arrives_in_its_words(tasks, pagure):
    project = pagure.add_project("guarded")
    pagure.let_agent_push(project)
    pagure.forbid_new_branches(project)
    await tasks.add_repository(project)
    task = await tasks.create(WRITE, repository=project)
    waiting = await tasks.until(task["id"], "waiting-for-user", timeout=PATIENCE_S)
    assert "Creating a new reference/branch is not allowed" in waiting["stage_reason"]
    assert waiting["branch"] not in pagure.branches(project)
    assert await tasks.items(task["id"], "saves")
