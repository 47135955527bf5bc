from collections.abc import Container

from sandbox_tools.coding_agents.prompts import Prompt, Refused


def refuse(agent: str, prompt: Prompt, *options: str, modes: Container[str]) -> None:
    """Refuse what a program cannot be told: left out in silence, it would do more than it was allowed."""
    for option in options:
        if getattr(prompt, option) is not None:
            raise Refused("unsupported", f"{agent} cannot be told `{option}`. Leave it out.")
    if prompt.permission_mode not in modes:
        raise Refused(
            "unsupported", f"{agent} has no permission mode like {prompt.permission_mode}."
        )
