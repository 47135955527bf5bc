"""`sbx shell`, typed into through a real terminal."""

import re

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient

pytestmark = pytest.mark.needs_engine

INSTALL = "apt-get update && apt-get install --yes --no-install-recommends nano"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def editing(server):
    """Make a sandbox in which an editor is installed meanwhile."""
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base") as sandbox,
    ):
        yield sandbox, await sandbox.start(INSTALL, user="root")


@pytest.fixture
def web(editing):
    sandbox, _ = editing
    return sandbox.id


def test_shell__forwards_the_terminal_size_and_ctrl_c(sit, web):
    with sit("shell", web) as person:
        person.type("stty size\r")
        person.see("24 80")
        person.resize(100, 30)
        person.type("stty size\r")
        person.see("30 100")
        person.type("echo begin-$((1 + 1)); sleep 1000\r")
        person.see("begin-2")
        person.type("\x03")
        person.type("echo still-$((2 + 2)); exit 7\r")
        person.see("still-4")
        assert person.end() == 7


def test_shell__detach_and_attach_again(sit, web):
    with sit("shell", web, "--", "bash --norc -i") as person:
        person.type("MARK=here; echo $MARK-1\r")
        person.see("here-1")
        person.type("\r~.")
        person.see("Still running. Attach again with: sbx shell")
        [terminal] = re.findall(r"--attach (\w+)", person.see("\n"))
        assert person.end() == 0
    with sit("shell", web, "--attach", terminal) as person:
        person.type("echo $MARK-2; exit 4\r")
        person.see("here-2")
        assert person.end() == 4


def test_exec__tty_option_opens_a_terminal(sit, web):
    with sit("exec", "-t", "-e", "A=a", web, "--", "tty; echo $A-$((1 + 1)); exit 3") as person:
        person.see("/dev/pts/")
        person.see("a-2")
        assert person.end() == 3


def test_shell__requires_a_terminal(sbx, web):
    done = sbx("shell", web)
    assert done.returncode == 125
    assert "must be a terminal" in done.stderr


@pytest.mark.asyncio(loop_scope="module")
async def test_shell__full_screen_editor_works(sit, sbx, editing):
    sandbox, installing = editing
    installed = await installing.wait()
    if installed.exit_code != 0:
        pytest.skip(f"nano cannot be installed: {installed.stderr}")
    with sit("shell", sandbox.id) as person:
        person.type("nano note.txt\r")
        person.see("\x1b[?1049h")  # it has the whole screen
        person.see("New File")
        person.type("typed into nano\rsecond lime\x7f\x7fne")
        person.resize(60, 20)
        person.see("note.txt")
        person.type("\x0f")
        person.see("File Name to Write")
        person.type("\r")
        person.see("Wrote 2 lines")
        person.type("\x18")
        person.see("\x1b[?1049l")
        person.type("exit\r")
        assert person.end() == 0
    assert sbx("cp", f"{sandbox.id}:note.txt", "-").stdout == "typed into nano\nsecond line\n"
