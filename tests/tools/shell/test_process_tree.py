import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio

from tests.tools.shell.processes import alive
from tests.tools.tool_server_process import started_tool_server

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two accounts")

_NOBODY = 65534


@pytest.fixture
def programs():
    """Make a directory with a sudo that asks for no password, by another name."""
    with tempfile.TemporaryDirectory(prefix="accounts-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        become_root = directory / "become-root"
        shutil.copy("/usr/bin/setpriv", become_root)
        become_root.chmod(0o4755)
        sudo = directory / "as-root"
        sudo.write_text(f"""#!/bin/sh
[ "$1" != -n ] || shift
exec {become_root} --reuid=0 --regid=0 --clear-groups "$@"
""")
        sudo.chmod(0o755)
        yield directory


@pytest_asyncio.fixture
async def tools(programs):
    """Call the tools of a server that is not root's."""
    path = f"{programs}:{os.environ['PATH']}"
    async with (
        started_tool_server(programs, account=_NOBODY, PATH=path) as server,
        server.client() as client,
    ):
        yield client


async def run_too_long(tools, programs):
    pid = programs / "workspace" / "pid"
    ran = await tools.call_tool(
        "run_command",
        {
            "command": f"{programs}/as-root sh -c 'echo $$ >{pid}; exec sleep 600'",
            "timeout_s": 1,
        },
    )
    is_alive = alive(pid)
    if is_alive:
        os.kill(int(pid.read_text()), signal.SIGKILL)
    return ran.content[0].text, is_alive


async def test_run_command__a_timeout_kills_root_processes_with_sudo(tools, programs):
    (programs / "sudo").symlink_to("as-root")
    said, is_alive = await run_too_long(tools, programs)
    assert said.startswith("[timed out and killed after 1 s.")
    assert not is_alive


@pytest.mark.slow  # waits until a kill is given up
async def test_run_command__a_timeout_does_not_wait_for_root_processes_without_sudo(
    tools, programs
):
    (programs / "sudo").write_text("#!/bin/sh\nexit 1\n")
    (programs / "sudo").chmod(0o755)
    said, is_alive = await run_too_long(tools, programs)
    assert said.startswith("[timed out; some processes could not be killed after")
    assert is_alive
