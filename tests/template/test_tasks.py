"""The real agents as the agents of tasks: each takes an issue to a pull request, told by a model on its sandbox's loopback."""

from typing import Any

import pytest

from tests.server.forges.support.github_emulator import PROGRAMS
from tests.server.forges.support.world import forge_world_at
from tests.server.support.server_process import server_process
from tests.server.tasks.support.task_client import TaskClient
from tests.template import models
from tests.template.test_agents import TELL_COSTS

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(1800)]

PATIENCE_S = 180
FIX = "sed -i s/1/2/ src/widgets.py && git commit --all --message 'fix: count two widgets'"
MORE = "echo More. >>README.md && git commit --all --message 'docs: say more'"


@pytest.fixture(scope="module")
def world(run_services, tmp_path_factory):
    """Make a forge whose repository has the model."""
    port = int(run_services.service("github-emulators")["port"])
    with forge_world_at(port, tmp_path_factory.mktemp("forge")) as world:
        world.push({"model_endpoint.py": models.PROGRAM.read_text()})
        yield world


@pytest.fixture(scope="module")
def task_server(full, options, world):
    """Run a server that may reach the forge, on the engine that has built the template."""
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    variables["SANDBOX_SERVER_FORGE_HOSTS"] = ",".join(world.hosts)
    with server_process(variables=variables) as server:
        server.start()
        yield server


@pytest.fixture
async def tasks(task_server, world, full):
    """Call the API of a server that knows the forge and its repository."""
    async with task_server.client() as api:
        nothing: Any = None  # its components are those of another process
        client = TaskClient(api, nothing)
        await client.put_forge(**world.app)
        await client.post("/v1/forges/forge/check")
        settings = {
            "template": full,
            "setup": models.setup("$PWD/model_endpoint.py"),
            "checks": "grep --quiet 'return 2' src/widgets.py",
        }
        body = {"forge": "forge", "full_name": world.repository, "envs": models.ENVS}
        answer = await api.post("/v1/repositories", json={**body, "settings": settings})
        assert answer.status_code in (201, 409), answer.text
        yield client
        await client.cancel_all()


@pytest.mark.skipif(not (PROGRAMS / "emulate").exists(), reason="run scripts/test-programs")
@pytest.mark.parametrize("agent", models.AGENTS, ids=lambda agent: agent.name)
async def test_task__a_real_agent_takes_an_issue_to_a_pull_request(tasks, world, agent):
    issue = world.open_issue(f"Count two with {agent.name}", f"It counts one.\n\nmodel, run: {FIX}")
    body = {"repository": world.repository, "issue": issue, "agent": agent.name}
    task = await tasks.post("/v1/tasks", json={**body, "model": agent.model})
    done = await tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
    runs = await tasks.items(task["id"], "runs")
    assert [(run["kind"], run["outcome"]) for run in runs] == [
        ("setup", "succeeded"),
        ("agent", "succeeded"),
        ("checks", "succeeded"),
    ]
    assert (runs[1]["cost_usd"] is None) == (agent.name not in TELL_COSTS)
    assert "return 2" in world.git.read(world.repository, done["branch"], "src/widgets.py")
    [pull] = [one for one in world.list_pulls() if one["head"]["ref"] == done["branch"]]
    assert f"Closes #{issue}" in pull["body"]
    assert tasks.subjects(world, done["branch"]) == ["fix: count two widgets"]
    assert tasks.authors(world, done["branch"]) == ["sandbox-agent[bot]"]

    await tasks.post(f"/v1/tasks/{task['id']}/messages", json={"text": f"model, run: {MORE}"})
    await tasks.until(task["id"], "in-review", after=done, timeout=PATIENCE_S)
    [again] = [run for run in await tasks.items(task["id"], "runs") if run["kind"] == "agent"][1:]
    assert again["summary"].startswith("2 prompts; the tool said:"), again
    assert tasks.subjects(world, done["branch"]) == ["docs: say more", "fix: count two widgets"]
    assert len([one for one in world.list_pulls() if one["head"]["ref"] == done["branch"]]) == 1


@pytest.mark.parametrize("agent", [models.CLAUDE, models.CODEX], ids=lambda agent: agent.name)
async def test_task__an_interrupted_agent_leaves_no_process_that_writes(tasks, world, agent):
    """What the agent runs ignores signals, and writes until it is killed."""
    writing = "trap '' INT TERM HUP; while :; do echo line >>lines; sleep 0.1; done"
    text = f'model, run: setsid --fork sh -c "{writing}"; sleep 600'
    body = {"repository": world.repository, "instructions": text, "agent": agent.name}
    task = await tasks.post("/v1/tasks", json=body)
    await tasks.until_run(task["id"], count=2)
    sandbox_id = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(sandbox_id, "/home/user/widgets/lines")
    await tasks.post(
        f"/v1/tasks/{task['id']}/messages",
        json={"text": "model, run: cp lines copy", "interrupt": True},
    )
    await tasks.until(task["id"], "waiting-for-user", timeout=PATIENCE_S)
    lines, copy = [
        await tasks.read_file(sandbox_id, f"/home/user/widgets/{name}")
        for name in ("lines", "copy")
    ]
    assert lines == copy
