import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio
from fastmcp.exceptions import ToolError

from sandbox_tools.shell.tmux import Tmux
from tests.tools.polling import until
from tests.tools.shell.processes import alive
from tests.tools.shell.tmux_command import tmux
from tests.tools.tool_server_process import started_tool_server


class Calls:
    """The tools of one shell, as an agent calls them."""

    def __init__(self, client, name):
        self.client = client
        self.name = name

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, {"shell": self.name} | arguments)
        return result.content[0].text

    async def run(self, command, **arguments):
        return await self.call("shell_run", command=command, **arguments)

    async def write(self, text="", **arguments):
        return await self.call("shell_write", text=text, **arguments)

    async def view(self, **arguments):
        return await self.call("shell_view", **arguments)

    async def state(self):
        told = (await self.client.call_tool("shell_list", {})).content[0].text
        return next((s for s in json.loads(told)["shells"] if s["name"] == self.name), None)


async def opened(client, name):
    await client.call_tool("shell_open", {"name": name})
    return Calls(client, name)


@pytest_asyncio.fixture
async def shell(tools, request):
    calls = await opened(tools, request.node.name.removeprefix("test_")[:40].replace("[", "-"))
    yield calls
    with suppress(ToolError):
        await calls.call("shell_kill")


async def test_shell_run__state_persists_between_commands(shell):
    await shell.run(
        "cd /usr; export A=1; declare -A map=([key]=value); twice() { echo $1 $1; }; (exit 7)"
    )
    text = await shell.run('echo "$? $PWD $A ${map[key]}"\ntwice\\\n word')
    assert text == "7 /usr 1 value\nword word\n[exit code 0]"


async def test_shell_run__output_contains_no_terminal_sequences(shell):
    command = r"""printf '\e[31mred\e[m\n'; echo err >&2; printf '10%%\r50%%\r100%%\r\e[Kdone'"""
    assert await shell.run(command) == "red\nerr\ndone\n[exit code 0]"


async def test_shell_run__binary_output_breaks_nothing(shell):
    text = await shell.run(
        r"head -c 9000 /bin/ls; printf '\e]133;D;sandbox=1\a\eP\e]0;'; echo; echo the end of it"
    )
    assert text.endswith("the end of it\n[exit code 0]")
    assert await shell.run("echo after") == "after\n[exit code 0]"


async def test_shell_run__an_incomplete_command_fails_and_the_shell_continues(shell):
    text = await shell.run('echo "unfinished')
    assert "unexpected EOF" in text
    assert await shell.run("if true; then echo on; fi # ok") == "on\n[exit code 0]"


async def test_shell_write__sends_input_to_a_command(shell):
    text = await shell.run("read -p 'name? ' name; echo hello $name", timeout_s=0.5)
    assert text.startswith("name? \n[still running after 0.5 s;")
    with pytest.raises(ToolError, match="still running: read -p 'name"):
        await shell.run("echo no")
    text = await shell.write("you")
    assert "hello you\n" in text
    assert text.endswith("[idle; the last command ended: exit code 0]")


async def test_shell_write__keys_interrupt_a_command(shell):
    await shell.run("sleep 600; echo not reached", timeout_s=0.5)
    text = await shell.write(keys=["C-c"])
    assert "not reached\n" not in text.replace("echo not reached", "")
    await shell.view(wait_s=30)
    assert await shell.run("echo $?") == "130\n[exit code 0]"


async def test_shell_write__unknown_keys_are_rejected(shell):
    with pytest.raises(ToolError, match="Unknown key 'Ctrl-C'"):
        await shell.write(keys=["Ctrl-C"])


async def test_shell_run__full_screen_programs_can_be_viewed_and_left(shell, tool_server):
    (tool_server.workspace / "long.txt").write_text("".join(f"line {n}\n" for n in range(500)))
    text = await shell.run("less long.txt", timeout_s=1)
    assert text.startswith("line 0\nline 1\n")
    assert "line 100\n" not in text
    assert "line 499\n" in await shell.write(keys=["G"])
    await shell.write(keys=["q"])
    assert (await shell.view(wait_s=30)).endswith("[idle; the last command ended: exit code 0]")


async def test_shell_run__long_output_is_truncated_and_stored_in_a_file(shell):
    text = await shell.run("seq 100000; echo end")
    assert len(text) < 31_000
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n100000\nend\n[exit code 0]")
    (path,) = [word for word in text.split() if word.endswith(".output")]
    assert b"\r\n50000\r\n" in Path(path).read_bytes()


async def test_shell_run__background_jobs_do_not_delay_the_result(shell):
    assert (await shell.run("sleep 600 &")).endswith("exit code 0]")
    assert "143\n" in await shell.run("kill %1; wait %1; echo $?")


async def test_shell_run__works_with_unusual_bash_options(shell):
    await shell.run(
        "PROMPT_COMMAND=; set -u -o noclobber -o vi; IFS=0123456789; alias printf=false; set -o pipefail"
    )
    assert await shell.run("echo still; false") == "still\n[exit code 1]"
    assert await shell.run("set -e; echo strict") == "strict\n[exit code 0]"


async def test_shell_run__an_exit_of_the_shell_is_reported_with_its_code(shell):
    text = await shell.run("echo bye; exit 3")
    assert text.startswith("bye\n")
    assert f"shell {shell.name} has ended (exit code 3)" in text
    assert (await shell.state())["exit_code"] == 3
    with pytest.raises(ToolError, match="has ended"):
        await shell.run("echo no")
    await opened(shell.client, shell.name)
    assert await shell.run("echo anew") == "anew\n[exit code 0]"


async def test_shell_open__has_the_variables_of_the_sandbox(tools, tool_server):
    tool_server.set(envs={"GREETING": "hello 'you'\nthere", "not a name": "x"})
    shell = await opened(tools, "with-variables")
    assert await shell.run('echo "$GREETING"') == "hello 'you'\nthere\n[exit code 0]"
    await shell.call("shell_kill")


async def test_shell_run__refuses_while_a_person_runs_a_program(shell, sockets):
    tmux(sockets, "send-keys", "-t", shell.name, "cat", "Enter")
    await until(
        lambda: "cat" in tmux(sockets, "list-panes", "-a", "-F", "#{pane_current_command}").stdout
    )
    with pytest.raises(ToolError, match="still running: cat"):
        await shell.run("echo no")
    tmux(sockets, "send-keys", "-t", shell.name, "C-d")
    await shell.view(wait_s=30)
    tmux(sockets, "send-keys", "-t", shell.name, "half a line that nobody ent")
    tmux(sockets, "copy-mode", "-t", shell.name)
    assert await shell.run("echo yes") == "yes\n[exit code 0]"


async def test_shell_run__a_cancelled_call_interrupts_the_command(shell, tool_server):
    pid = tool_server.workspace / "interrupted"
    call = asyncio.create_task(shell.run(f"sh -c 'echo $$ > {pid}; exec sleep 600'"))
    await until(lambda: pid.exists() and pid.read_text())
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    await until(lambda: not alive(pid))


async def test_shell_kill__ends_all_processes_of_the_shell(shell, tool_server):
    pid = tool_server.workspace / "stubborn"
    await shell.run(f"(trap '' HUP TERM; echo $BASHPID > {pid}; sleep 600) & disown")
    await until(lambda: pid.exists() and pid.read_text())
    await shell.call("shell_kill")
    assert not alive(pid)
    assert await shell.state() is None
    with pytest.raises(ToolError, match=f"No shell {shell.name} .* Open one with shell_open"):
        await shell.view()


async def test_run_command__background_commands_can_be_viewed_to_their_end(tools, tool_server):
    os.mkfifo(tool_server.workspace / "go")
    told = await tools.call_tool(
        "run_command", {"command": "echo begun; cat go; exit 4", "background": True}
    )
    job = Calls(tools, told.content[0].text.split()[0])
    assert (await job.view()).endswith(": echo begun; cat go; exit 4]")
    with pytest.raises(ToolError, match="is a background command"):
        await job.run("echo no")
    (tool_server.workspace / "go").write_text("gone\n")
    text = await job.view(wait_s=60)
    assert text.endswith("begun\ngone\n[ended: exit code 4]")
    await job.call("shell_kill")


async def test_shell_view__wait_s_reports_the_exit_code_of_a_background_command(tools):
    for _ in range(5):  # tmux may know of an end later than the tool server
        told = await tools.call_tool("run_command", {"command": "read; exit 4", "background": True})
        job = Calls(tools, told.content[0].text.split()[0])
        viewed = asyncio.create_task(job.view(wait_s=60))
        await job.write("go")
        assert (await viewed).endswith("[ended: exit code 4]")
        await job.call("shell_kill")


async def test_shells__survive_a_restart_of_the_tool_server(shell, tool_server, sockets, tmp_path):
    await shell.run("kept=yes")
    await shell.run("cat; echo $kept", timeout_s=0.5)
    home = tool_server.settings.parent / "home"
    async with (
        started_tool_server(tmp_path, TMUX_TMPDIR=str(sockets), HOME=str(home)) as another,
        another.client() as client,
    ):
        found = Calls(client, shell.name)
        assert (await found.state())["state"] == "running"
        await found.write(keys=["C-d"])
        await found.view(wait_s=30)
        assert await found.run("echo $kept") == "yes\n[exit code 0]"


async def test_shells__can_be_opened_again_after_tmux_was_killed(tools, tool_server):
    shell = await opened(tools, "short-lived")
    call = asyncio.create_task(shell.run("echo $PPID > tmux-pid; sleep 600"))
    pid = tool_server.workspace / "tmux-pid"
    await until(lambda: pid.exists() and pid.read_text())
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert "shell short-lived has ended" in await call
    assert await shell.state() is None
    left = tool_server.settings.parent / "home/.local/state/sandbox-tools/shells/short-lived"
    assert left.exists()
    await opened(tools, "another")
    assert not left.exists()
    await Calls(tools, "another").call("shell_kill")
    await opened(tools, "short-lived")
    assert await shell.run("echo again") == "again\n[exit code 0]"
    await shell.call("shell_kill")


@pytest_asyncio.fixture
async def no_shells(tools):
    """End what other tests of this tool server have left, and what the test leaves."""
    await end_all(tools)
    yield
    await end_all(tools)


async def end_all(tools):
    listed = json.loads((await tools.call_tool("shell_list", {})).content[0].text)
    for shell in listed["shells"]:
        with suppress(ToolError):  # it has ended by itself
            await Calls(tools, shell["name"]).call("shell_kill")


async def test_shells__the_number_of_shells_is_limited(tools, no_shells):
    told = await tools.call_tool("run_command", {"command": "true", "background": True})
    await Calls(tools, told.content[0].text.split()[0]).view(wait_s=60)
    for _ in range(16):  # the last one takes the place of the command that has ended
        await tools.call_tool("run_command", {"command": "sleep 600", "background": True})
    with pytest.raises(ToolError, match="The maximum of 16 shells is open"):
        await tools.call_tool("shell_open", {})


async def test_shell_open__rejects_used_and_invalid_names(shell):
    with pytest.raises(ToolError, match=f"Shell {shell.name} already exists"):
        await opened(shell.client, shell.name)
    with pytest.raises(ToolError, match="Invalid arguments for shell_open"):
        await opened(shell.client, "../elsewhere")


async def test_shell_view__truncates_long_screens(shell):
    await shell.run("for i in {1..3000}; do echo $i $(printf %080d 0); done")
    text = await shell.view(lines_above=2000)
    assert 50_000 < len(text) < 51_000
    assert " characters truncated …]" in text
    assert text.endswith("exit code 0]")


async def test_shells__ignore_sessions_of_a_person(shell, sockets):
    tmux(sockets, "new-session", "-d", "-s", "shell-1")
    told = (await shell.client.call_tool("shell_open", {})).content[0].text
    assert told.startswith("Shell shell-2 is open")
    await Calls(shell.client, "shell-2").call("shell_kill")
    assert await Calls(shell.client, "shell-1").state() is None
    tmux(sockets, "kill-session", "-t", "shell-1")


async def test_shell_open__a_shell_without_prompt_is_an_error_with_its_screen(tools, tool_server):
    profile = tool_server.settings.parent / "home" / ".profile"
    profile.write_text("echo nowhere; exit 1\n")
    try:
        with pytest.raises(ToolError, match=r"(?s)showed no prompt.*nowhere"):
            await opened(tools, "lost")
    finally:
        profile.unlink()


async def test_shells__a_missing_tmux_is_an_error_that_names_the_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolError, match="need tmux, which is not installed"):
        await Tmux("none").panes()
