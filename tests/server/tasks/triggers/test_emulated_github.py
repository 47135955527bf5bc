"""From a label at an emulated GitHub to a task, over HTTP in both directions."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.db.models import Repository
from sandbox_server.jobs.kinds import TRIGGER_LOOK
from sandbox_server.jobs.repository import JobRepository
from tests.server.support.full_server import serving_outside
from tests.server.tasks.support.task_client import TaskClient

TRIGGERS = {"labels": ["agent"], "mention": "@agent"}


@pytest.fixture
async def serving(database_url, engine, tmp_path, forge_world):
    """Run a whole server in this process, which may reach the emulated GitHub."""
    (tmp_path / "state").mkdir()
    async with serving_outside(
        database_url, engine, state_dir=tmp_path / "state", forge_hosts=forge_world.hosts
    ) as outside:
        yield outside


async def processed(api, *, kind):
    """Wait until the deliveries of a kind are processed; gives what came of them."""
    async with asyncio.timeout(60):
        while True:
            items = (await api.get("/v1/deliveries")).json()["items"]
            found = [each for each in items if each["kind"] == kind]
            if found and all(each["done_at"] for each in found):
                return [each["outcome"] for each in found]
            await asyncio.sleep(0.2)


async def connect(api, forge_world, **settings):
    """Add the repository, and have GitHub send its webhooks here."""
    forge = (await api.put("/v1/forges/github", json=forge_world.app)).json()
    wanted = {
        "forge": "github",
        "full_name": forge_world.repository,
        "settings": {"template": "base", "triggers": TRIGGERS, "agent_command": "true", **settings},
    }
    added = await api.post("/v1/repositories", json=wanted)
    assert added.status_code == 201, added.text
    address = f"{str(api.base_url).rstrip('/')}/v1/webhooks/{forge['id']}"
    forge_world.github.send_webhooks_to(address)
    return added.json()


async def test_a_label_at_github_becomes_a_task(serving, forge_world):
    async with serving.api() as api:
        await connect(api, forge_world)
        with forge_world.github.owner as owner:
            repository = f"/repos/{forge_world.repository}"
            issue = owner.post(f"{repository}/issues", json={"title": "Count wrongly"}).json()
            labels = f"{repository}/issues/{issue['number']}/labels"
            await asyncio.to_thread(owner.post, labels, json={"labels": ["agent"]})
        outcomes = await processed(api, kind="issue")
        [task] = (await api.get("/v1/tasks")).json()["items"]
        await api.post(f"/v1/tasks/{task['id']}/cancel")
    assert [each for each in outcomes if "created" in each] == [f"Task {task['id']} created."]


COMMAND = (
    "git log --format=%s > said.txt && echo asked: >> said.txt && cat $TASK_PROMPT_FILE >> said.txt"
)


async def test_a_mention_on_a_persons_pull_request_is_answered_by_one_on_top_of_it(
    serving, forge_world
):
    head = forge_world.push({"feature.py": "1\n"}, branch="feature", message="Add a feature")
    async with serving.api() as api:
        await connect(api, forge_world, agent_command=COMMAND)
        with forge_world.github.owner as owner:
            repository = f"/repos/{forge_world.repository}"
            wanted = {"title": "Feature", "body": "It counts.", "head": "feature", "base": "main"}
            pull = owner.post(f"{repository}/pulls", json=wanted).json()
            comments = f"{repository}/issues/{pull['number']}/comments"
            await asyncio.to_thread(owner.post, comments, json={"body": "@agent add a test"})
        await processed(api, kind="comment")
        [task] = (await api.get("/v1/tasks")).json()["items"]
        tasks = TaskClient(api, serving.components)
        await tasks.until(task["id"], "in-review")
        said = (await tasks.get(f"/v1/tasks/{task['id']}/diff"))["diff"]
        await tasks.cancel_all()
    own = next(each for each in forge_world.list_pulls() if each["number"] != pull["number"])
    assert (own["head"]["ref"], own["base"]["ref"]) == (f"task-{task['id']}", "feature")
    assert forge_world.head("feature") == head
    for part in ("Add a feature", "@agent add a test", "It counts.", f"#{pull['number']}"):
        assert part in said


async def look(serving, repository_id):
    """Let the hourly look for lost webhooks be due, as if the last one had been an hour ago."""
    async with serving.components.sessions.begin() as session:
        row = await session.get_one(Repository, repository_id, with_for_update=True)
        hour_ago = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
        row.trigger_looks = {name: {"since": hour_ago} for name in ("label/agent", "comments")}
        await JobRepository(session).due(TRIGGER_LOOK, repository_id)


async def test_a_label_and_a_mention_without_webhooks_become_tasks(serving, forge_world):
    async with serving.api() as api:
        repository = await connect(api, forge_world, max_open=1)
        forge_world.github.send_webhooks_to("http://127.0.0.1:9")
        first, second = forge_world.open_issue("Count wrongly"), forge_world.open_issue("Another")
        with forge_world.github.owner as owner:
            issues = f"/repos/{forge_world.repository}/issues"
            owner.post(f"{issues}/{first}/labels", json={"labels": ["agent"]})
            owner.post(f"{issues}/{second}/comments", json={"body": "@agent look at this"})
        for _ in range(2):
            await look(serving, repository["id"])
            assert len(await processed(api, kind="issue")) == 1
            assert len(await processed(api, kind="comment")) == 1
        tasks = (await api.get("/v1/tasks")).json()["items"]
        await TaskClient(api, serving.components).cancel_all()
    assert len(tasks) == 2
