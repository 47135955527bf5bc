"""Each coding agent has the sandbox's tool server by its own settings, with the token of the moment."""

import pytest

from tests.template import models
from tests.template.models import CLAUDE, CODEX

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module", autouse=True)
def settled(computer):
    """Change the token after the agents were installed: none may go by an older one."""
    computer.settle()


@pytest.fixture(scope="module")
def model(computer):
    """Run a model on the sandbox's loopback, which has agents call tools, and lead them to it."""
    computer.sandbox.files.write("/tmp/model_endpoint.py", models.PROGRAM.read_text())
    computer.sandbox.commands.run(
        f"python /tmp/model_endpoint.py {models.PORT}", background=True, timeout=0
    )
    settings = computer.run(f"cat {models.CODEX_SETTINGS}")
    computer.sandbox.files.write(models.CODEX_SETTINGS, models.with_model(settings))
    computer.wait(f"curl --silent {models.URL} >/dev/null")


@pytest.fixture
def told_file(computer):
    computer.run("echo 'written in the sandbox' >/workspace/told.txt")
    return "/workspace/told.txt"


def test_claude_code__is_connected_to_the_tool_server(computer):
    listed = computer.run("claude mcp list")
    assert "sandbox: http://127.0.0.1:6060/mcp/ (HTTP) - ✔ Connected" in listed


def test_claude_code__is_not_connected_without_a_token(full, computer_of):
    with computer_of(full) as fresh:
        assert "✔ Connected" not in fresh.run("claude mcp list")


@pytest.mark.parametrize("agent", ["opencode", "gemini"])
def test_agents__report_the_tool_server_as_connected(computer, agent):
    told = computer.run(f"{agent} mcp list 2>&1")
    assert "sandbox" in told
    assert "connected" in told.lower().replace("disconnected", "")


def test_copilot__has_the_tool_server_configured(computer):
    assert "sandbox (http)" in computer.run("copilot mcp list")


def test_codex__uses_the_tool_server(computer, model, told_file):
    command = "codex exec --json --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox"
    assert "written in the sandbox" in carry_out(computer, command, CODEX.order(told_file))


def test_claude_code__uses_the_tool_server(computer, model, told_file):
    command = "claude -p --permission-mode bypassPermissions"
    assert "written in the sandbox" in carry_out(computer, command, CLAUDE.order(told_file))


def carry_out(computer, command, order):
    return computer.run(f'{command} "$ORDER" </dev/null', timeout=180, ORDER=order, **models.ENVS)
