import os
from collections.abc import Mapping

# What is about the process that asks, or the terminal it was started in, and not about what an agent is to work with.
_NOT_PASSED_ON = frozenset(
    "_ CLAUDECODE CLAUDE_CODE_ENTRYPOINT HOME HOSTNAME LOGNAME OLDPWD PATH PWD SHELL SHLVL TERM TMUX"
    " TMUX_PANE USER".split()
)
RUN_PREFIX = "SANDBOX_AGENT_RUN_"


def worth_passing_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Choose of a client's environment what the agent is to have: above all the API keys."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _NOT_PASSED_ON and not name.startswith(RUN_PREFIX)
    }


def of_agent(envs: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Put together the agent server's own, the sandbox's and the client's: the later wins."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
    own.pop("CLAUDECODE", None)
    # Without it Claude Code refuses to work without asking where it runs as root.
    return own | {"IS_SANDBOX": "1"} | dict(filter(_can_be_set, envs.items())) | dict(given)


def _can_be_set(variable: tuple[str, object]) -> bool:
    name, value = variable
    return isinstance(value, str) and bool(name) and "=" not in name and "\0" not in name + value
