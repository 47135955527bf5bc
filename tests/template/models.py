"""A model on a sandbox's own loopback, and what leads the agents in there to it."""

import json
import shlex
from dataclasses import dataclass

from tests.engine.engine_process import REPOSITORY

PROGRAM = REPOSITORY / "tests/tools/model_endpoint.py"
PORT = 18080
URL = f"http://127.0.0.1:{PORT}"
ENVS = {
    "ANTHROPIC_BASE_URL": URL,
    "ANTHROPIC_API_KEY": "none",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENAI_API_KEY": "none",
    "COPILOT_PROVIDER_TYPE": "anthropic",
    "COPILOT_PROVIDER_BASE_URL": URL,
    "COPILOT_PROVIDER_API_KEY": "none",
    "COPILOT_MODEL": "claude-sonnet-4",
    "GOOGLE_GEMINI_BASE_URL": URL,
    "GEMINI_API_KEY": "none",
    "OPENCODE_CONFIG_CONTENT": json.dumps(
        {"provider": {"anthropic": {"options": {"baseURL": f"{URL}/v1"}}}}
    ),
}

# With an address of a model Gemini takes itself for a gateway's client, and refuses to be one, unless it is told what it is.
OWN_KEY_FOR_GEMINI = """
jq '.security.auth.selectedType = "gemini-api-key"' ~/.gemini/settings.json >/tmp/gemini.json
mv /tmp/gemini.json ~/.gemini/settings.json
"""

CODEX_SETTINGS = "/home/user/.codex/config.toml"
# One that is given tools as functions; newer ones write programs that call them.
_CODEX_MODEL = 'model = "gpt-5"\nmodel_provider = "fake"\n'
_CODEX_PROVIDER = f"""
[model_providers.fake]
name = "fake"
base_url = "{URL}/v1"
env_key = "OPENAI_API_KEY"
wire_api = "responses"
"""


@dataclass(frozen=True)
class Agent:
    """How an agent calls the tool `read_file` of the sandbox's tool server, and which model it is to name."""

    name: str
    reading: str
    model: str | None = None

    def order(self, path: str) -> str:
        """Tell the model to have this agent read a file by the tool server."""
        return f"model, use: {self.reading} {json.dumps({'path': path})}"


CLAUDE = Agent("claude", "mcp__sandbox__read_file")
CODEX = Agent("codex", "mcp__sandbox/read_file")
AGENTS = (
    CLAUDE,
    CODEX,
    Agent("copilot", "sandbox-read_file"),
    Agent("gemini", "mcp_sandbox_read_file", "gemini-2.5-flash"),
    Agent("opencode", "sandbox_read_file", "anthropic/claude-sonnet-4-5"),
)


def with_model(codex_settings: str) -> str:
    """Give Codex's settings with the model among them; Codex alone is led to one by a file."""
    return f"{_CODEX_MODEL}{codex_settings}{_CODEX_PROVIDER}"


def setup(program: str) -> str:
    """Write the script that runs the model in a sandbox, and leads the agents there to it."""
    return f"""
    tmux -L model new-session -d "python {program} {PORT}"
    {{ printf %s {shlex.quote(_CODEX_MODEL)}; cat {CODEX_SETTINGS}; printf %s {shlex.quote(_CODEX_PROVIDER)}; }} >/tmp/codex.toml
    mv /tmp/codex.toml {CODEX_SETTINGS}
    {OWN_KEY_FOR_GEMINI}
    timeout 90 sh -c 'until curl --silent {URL}; do sleep 0.25; done'"""
