"""What an agent starts through the tool server ends with its run, and nothing else does."""

import asyncio
import json
import os
import sys

from sandbox_tools.toolkit.process_tree import find_processes_with, terminate_processes_with
from tests.tools.polling import until
from tests.tools.shell.processes import alive

_RUN = "task/1/run/2"
_AGENT = """
import asyncio, json, sys
from fastmcp import Client

async def main():
    url, token, calls = json.loads(sys.argv[1])
    async with Client(url, auth=token) as client:
        for tool, arguments in calls:
            print(json.dumps((await client.call_tool(tool, arguments)).content[0].text), flush=True)

asyncio.run(main())
"""


async def _call_as_agent(server, calls, **environment):
    """Call tools from a process with variables of its own, as an agent does; gives the answers."""
    argument = json.dumps([f"{server.url}/mcp/", server.token, calls])
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _AGENT, argument, env=os.environ | environment, stdout=-1
    )
    answers, _ = await agent.communicate()
    assert agent.returncode == 0
    return [json.loads(line) for line in answers.splitlines()]


async def test_calling_agent__all_that_it_starts_through_tools_ends_with_its_run(
    tool_server, tools, tmp_path
):
    pids = [tmp_path / name for name in ("detached", "background", "in-a-shell", "of-another")]
    detached, background, in_shell, of_another = (
        f"echo $$ > {pid}; exec sleep 1000" for pid in pids
    )
    answers = await _call_as_agent(
        tool_server,
        [
            ("run_command", {"command": f"setsid bash -c '{detached}' > /dev/null 2>&1 &"}),
            ("run_command", {"command": background, "background": True}),
            ("shell_open", {"name": "of-a-run"}),
            ("shell_run", {"shell": "of-a-run", "command": in_shell, "timeout_s": 1}),
            ("run_command", {"command": "echo $SANDBOX_TASK_RUN"}),
        ],
        SANDBOX_TASK_RUN=_RUN,
    )
    assert answers[-1].splitlines()[0] == _RUN
    await tools.call_tool("run_command", {"command": of_another, "background": True})
    await until(lambda: all(pid.exists() and alive(pid) for pid in pids))
    assert await terminate_processes_with("SANDBOX_TASK_RUN", _RUN)
    assert [alive(pid) for pid in pids] == [False, False, False, True]
    shells = json.loads((await tools.call_tool("shell_list", {})).content[0].text)["shells"]
    [own] = [shell for shell in shells if shell["name"] == "of-a-run"]
    assert own["state"] == "ended"
    os.kill(int(pids[-1].read_text()), 9)


async def test_calling_agent__a_caller_without_a_run_starts_processes_of_none(tools):
    text = (await tools.call_tool("run_command", {"command": "env"})).content[0].text
    assert "SANDBOX_TASK_RUN" not in text
    assert not find_processes_with("SANDBOX_TASK_RUN", _RUN)
