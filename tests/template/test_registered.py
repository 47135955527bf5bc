"""Each coding agent has the sandbox's tool server by its own settings, with the token of the moment."""

import json

import pytest

from tests.engine.process import REPOSITORY

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

MODEL = REPOSITORY / "tests/tools/agents/model_endpoint.py"
MODEL_PORT = 18080


@pytest.fixture(scope="module", autouse=True)
def settled(computer):
    """Change the token after the agents were installed, twice: none may go by an older one."""
    computer.settle()
    computer.settle()


@pytest.fixture(scope="module")
def model(computer):
    """Run a model on the sandbox's loopback, which has agents call tools."""
    computer.sandbox.files.write("/tmp/model_endpoint.py", MODEL.read_text())
    computer.sandbox.commands.run(
        f"python /tmp/model_endpoint.py {MODEL_PORT}", background=True, timeout=0
    )
    computer.wait(f"curl --silent http://127.0.0.1:{MODEL_PORT} >/dev/null")
    return f"http://127.0.0.1:{MODEL_PORT}"


def test_claude_code_is_connected_to_the_tool_server(computer):
    assert "sandbox: http://127.0.0.1:6060/mcp/ (HTTP) - ✔ Connected" in computer.run(
        "claude mcp list"
    )


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


def test_codex_uses_a_tool_of_the_tool_server(computer, model):
    computer.run("echo 'written in the sandbox' >/workspace/told.txt")
    order = json.dumps({"path": "/workspace/told.txt"})
    said = computer.run(
        "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox -c model_provider=fake"
        f' -c \'model_providers.fake={{name="fake",base_url="{model}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}\''
        f" 'model, use: mcp__sandbox__read_file {order}' </dev/null",
        timeout=180,
        OPENAI_API_KEY="none",
    )
    assert "written in the sandbox" in said


def test_claude_code_uses_a_tool_of_the_tool_server(computer, model):
    computer.run("echo 'written in the sandbox' >/workspace/told.txt")
    order = json.dumps({"path": "/workspace/told.txt"})
    said = computer.run(
        f"claude -p --permission-mode bypassPermissions 'model, use: mcp__sandbox__read_file {order}' </dev/null",
        timeout=180,
        ANTHROPIC_BASE_URL=model,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )
    assert "written in the sandbox" in said
