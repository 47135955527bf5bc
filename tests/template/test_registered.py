"""Each coding agent has the sandbox's tool server by its own settings, with the token of the moment."""

import json

import pytest

from tests.engine.process import REPOSITORY

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

MODEL = REPOSITORY / "tests/tools/agents/model_endpoint.py"
MODEL_URL = "http://127.0.0.1:18080"
# One that is given tools as functions; newer ones write programs that call them.
CODEX_MODEL = 'model = "gpt-5"\nmodel_provider = "fake"\n'
CODEX_PROVIDER = f"""
[model_providers.fake]
name = "fake"
base_url = "{MODEL_URL}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""
TOOLS = {"claude": "mcp__sandbox__read_file", "codex": "mcp__sandbox/read_file"}
KEYS = {
    "ANTHROPIC_BASE_URL": MODEL_URL,
    "ANTHROPIC_API_KEY": "none",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENAI_API_KEY": "none",
}


@pytest.fixture(scope="module", autouse=True)
def settled(computer):
    """Change the token after the agents were installed: none may go by an older one."""
    computer.settle()


@pytest.fixture(scope="module")
def model(computer):
    """Run a model on the sandbox's loopback, which has agents call tools, and lead them to it."""
    computer.sandbox.files.write("/tmp/model_endpoint.py", MODEL.read_text())
    port = MODEL_URL.rpartition(":")[2]
    computer.sandbox.commands.run(
        f"python /tmp/model_endpoint.py {port}", background=True, timeout=0
    )
    settings = computer.run("cat ~/.codex/config.toml")
    computer.sandbox.files.write(
        "/home/user/.codex/config.toml", f"{CODEX_MODEL}{settings}{CODEX_PROVIDER}"
    )
    computer.wait(f"curl --silent {MODEL_URL} >/dev/null")


@pytest.fixture
def order(computer):
    """Have a model have its agent read a file by the tool server, as its agent names the tool."""
    computer.run("echo 'written in the sandbox' >/workspace/told.txt")
    path = json.dumps({"path": "/workspace/told.txt"})
    return lambda agent: f"model, use: {TOOLS[agent]} {path}"


def test_claude_code_is_connected_to_the_tool_server(computer):
    listed = computer.run("claude mcp list")
    assert "sandbox: http://127.0.0.1:6060/mcp/ (HTTP) - ✔ Connected" in listed


def test_claude_code_is_not_connected_before_there_is_a_token(full, computer_of):
    with computer_of(full) as fresh:
        assert "✔ Connected" not in fresh.run("claude mcp list")


@pytest.mark.parametrize("agent", ["opencode", "gemini"])
def test_an_agent_says_that_it_is_connected(computer, agent):
    told = computer.run(f"{agent} mcp list 2>&1")
    assert "sandbox" in told
    assert "connected" in told.lower().replace("disconnected", "")


def test_copilot_knows_the_tool_server(computer):
    assert "sandbox (http)" in computer.run("copilot mcp list")


def test_codex_uses_a_tool_of_the_tool_server(computer, model, order):
    command = "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"
    said = computer.run(f'{command} "$ORDER" </dev/null', timeout=180, ORDER=order("codex"), **KEYS)
    assert "written in the sandbox" in said


def test_claude_code_uses_a_tool_of_the_tool_server(computer, model, order):
    command = "claude -p --permission-mode bypassPermissions"
    said = computer.run(
        f'{command} "$ORDER" </dev/null', timeout=180, ORDER=order("claude"), **KEYS
    )
    assert "written in the sandbox" in said


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_agent_server_has_an_agent_use_the_tool_server(computer, model, order, agent):
    run = json.dumps({"agent": agent, "prompt": order(agent)})
    said = computer.run(
        "sandbox-tools run-agent </dev/null", timeout=180, **KEYS, SANDBOX_AGENT_RUN_0=run
    )
    result = json.loads(said.splitlines()[-1])
    assert result["type"] == "result"
    assert result["state"] == "succeeded", result
    assert "written in the sandbox" in result["output"]
