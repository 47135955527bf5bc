"""E2B's command line, unmodified, with an API key alone.

It is installed from npm, so `make proofs` runs it; `test_js_sdk` has the SDK that it is made of.
"""

import asyncio
import json
import os
import sys

import pytest
from e2b import AsyncSandbox, AsyncTemplate

from tests.engine.node_packages import NODE, install

pytestmark = [pytest.mark.needs_engine, pytest.mark.slow]

VERSION = "2.19.0"


@pytest.fixture(scope="module")
def program():
    return install("@e2b/cli", VERSION) / "@e2b/cli/dist/index.js"


@pytest.fixture
def e2b(engine, program, tmp_path):
    """Run a command of the command line; gives its status and what it wrote."""

    async def run(*arguments: str) -> tuple[int | None, str]:
        return await execute(NODE, program, *arguments, cwd=tmp_path, engine=engine)

    return run


async def execute(*command, cwd, engine) -> tuple[int | None, str]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
        "NO_UPDATE_NOTIFIER": "1",
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    written, _ = await process.communicate()
    return process.returncode, written.decode()


async def test_e2b_cli__dockerfile_becomes_a_template(e2b, name, options, tmp_path):
    (tmp_path / "greeting").write_text("hello\n")
    (tmp_path / "e2b.Dockerfile").write_text(
        "FROM e2bdev/base\nCOPY greeting /srv/\nRUN tr a-z A-Z < /srv/greeting > /srv/loud\n"
    )
    status, written = await e2b("template", "create", name, "--memory-mb", "512")
    assert status == 0, written
    assert "tr a-z A-Z" in written
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        assert await sandbox.files.read("/srv/loud") == "HELLO\n"

    status, written = await e2b("template", "list", "--format", "json")
    listed = {one["names"][0]: one for one in json.loads(written)}
    assert (listed[name]["memoryMB"], listed[name]["buildStatus"]) == (512, "ready")
    assert (await e2b("template", "publish", "--yes", name))[0] == 0
    assert (await e2b("template", "delete", "--yes", name))[0] == 0
    assert not await AsyncTemplate.exists(name, **options)

    (tmp_path / "e2b.Dockerfile").write_text("FROM e2bdev/base\nRUN echo no luck; exit 3\n")
    status, written = await e2b("template", "create", name)
    assert status == 1
    assert "exit status 3: no luck" in written


async def test_e2b_cli__toml_is_migrated_to_scripts(e2b, engine, name, options, tmp_path):
    (tmp_path / "e2b.Dockerfile").write_text("FROM e2bdev/base\nENV GREETING=hello\n")
    (tmp_path / "e2b.toml").write_text(
        f'template_id = "unused"\ntemplate_name = "{name}"\ndockerfile = "e2b.Dockerfile"\n'
        'start_cmd = "sleep infinity"\nready_cmd = "pgrep sleep"\n'
        "cpu_count = 1\nmemory_mb = 256\n"
    )
    status, written = await e2b("template", "migrate", "--language", "python-sync")
    assert status == 0, written
    status, written = await execute(sys.executable, "build_prod.py", cwd=tmp_path, engine=engine)
    assert status == 0, written
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        info = await sandbox.get_info()
        said = await sandbox.commands.run("echo $GREETING; pgrep -a sleep")
    assert (info.cpu_count, info.memory_mb) == (1, 256)
    assert said.stdout.startswith("hello\n")
    assert said.stdout.endswith(" sleep infinity\n")


async def test_e2b_cli__sandboxes_are_created_and_killed(e2b):
    status, created = await e2b("sandbox", "create", "base", "--detach")
    assert status == 0, created
    sandbox_id = created.strip()
    assert await e2b("sandbox", "exec", sandbox_id, "echo $((6 * 7))") == (0, "42\n")
    status, logged = await e2b("sandbox", "logs", sandbox_id, "--format", "json")
    assert status == 0, logged
    assert "created" in logged
    assert (await e2b("sandbox", "kill", sandbox_id))[0] == 0
    assert sandbox_id not in (await e2b("sandbox", "list"))[1]
