"""Templates whose sandboxes have something running when they are handed out."""

import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    wait_for_file,
    wait_for_port,
    wait_for_process,
    wait_for_timeout,
    wait_for_url,
)

pytestmark = pytest.mark.needs_engine

SERVER = "mkdir -p ~/www && cd ~/www && touch index.html && python3 -m http.server 8000"


@pytest.mark.parametrize(
    ("ready", "proof"),
    [
        (wait_for_port(8000), "curl -sf localhost:8000"),
        (wait_for_url("http://localhost:8000/"), "curl -sf localhost:8000"),
        (wait_for_process("python3"), "pgrep python3"),
        (wait_for_file("/home/user/www/index.html"), "ls ~/www"),
        (wait_for_timeout(1000), "pgrep python3"),
    ],
    ids=["port", "url", "process", "file", "timeout"],
)
async def test_template_start_command__sandbox_is_returned_when_ready(options, name, ready, proof):
    template = AsyncTemplate().from_base_image().set_start_cmd(SERVER, ready)
    await AsyncTemplate.build(template, name, **options)
    async with await AsyncSandbox.create(name, timeout=120, **options) as sandbox:
        assert (await sandbox.commands.run(proof)).exit_code == 0


async def test_template_start_command__failure_fails_the_build(options, name):
    template = (
        AsyncTemplate()
        .from_base_image()
        .set_start_cmd("echo no config >&2; exit 4", wait_for_port(8000))
    )
    with pytest.raises(BuildException, match="4") as caught:
        await AsyncTemplate.build(template, name, **options)
    assert "no config" in str(caught.value)
