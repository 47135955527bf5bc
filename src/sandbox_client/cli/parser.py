"""What can be said to `sbx`. It is of the standard library alone, since every start pays for it."""

import argparse
from datetime import timedelta
from typing import Any

from sandbox_client.cli.arguments import (
    ENV,
    add_command,
    add_creation,
    add_everywhere,
    add_execution,
    add_following,
    add_port,
    add_sandbox,
    add_sandboxes,
    add_where,
    count,
    duration,
    pair,
)

Verbs = Any  # argparse's class for it is private

SHELLS = ("bash", "zsh", "fish", "tcsh")
SOURCES = ("events", "command", "terminal", "service", "agent")
STATES = "queued starting running pausing paused resuming stopping stopped failed".split()

_EPILOG = """\
A SANDBOX is named by its id, the end of its id, its session or its label `name` (`sbx create --name web`).

The server and the key are SANDBOX_SERVER_URL and SANDBOX_SERVER_API_KEY, or what `sbx login` wrote down.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sbx",
        description="Sandboxes, from a terminal.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_everywhere(parser)
    verbs = parser.add_subparsers(metavar="VERB", required=True, dest="verb")
    for add in _VERBS:
        add(verbs)
    return parser


def _verb(
    verbs: Verbs, name: str, does: str, run: str, *, takes_command: bool = False, **defaults: object
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    # Said before the verb it holds too, which a default here would take back.
    add_everywhere(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run, takes_command=takes_command, **defaults)
    return parser


def _create(verbs: Verbs) -> None:
    parser = _verb(verbs, "create", "create a sandbox and print its id", "sandboxes.create:create")
    add_creation(parser, timeout="--timeout")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait",
        type=duration,
        metavar="D",
        help="how long to wait until it runs; else as long as it takes",
    )
    waiting.add_argument("--no-wait", action="store_true", help="print the id at once")


def _run(verbs: Verbs) -> None:
    does = "create a sandbox, run a command in it, delete it"
    parser = _verb(verbs, "run", does, "sandboxes.create:run", takes_command=True, fails_with=125)
    add_creation(parser, timeout="--sandbox-timeout")
    add_execution(parser)
    parser.add_argument(
        "--wait", type=duration, metavar="D", help="how long to wait for the sandbox"
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the sandbox")
    add_command(parser, help="best after --")
    parser.set_defaults(detach=False, no_wait=False, attach=None, command_env=[])


def _ls(verbs: Verbs) -> None:
    parser = _verb(verbs, "ls", "list sandboxes; with -q their ids alone", "sandboxes.listing:ls")
    parser.add_argument("-a", "--all", action="store_true", help="those that have ended too")
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)  # for completion
    parser.add_argument("--state", action="append", choices=STATES, help="those in this state")
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=pair,
        metavar="K=V",
        help="those with this label",
    )


def _show(verbs: Verbs) -> None:
    add_sandbox(_verb(verbs, "show", "tell all about a sandbox", "sandboxes.listing:show"))


def _exec(verbs: Verbs) -> None:
    does = "run a command in a sandbox; several words are its arguments, one is a line for a shell"
    parser = _verb(verbs, "exec", does, "commands.exec:exec_", takes_command=True, fails_with=125)
    parser.set_defaults(attach=None, keep=True)
    add_execution(parser)
    parser.add_argument("-e", "--env", dest="command_env", **ENV)
    parser.add_argument(
        "-d", "--detach", action="store_true", help="print the command's id and leave it"
    )
    add_sandbox(parser)
    add_command(parser, help="best after --")


def _shell(verbs: Verbs) -> None:
    does = "open a terminal in a sandbox; ~. at the start of a line leaves it"
    parser = _verb(verbs, "shell", does, "commands.shell:shell", takes_command=True, fails_with=125)
    add_where(parser)
    parser.add_argument("-e", "--env", dest="command_env", **ENV)
    parser.add_argument(
        "--attach", metavar="TERMINAL", help="one that was left, in place of a new one"
    )
    add_sandbox(parser)
    add_command(parser, help="in place of a login shell")


def _cp(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "cp",
        "copy to or from a sandbox: SANDBOX:PATH is there, - is stdin or stdout",
        "files.cp:cp",
    )
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="a directory with all in it; with - as tar"
    )
    parser.add_argument("-u", "--user", help="the sandbox's user to do it as")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")


def _tail(verbs: Verbs) -> None:
    does = "show what a command writes until it ends, and exit as it does"
    parser = _verb(verbs, "tail", does, "commands.tail:tail")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-n", "--lines", type=count, default=10, metavar="N", help="begin so many lines before now"
    )
    amount.add_argument(
        "-c", "--bytes", type=count, metavar="N", help="begin so many bytes before now"
    )
    amount.add_argument("--from-start", action="store_true", help="begin with all that is kept")
    add_sandbox(parser)
    parser.add_argument("command_id", nargs="?", metavar="COMMAND_ID", help="else the newest")


def _logs(verbs: Verbs) -> None:
    does = "tell what happened to sandboxes and what ran in them"
    parser = _verb(verbs, "logs", does, "logs.logs:logs")
    add_following(parser)
    parser.add_argument(
        "--source", action="append", default=[], choices=SOURCES, help="only what comes from there"
    )
    add_sandboxes(parser)


def _events(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "events", "tell what happened to one sandbox, or to all", "logs.logs:events"
    )
    add_following(parser)
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        dest="types",
        metavar="TYPE",
        help="such as sandbox.failed",
    )
    add_sandbox(parser, nargs="?")


def _pause(verbs: Verbs) -> None:
    does = "freeze sandboxes; memory and files stay"
    add_sandboxes(_verb(verbs, "pause", does, "sandboxes.lifecycle_verbs:pause"))


def _resume(verbs: Verbs) -> None:
    add_sandboxes(
        _verb(verbs, "resume", "let paused sandboxes run on", "sandboxes.lifecycle_verbs:resume")
    )


def _rm(verbs: Verbs) -> None:
    add_sandboxes(
        _verb(verbs, "rm", "end sandboxes, and all that is in them", "sandboxes.lifecycle_verbs:rm")
    )


def _port(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "port", "tell where a port of a sandbox is reached", "sandboxes.ports:port"
    )
    add_port(parser)
    parser.add_argument(
        "--link",
        nargs="?",
        type=duration,
        const=timedelta(hours=1),
        metavar="D",
        help="make a link that needs no key, for so long; else for an hour",
    )


def _open(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "open", "open a port of a sandbox in the browser", "sandboxes.ports:open_"
    )
    add_port(parser)
    parser.add_argument("--path", help="what to open there, such as /docs")


def _login(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "login",
        "write down where the server is, and the key it is asked with",
        "login:login",
    )
    parser.add_argument("server", nargs="?", metavar="URL")


def _completion(verbs: Verbs) -> None:
    does = "print what completes words in a shell"
    parser = _verb(verbs, "completion", does, "completion:completion")
    parser.add_argument("shell", choices=SHELLS)


def _workspace(verbs: Verbs) -> None:
    verbs.add_parser("workspace", help="work on a directory in a sandbox: see sbx workspace --help")


_VERBS = (
    _create, _run, _ls, _show, _exec, _shell, _cp, _tail, _logs, _events,
    _pause, _resume, _rm, _port, _open, _workspace, _login, _completion,
)  # fmt: skip
