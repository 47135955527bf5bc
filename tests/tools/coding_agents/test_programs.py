"""Each agent's real program, with a model on loopback that has it run a command, and call a tool of the sandbox's tool server."""

import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.node_packages import NODE, install
from tests.tools.agent_server_process import AgentServer
from tests.tools.model_endpoint import ModelEndpoint
from tests.tools.tool_server_process import ToolServer, started_tool_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Program:
    """Where an agent's program comes from, how it calls the tool `read_file`, and how it is led to the model."""

    agent: str
    package: str | None
    version: str
    reading: str
    model: str | None = None
    options: dict[str, object] = field(default_factory=dict)

    def variables(self, url: str) -> dict[str, str]:
        if self.agent == "copilot":
            return {
                "COPILOT_PROVIDER_TYPE": "anthropic",
                "COPILOT_PROVIDER_BASE_URL": url,
                "COPILOT_PROVIDER_API_KEY": "fake-key",
                "COPILOT_MODEL": "claude-sonnet-4",
            }
        if self.agent == "opencode":
            provider = {"anthropic": {"options": {"baseURL": f"{url}/v1"}}}
            return {"OPENCODE_CONFIG_CONTENT": json.dumps({"provider": provider})}
        if self.agent == "gemini":
            return {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "fake-key"}
        return {}

    def configure(self, home: Path, url: str, tools: ToolServer) -> None:
        """Write what the image, or a person, does."""
        if self.agent == "codex":
            file = home / ".codex/config.toml"
            file.parent.mkdir()
            file.write_text(
                'model_provider = "fake"\n[model_providers.fake]\nname = "fake"\n'
                f'base_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
            )
        if self.agent == "gemini":
            headers = {"Authorization": f"Bearer {tools.token}"}
            server = {"httpUrl": f"{tools.url}/mcp/", "headers": headers}
            file = home / ".gemini/settings.json"
            file.parent.mkdir()
            auth = {"auth": {"selectedType": "gemini-api-key"}}
            file.write_text(json.dumps({"mcpServers": {"sandbox": server}, "security": auth}))


PROGRAMS = [
    Program("claude", None, "", "mcp__sandbox__read_file"),
    Program("codex", "@openai/codex", "0.169.0", "mcp__sandbox/read_file", "fake-model"),
    Program("copilot", "@github/copilot", "1.0.102", "sandbox-read_file"),
    Program("gemini", "@google/gemini-cli", "0.61.0", "mcp_sandbox_read_file", "gemini-2.5-flash"),
    Program(
        "opencode", "opencode-ai", "1.18.33", "sandbox_read_file", "anthropic/claude-sonnet-4-5"
    ),
]


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.agent)
def program(request):
    return request.param


@pytest_asyncio.fixture
async def server(program, tmp_path, monkeypatch):
    if program.package:
        modules = install(program.package, program.version)
        # opencode's own is put into place by a script after its installation, which we have npm leave out.
        own = sorted(str(file.parent) for file in modules.glob("opencode-linux-*/bin/opencode"))
        places = [*own[:1], str(modules / ".bin"), str(NODE.parent), os.environ["PATH"]]
        monkeypatch.setenv("PATH", ":".join(places))
    async with started_tool_server(tmp_path) as tools:
        with ModelEndpoint() as model:
            server = AgentServer(tmp_path, model, token=tools.token)
            program.configure(server.home, model.url, tools)
            server.set(**program.variables(model.url))
            await server.start("--tool-server", f"{tools.url}/mcp/")
            try:
                yield server
            finally:
                await server.stop()


async def test_coding_agents__each_agent_runs_resumes_and_uses_the_tool_server(program, server):
    options = {"agent": program.agent, "model": program.model} | program.options
    async with server.client() as client:
        first = await client.prompt("model, run: echo made > made.txt; cat made.txt", **options)
        session = first[-1]["session_id"]
        secret = secrets.token_hex()
        (server.workspace / "secret.txt").write_text(secret)
        reading = f'model, use: {program.reading} {{"path": "secret.txt"}}'
        second = await client.prompt(reading, session_id=session, **options)
    assert first[-1]["state"] == "succeeded", first
    assert (server.workspace / "made.txt").read_text() == "made\n"
    assert first[-1]["changed_files"] == ["made.txt"]
    assert first[-1]["output"].startswith("1 prompts; the tool said: ")
    assert "made" in first[-1]["output"]
    assert second[-1]["output"].startswith("2 prompts; the tool said: ")
    assert secret in second[-1]["output"]
    assert server.token not in json.dumps([*first, *second])
