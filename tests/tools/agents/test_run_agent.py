import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.tools.agent_server_process import TIMEOUT_SECONDS


@asynccontextmanager
async def run_agent(server, *options, pieces=1, **request):
    text = json.dumps(request)
    size = -(-len(text) // max(pieces, 1))
    variables = {
        f"SANDBOX_AGENT_RUN_{number}": text[number * size : (number + 1) * size]
        for number in range(pieces)
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox_tools", "run-agent", "--port", str(server.port)),
        *("--settings", str(server.settings), *options),
        env=server.environment | variables | {"MY_KEY": "from-the-run"},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lines_of(process):
    async with asyncio.timeout(TIMEOUT_SECONDS):
        output = await process.stdout.read()
        await process.wait()
    return [json.loads(line) for line in output.splitlines()]


async def test_run_agent__prints_messages_and_a_result(agent_server):
    prompt = "model, run: echo $MY_KEY > key.txt; cat key.txt"
    async with run_agent(agent_server, pieces=3, agent="claude", prompt=prompt) as process:
        lines = await lines_of(process)
    assert process.returncode == 0
    assert {line["type"] for line in lines} == {"started", "message", "result"}
    assert lines[-1] == {
        "type": "result",
        "state": "succeeded",
        "exit_code": 0,
        "output": "1 prompts; the tool said: from-the-run",
        "cost": lines[-1]["cost"],
        "session_id": lines[0]["session_id"],
        "changed_files": ["key.txt"],
    }


async def test_run_agent__a_signal_interrupts_the_agent(agent_server):
    async with run_agent(agent_server, prompt="model, hang") as process:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while json.loads(await process.stdout.readline())["type"] != "message":
                pass
        process.send_signal(signal.SIGTERM)
        lines = await lines_of(process)
    assert process.returncode == 130
    assert lines[-1]["state"] == "interrupted"


async def test_run_agent__ends_after_the_agent_however_often_it_is_told_to(agent_server):
    busy = "trap '' INT TERM; echo $$ >busy; until [ -e free ]; do sleep 0.1; done"
    async with run_agent(agent_server, prompt=f"model, run: {busy}") as process:
        busy_file = agent_server.workspace / "busy"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not busy_file.exists() or not busy_file.read_text():
                await process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        lines = asyncio.create_task(lines_of(process))
        while not lines.done():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await asyncio.wait({lines}, timeout=0.3)
    result = (await lines)[-1]
    assert result["state"] == "interrupted"
    assert "did not stop in time" not in result["output"]
    assert not Path(f"/proc/{busy_file.read_text().strip()}").exists()


async def test_run_agent__killing_the_command_stops_the_agent(agent_server):
    async with run_agent(agent_server, prompt="model, hang") as process:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            session = json.loads(await process.stdout.readline())["session_id"]
        process.kill()
        await process.wait()
        async with agent_server.client() as client:
            await client.ask(type="attach", session_id=session)
            assert (await client.until("result"))[-1]["state"] == "interrupted"


async def test_run_agent__a_refusal_is_a_failed_result(agent_server):
    async with run_agent(agent_server, prompt="hello", agent="gemini") as process:
        [result] = await lines_of(process)
    assert (process.returncode, result["state"]) == (1, "failed")
    assert "gemini is not installed in this sandbox." in result["output"]


async def test_run_agent__missing_settings_are_a_failed_result(agent_server):
    nowhere = str(agent_server.directory / "nothing.json")
    async with run_agent(agent_server, "--settings", nowhere, prompt="hello") as process:
        [result] = await lines_of(process)
    assert (process.returncode, result["state"]) == (1, "failed")
    assert "no settings" in result["output"]


async def test_run_agent__an_invalid_request_is_a_failed_result(agent_server):
    async with run_agent(agent_server, pieces=0) as process:
        [result] = await lines_of(process)
    assert "SANDBOX_AGENT_RUN_0" in result["output"]


async def test_run_agent__does_not_import_optional_dependencies():
    program = (
        "import sys, sandbox_tools.agents.run_agent, sandbox_tools.agent_server.server\n"
        "print({'fastmcp', 'pydantic', 'claude_agent_sdk'} & sys.modules.keys())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output == b"set()\n"
