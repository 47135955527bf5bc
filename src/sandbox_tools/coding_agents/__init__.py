import importlib
import shutil
from importlib.util import find_spec

from sandbox_tools.coding_agents.agent import Agent

# Imported on demand: the SDK alone takes 50 MB.
_PROGRAMS = {
    "claude": ("claude", "Claude"),
    "codex": ("codex", "Codex"),
    "copilot": ("copilot", "Copilot"),
    "gemini": ("gemini", "Gemini"),
    "opencode": ("opencode", "Opencode"),
}


def create_agent(agent: str) -> Agent:
    """Create the agent of one session."""
    module, name = _PROGRAMS[agent]
    made: Agent = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return made


def is_installed(agent: str) -> bool:
    """Check whether the agent is installed in this sandbox."""
    if agent == "claude":
        return find_spec("claude_agent_sdk") is not None
    return shutil.which(agent) is not None


def installed_agents() -> list[str]:
    return [agent for agent in _PROGRAMS if is_installed(agent)]
