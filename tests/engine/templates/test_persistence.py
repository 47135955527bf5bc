"""What becomes of templates and builds when the engine dies, and of sandboxes without them."""

import json
from pathlib import Path

import pytest
from e2b import AsyncSandbox, AsyncTemplate, SandboxException
from e2b.template.types import TemplateBuildStatus

from tests.engine.engine_process import running_engine
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


@pytest.fixture(scope="module")
def engine():
    """Run an engine that keeps nothing for later builds, to be crashed."""
    with running_engine("--build-cache-days", "0") as engine:
        yield engine


@pytest.mark.slow  # a crash needs an engine of its own
async def test_template__templates_and_tags_survive_a_crash(engine, options, name):
    template = AsyncTemplate().from_base_image().run_cmd("echo kept > ~/file")
    built = await AsyncTemplate.build(template, f"{name}:v1", tags=["default"], **options)
    await engine.restart()
    tags = await AsyncTemplate.get_tags(name, **options)
    assert {tag.tag for tag in tags} == {"v1", "default"}
    status = await AsyncTemplate.get_build_status(built, **options)
    assert status.status is TemplateBuildStatus.READY
    assert any("echo kept" in entry.message for entry in status.log_entries)
    async with await AsyncSandbox.create(f"{name}:v1", timeout=120, **options) as sandbox:
        assert await sandbox.files.read("file") == "kept\n"


async def begin(name, options):
    """Start a build that would take for ever, and wait until its command runs."""
    template = AsyncTemplate().from_base_image().run_cmd("echo begun; sleep infinity")
    built = await AsyncTemplate.build_in_background(template, name, **options)

    async def begun() -> bool:
        status = await AsyncTemplate.get_build_status(built, **options)
        return any("[stdout]: begun" in entry.message for entry in status.log_entries)

    await until(begun, timeout=60)
    return built


@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.slow)])
async def test_template__build_fails_when_the_engine_ends(engine, options, name, end):
    built = await begin(name, options)
    getattr(engine, end)()
    engine.start()
    status = await AsyncTemplate.get_build_status(built, **options)
    assert status.status is TemplateBuildStatus.ERROR
    assert status.reason is not None
    assert "interrupted" in status.reason.message
    assert any("begun" in entry.message for entry in status.log_entries)
    assert not list((engine.state_dir / "sandboxes").iterdir())
    with pytest.raises(SandboxException, match="tag 'default' does not exist"):
        await AsyncSandbox.create(name, **options)


@pytest.mark.slow  # a crash needs an engine of its own
async def test_template__sandboxes_outlive_the_template(client, engine, options, name):
    template = AsyncTemplate().from_base_image().run_cmd("echo mine > ~/file")
    await AsyncTemplate.build(template, name, **options)
    sandbox = await AsyncSandbox.create(name, timeout=600, **options)
    record = json.loads(
        (engine.state_dir / f"sandboxes/{sandbox.sandbox_id}/record.json").read_bytes()
    )
    base, own = map(Path, record["layers"])
    await client.delete(f"/templates/{name}")
    await engine.restart()
    await sandbox.pause(mode="filesystem")
    await sandbox.connect(timeout=600)
    assert await sandbox.files.read("file") == "mine\n"
    assert own.exists()
    await sandbox.kill()
    await engine.restart()
    assert base.exists()
    assert not own.exists()
