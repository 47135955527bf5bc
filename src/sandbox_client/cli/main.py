"""The command line `sbx`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from sandbox_client.cli.parser import build_parser

_SIGPIPE = 141  # the shell's exit code of a program that SIGPIPE killed
_INTERRUPTED = 130
_WORKSPACE = "workspace"
_STDOUT = 1


def main(words: Sequence[str] | None = None) -> int:
    """Run `sbx` and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _ended(sys.argv[1:] if words is None else words)
        sys.stdout.flush()
    except BrokenPipeError:  # as of `sbx logs | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDOUT)
        return _SIGPIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _ended(words: Sequence[str]) -> int:
    try:
        return _run(words)
    except SystemExit as ended:  # argparse has printed the message
        return ended.code if isinstance(ended.code, int) else 0


def _run(words: Sequence[str]) -> int:
    if words[:1] == [_WORKSPACE]:
        command = import_module("sandbox_client.workspace.command")
        ended: int = command.main(words[1:], program=f"sbx {_WORKSPACE}")
        return ended
    words, behind = _split(words)
    parser = build_parser(words)
    args, unknown = parser.parse_known_args(words)
    if unknown:
        hint = "; put -- before the command to run" if args.takes_command else ""
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if behind and not args.takes_command:
        parser.error(f"{args.verb} does not take a command after --")
    if args.takes_command:
        args.command += behind
    # Loading the client takes a tenth of a second, which help and usage errors do not need.
    _load_less()
    run: Callable[[argparse.Namespace], int] = import_module("sandbox_client.cli.dispatch").run
    return run(args)


def _load_less() -> None:
    """Spare a verb a third of its start."""
    # httpx loads click, rich and pygments for a command of its own, where they are installed.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    wire = import_module("sandbox_client.models.wire")
    for base in (wire.RequestModel, wire.ResponseModel):
        base.model_config["defer_build"] = True  # a verb uses few models


def _split(words: Sequence[str]) -> tuple[Sequence[str], list[str]]:
    """Split off the words after `--`."""
    if "--" not in words:
        return words, []
    end = words.index("--")
    return words[:end], [*words[end + 1 :]]
