import argparse
from collections.abc import Iterator

import shtab

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.parser import build_parser

# shtab's own support for command output would run the command when zsh loads the file.
_SANDBOXES = {
    "bash": "_sbx_sandboxes",
    "zsh": "_sbx_sandboxes",
    "fish": "(sbx ls --names 2>/dev/null)",
    "tcsh": "`sbx ls --names`",
    "preamble": {
        "bash": '_sbx_sandboxes() { compgen -W "$(sbx ls --names 2>/dev/null)" -- "$1"; }',
        "zsh": '_sbx_sandboxes() { compadd -- ${(f)"$(sbx ls --names 2>/dev/null)"} }',
    },
}
_OF = {
    "sandbox": _SANDBOXES,
    "sandboxes": _SANDBOXES,
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
