import importlib
import shutil
from importlib.util import find_spec

from sandbox_tools.coding_agents.agent import Agent

# Imported when asked for: the SDK alone takes 50 MB, which an idle agent server does not need.
_PROGRAMS = {
    "claude": ("claude", "Claude"),
    "codex": ("codex", "Codex"),
    "copilot": ("copilot", "Copilot"),
    "gemini": ("gemini", "Gemini"),
    "opencode": ("opencode", "Opencode"),
}


def make(agent: str) -> Agent:
    """Make what carries out one session's prompts."""
    module, name = _PROGRAMS[agent]
    made: Agent = getattr(importlib.import_module(f"{__name__}.{module}"), name)()
    return made


def is_installed(agent: str) -> bool:
    """Tell whether the sandbox has this agent."""
    if agent == "claude":
        return find_spec("claude_agent_sdk") is not None
    return shutil.which(agent) is not None


def installed_agents() -> list[str]:
    return [agent for agent in _PROGRAMS if is_installed(agent)]
