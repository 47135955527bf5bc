"""Templates as lists, names and tags show them; the builds here change nothing but settings."""

import httpx
import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    LogEntry,
    SandboxException,
    Template,
    TemplateException,
)

pytestmark = pytest.mark.needs_engine


def greeting(text):
    return AsyncTemplate().from_base_image().set_envs({"GREETING": text})


async def greeting_of(template, options):
    async with await AsyncSandbox.create(template, timeout=120, **options) as sandbox:
        return (await sandbox.commands.run("echo $GREETING")).stdout.strip()


async def test_template__is_found_by_name_and_id(options, name):
    built = await AsyncTemplate.build(greeting("hello"), name, **options)
    assert built.name == name
    for reference in (name, built.template_id, f"{name}:default", f"{name}:{built.build_id}"):
        assert await greeting_of(reference, options) == "hello"


async def test_template__tag_stays_with_its_build(options, name):
    first = await AsyncTemplate.build(greeting("one"), f"{name}:v1", tags=["old"], **options)
    assert set(first.tags) == {"v1", "old"}
    with pytest.raises(SandboxException, match="tag 'default' does not exist"):
        await AsyncSandbox.create(name, **options)
    second = await AsyncTemplate.build(greeting("two"), name, **options)
    assert second.template_id == first.template_id
    assert await greeting_of(f"{name}:v1", options) == "one"
    assert await greeting_of(name, options) == "two"

    info = await AsyncTemplate.assign_tags(f"{name}:v1", ["stable", "default"], **options)
    assert (info.build_id, set(info.tags)) == (first.build_id, {"stable", "default"})
    assert await greeting_of(name, options) == "one"

    await AsyncTemplate.remove_tags(name, ["old", "v1"], **options)
    tags = await AsyncTemplate.get_tags(name, **options)
    assert {tag.tag: tag.build_id for tag in tags} == dict.fromkeys(
        ("stable", "default"), first.build_id
    )
    with pytest.raises(SandboxException, match="tag 'v1' does not exist for template"):
        await AsyncSandbox.create(f"{name}:v1", **options)


async def test_template__exists_from_request_to_deletion(client, options, name):
    assert not await AsyncTemplate.exists(name, **options)
    built = await AsyncTemplate.build(greeting("x"), name, **options)
    assert await AsyncTemplate.exists(name, **options)
    assert await AsyncTemplate.alias_exists(built.template_id, **options)
    assert not await AsyncTemplate.exists(f"{name}:nightly", **options)
    assert (await client.delete(f"/templates/{name}")).status_code == 204
    assert not await AsyncTemplate.exists(name, **options)
    assert (await client.delete(f"/templates/{name}")).status_code == 404
    with pytest.raises(SandboxException, match=f"template '{name}' not found"):
        await AsyncSandbox.create(name, **options)


def test_template__sync_sdk_works_too(engine, name):
    lines: list[LogEntry] = []
    template = Template().from_base_image().set_envs({"A": "1"})
    built = Template.build(template, name, on_build_logs=lines.append, **engine.options)
    assert any("ENV A 1" in line.message for line in lines)
    status = Template.get_build_status(built, **engine.options)
    assert status.status == "ready"
    assert any("ENV A 1" in entry.message for entry in status.log_entries)
    assert Template.exists(name, **engine.options)


async def test_template__base_is_protected(client, options):
    with pytest.raises(BuildException, match="belongs to the engine"):
        await AsyncTemplate.build(greeting("x"), "base", **options)
    with pytest.raises(TemplateException, match="belongs to the engine"):
        await AsyncTemplate.assign_tags("base", "mine", **options)
    assert (await client.delete("/templates/base")).status_code == 403
    assert await AsyncTemplate.exists("base", **options)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"cpu_count": 3}, "CPU count must be 1 or an even number"),
        ({"cpu_count": 0}, "CPU count must be at least 1"),
        ({"cpu_count": 65536}, r"CPU count can't be higher than \d+"),
        ({"memory_mb": 127}, "Memory must be at least 128 MiB"),
        ({"memory_mb": 513}, "Memory must be divisible by 2"),
        ({"memory_mb": 1 << 30}, r"Memory can't be higher than \d+ MiB"),
    ],
)
async def test_template__unavailable_resources_are_rejected(options, name, wanted, why):
    with pytest.raises(BuildException, match=why):
        await AsyncTemplate.build(greeting("x"), name, **wanted, **options)
    assert not await AsyncTemplate.exists(name, **options)


async def test_template__sandbox_has_its_resources(options, name):
    await AsyncTemplate.build(greeting("x"), name, cpu_count=1, memory_mb=256, **options)
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        info = await sandbox.get_info()
    assert (info.cpu_count, info.memory_mb) == (1, 256)


async def test_template__lists_show_the_build_state(client, options, name):
    built = await AsyncTemplate.build(greeting("x"), name, memory_mb=256, **options)
    await greeting_of(name, options)
    listed = (await client.get("/templates")).json()
    shown = next(one for one in listed if one["templateID"] == built.template_id)
    assert shown["names"] == shown["aliases"] == [name]
    assert (shown["buildID"], shown["buildStatus"]) == (built.build_id, "ready")
    assert (shown["memoryMB"], shown["buildCount"], shown["spawnCount"]) == (256, 1, 1)
    assert shown["lastSpawnedAt"]
    detail = (await client.get(f"/templates/{name}")).json()
    assert [build["buildID"] for build in detail["builds"]] == [built.build_id]
    assert detail["builds"][0]["status"] == "ready"


async def test_template__lists_are_paged(client, options, name):
    for suffix in "abc":
        await AsyncTemplate.build(greeting("x"), f"{name}-{suffix}", **options)
    seen, token = [], ""
    while token is not None:
        answer = await client.get("/v2/templates", params={"limit": 2, "nextToken": token or None})
        assert len(answer.json()) <= 2
        seen += [one["templateID"] for one in answer.json()]
        token = answer.headers.get("X-Next-Token")
    assert seen == [one["templateID"] for one in (await client.get("/templates")).json()]
    assert (await client.get("/v2/templates?nextToken=nonsense")).status_code == 400


async def test_template__missing_template_is_named(client, options, name):
    await AsyncTemplate.build(greeting("x"), name, **options)
    nobody = "00000000-0000-4000-8000-000000000000"
    for path, what in {
        "/templates/nothing": "template 'nothing' not found",
        "/templates/nothing/tags": "template 'nothing' not found",
        "/templates/aliases/nothing": "template 'nothing' not found",
        f"/templates/aliases/{name}:no": f"tag 'no' does not exist for template '{name}'",
        f"/templates/{name}/builds/{nobody}/status": f"build '{nobody}' of template",
        f"/templates/{name}/builds/{nobody}/logs": f"build '{nobody}' of template",
    }.items():
        answer = await client.get(path)
        assert answer.status_code == 404, path
        assert what in answer.json()["message"]
    with pytest.raises(BuildException, match="template 'nothing' not found"):
        await AsyncTemplate.build(AsyncTemplate().from_template("nothing"), name, **options)
    with pytest.raises(TemplateException, match="tag 'no' does not exist"):
        await AsyncTemplate.assign_tags(f"{name}:no", "yes", **options)


@pytest.mark.parametrize("wrong", ["with space", "team/name", "", "ä", "x" * 129, "a:b:c"])
async def test_template__invalid_name_is_rejected(client, wrong):
    answer = await client.post("/v3/templates", json={"name": wrong})
    assert answer.status_code == 400
    assert answer.json()["message"]


async def test_template__publishing_is_stored(client, options, name):
    built = await AsyncTemplate.build(greeting("x"), name, **options)
    updated = await client.patch(f"/v2/templates/{built.template_id}", json={"public": True})
    assert updated.json() == {"names": [name]}
    assert (await client.get(f"/templates/{name}")).json()["public"] is True
    assert (await client.patch(f"/templates/{name}", json={"public": False})).status_code == 200
    assert (await client.get(f"/templates/{name}")).json()["public"] is False


async def test_template__api_key_works_as_an_access_token(engine):
    async with httpx.AsyncClient(base_url=engine.url, timeout=60) as client:
        for sent, status in {f"Bearer {engine.api_key}": 200, "Bearer e2b_0": 401}.items():
            answer = await client.get("/templates", headers={"Authorization": sent})
            assert answer.status_code == status
