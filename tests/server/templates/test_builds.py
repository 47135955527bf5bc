"""Templates built on the real engine."""

import pytest

from sandbox_server.jobs.kinds import TEMPLATE_BUILD
from sandbox_server.jobs.repository import JobRepository
from tests.engine.polling import until
from tests.server.support.managed_sandboxes import MINUTE

pytestmark = [pytest.mark.needs_engine, pytest.mark.timeout(300)]


def run(*commands):
    return [{"run": command} for command in commands]


async def test_templates__a_built_template_can_be_used_for_sandboxes(building):
    asked = await building.ask(
        steps=[{"user": "root"}, {"workdir": "/srv"}, *run("echo here > proof")], cpu_count=1
    )
    assert [one["state"] for one in asked["builds"]] == ["building"]
    built = await building.settled("ready")
    assert built["ready_at"] is not None
    assert built["resources"]["cpu_count"] == 1
    assert "RUN echo here > proof" in built["log"]
    assert await building.said_in_sandbox("cat /srv/proof") == "here"


async def test_templates__a_sandbox_reports_the_templates_resources(building, api):
    built = await building.build(memory_mb=256)
    answer = await api.post(
        "/v1/sandboxes", json={"template": "own", "resources": {"memory_mb": 64}}
    )
    assert answer.status_code == 201, answer.text
    assert answer.json()["template"] == "own"
    assert answer.json()["resources"] == built["resources"]
    more = await api.post(
        "/v1/sandboxes", json={"template": "own", "resources": {"memory_mb": 512}}
    )
    assert more.status_code == 422
    assert "Build a template" in more.json()["detail"]


async def test_template_builds__a_failed_step_is_reported_with_its_output(building, api):
    await building.ask(steps=run("echo the disk is made of cheese >&2; exit 3"))
    failed = await building.settled("failed")
    assert "made of cheese" in failed["state_reason"]
    assert "exit" in failed["state_reason"]
    assert failed["ready_at"] is None
    answer = await api.post("/v1/sandboxes", json={"template": "own"})
    assert answer.status_code == 422
    assert "not ready at any backend" in answer.json()["detail"]


async def test_template_builds__the_ready_build_stays_in_use_while_a_rebuild_fails(building):
    await building.build(steps=run("echo first > ~/proof"))
    await building.again(from_template="base", steps=run("false"))
    await building.settled("failed")
    assert (await building.told())["ready_at"] is not None
    assert await building.said_in_sandbox("cat ~/proof") == "first"


async def test_template_builds__a_rebuild_can_use_a_new_definition(building):
    await building.build(steps=run("echo first > ~/proof"))
    await building.again(from_template="base", steps=run("echo second > ~/proof"))
    await building.settled("ready")
    assert await building.said_in_sandbox("cat ~/proof") == "second"


async def test_template_builds__a_rebuild_uses_the_cache_unless_forced(building):
    await building.build(steps=run("date +%N > ~/proof"))
    first = await building.said_in_sandbox("cat ~/proof")
    await building.again()
    await building.settled("ready")
    assert await building.said_in_sandbox("cat ~/proof") == first
    await building.again(force=True)
    await building.settled("ready")
    assert await building.said_in_sandbox("cat ~/proof") != first


async def test_templates__the_tenants_own_template_can_be_the_base_of_another(building):
    await building.build("ground", steps=run("echo deep > ~/ground"))
    await building.build("house", from_template="ground", steps=run("cat ~/ground > ~/house"))
    assert await building.said_in_sandbox("cat ~/house", "house") == "deep"


async def test_template_builds__the_log_can_be_read_from_an_offset(building):
    await building.ask(steps=run("echo one", "test -e ~/gate || sleep 1; echo two"))
    told, offset = "building", 0
    pieces: list[str] = []
    while told == "building" or pieces[-1]:
        part = await building.told(offset=offset)
        told, offset = part["state"], part["next_offset"]
        pieces.append(part["log"])
    whole = await building.told()
    assert "".join(pieces) == whole["log"]
    assert whole["log"].index("RUN echo one") < whole["log"].index("echo two")


@pytest.mark.slow  # a long build
async def test_template_builds__the_log_keeps_head_and_tail(building):
    await building.ask(steps=run("seq -f 'line %07.0f of what nobody reads' 1 5000"))
    whole = await building.settled("ready")
    end = await building.told(offset=whole["next_offset"])
    assert end["log_offset"] > whole["next_offset"], "nothing was left out"
    assert "FROM TEMPLATE" in whole["log"]
    assert "line 0005000" in end["log"]


async def test_template_builds__a_new_build_replaces_one_in_progress(building):
    await building.ask(steps=run("sleep infinity"))

    async def is_under_way():
        return await building.has_said("sleep infinity")

    await until(is_under_way, timeout=100)
    await building.again(from_template="base", steps=run("echo short > ~/proof"))
    await building.settled("ready")
    assert await building.said_in_sandbox("cat ~/proof") == "short"


async def test_templates__a_deleted_template_is_removed_at_the_provider_and_its_name_is_free(
    building, api, backend_at
):
    asked = await building.build()
    first = (await api.get("/v1/templates/own")).json()["id"]
    assert asked["state"] == "ready"
    assert (await api.delete("/v1/templates/own")).status_code == 204
    assert (await api.get("/v1/templates/own")).status_code == 404

    async def is_gone():
        return await backend_at().templates.find(f"sandbox-server-{first}") is None

    await until(is_gone, timeout=60)
    await building.build()
    assert (await api.get("/v1/templates/own")).json()["id"] != first


async def test_templates__the_providers_copy_is_kept_while_a_sandbox_uses_it(
    building, api, server, backend_at
):
    await building.build()
    template_id = (await api.get("/v1/templates/own")).json()["id"]
    subject, templates = f"{template_id}/local", backend_at().templates
    sandbox = await server.running(template="own")
    assert (await api.delete("/v1/templates/own")).status_code == 204

    async def is_put_off():
        job = await server.living.job(TEMPLATE_BUILD, subject)
        return job.run_at is not None and job.run_at > await server.living.now() + MINUTE

    await until(is_put_off, timeout=60)
    assert await templates.find(f"sandbox-server-{template_id}") is not None
    await server.controller.delete(server.caller, sandbox.id)
    async with server.living.sessions.begin() as session:
        await JobRepository(session).due(TEMPLATE_BUILD, subject)

    async def is_gone():
        return await templates.find(f"sandbox-server-{template_id}") is None

    await until(is_gone, timeout=60)


async def test_templates__tenants_can_use_the_same_name(building, api, make_key):
    await building.build(steps=run("echo mine > ~/proof"))
    other = {"X-API-Key": await make_key(tenant="other", scopes=["sandboxes"])}
    assert (await api.get("/v1/templates/own", headers=other)).status_code == 404
    assert (await api.get("/v1/templates", headers=other)).json()["items"] == []
    asked = {"name": "own", "from_template": "base", "steps": run("echo theirs > ~/proof")}
    answer = await api.post("/v1/templates", json=asked, headers=other)
    assert answer.status_code == 202
    assert await building.said_in_sandbox("cat ~/proof") == "mine"


async def test_template_builds__a_build_rejected_by_the_provider_fails_with_its_reason(building):
    await building.ask(memory_mb=16 * 1024 * 1024)
    failed = await building.settled("failed")
    assert "emory" in failed["state_reason"]
