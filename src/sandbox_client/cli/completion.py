import argparse
from collections.abc import Iterator

import shtab

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.parser import build_parser


def _printed_by(name: str, command: str) -> dict[str, str | dict[str, str]]:
    """Complete the lines that a command prints. shtab's own support for this would run it when zsh loads the file."""
    function = f"_sbx_{name}"
    printed = f"{command} 2>/dev/null"
    return {
        "bash": function,
        "zsh": function,
        "fish": f"({printed})",
        "tcsh": f"`{command}`",
        "preamble": {
            "bash": f'{function}() {{ compgen -W "$({printed})" -- "$1"; }}',
            "zsh": f'{function}() {{ compadd -- ${{(f)"$({printed})"}} }}',
        },
    }


_SANDBOXES = _printed_by("sandboxes", "sbx ls --names")
_TASKS = _printed_by("tasks", "sbx -q task list --all")
_REPOSITORIES = _printed_by("repositories", "sbx -q repo list")
_FORGES = _printed_by("forges", "sbx -q forge list")
_BROWSERS = _printed_by("browsers", "sbx -q browser list")
_OF = {
    "browser": _BROWSERS,
    "browsers": _BROWSERS,
    "sandbox": _SANDBOXES,
    "sandboxes": _SANDBOXES,
    "task": _TASKS,
    "tasks": _TASKS,
    "repository": _REPOSITORIES,
    "repositories": _REPOSITORIES,
    "forge": _FORGES,
    "forges": _FORGES,
    "settings": shtab.FILE,
    "token_file": shtab.FILE,
    "private_key_file": shtab.FILE,
    "webhook_secret_file": shtab.FILE,
    "source": shtab.FILE,
    "target": shtab.FILE,
    "mcp_servers": shtab.FILE,
}


async def completion(invocation: Invocation) -> None:
    parser = build_parser()
    for action in _actions(parser):
        if action.dest in _OF and not action.choices:
            action.complete = _OF[action.dest]  # type: ignore[attr-defined]
    invocation.output.print(shtab.complete(parser, invocation.args.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to look at a parser
        yield action
        if isinstance(action.choices, dict):
            for verb in action.choices.values():
                yield from _actions(verb)
