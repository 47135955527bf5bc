"""The argument parser of `sbx`. Standard library only, to keep the start fast."""

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
SANDBOX is a sandbox's id, the last characters of its id, its session, or its name (`sbx create --name web`).

The server URL and the API key are read from SANDBOX_SERVER_URL and SANDBOX_SERVER_API_KEY, or from the file that
`sbx login` saves. Options may stand before or after the command. DURATION is 90s, 15m, 2h, 1h30m or 7d.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sbx",
        description="Manage sandboxes on a sandbox server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_everywhere(parser)
    verbs = parser.add_subparsers(metavar="COMMAND", required=True, dest="verb")
    for add in _VERBS:
        add(verbs)
    return parser


def _verb(
    verbs: Verbs, name: str, does: str, run: str, *, takes_command: bool = False, **defaults: object
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    # No default here: it would override an option given before the subcommand.
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
        metavar="DURATION",
        help="maximum time to wait until the sandbox runs (default: no limit)",
    )
    waiting.add_argument(
        "--no-wait",
        action="store_true",
        help="print the id immediately; do not wait until the sandbox runs",
    )


def _run(verbs: Verbs) -> None:
    does = "run a command in a new sandbox, then delete the sandbox"
    parser = _verb(verbs, "run", does, "sandboxes.create:run", takes_command=True, fails_with=125)
    add_creation(parser, timeout="--sandbox-timeout")
    add_execution(parser)
    parser.add_argument(
        "--wait",
        type=duration,
        metavar="DURATION",
        help="maximum time to wait for the sandbox (default: no limit)",
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the sandbox")
    add_command(parser, help="command and arguments, preferably after --")
    parser.set_defaults(detach=False, no_wait=False, attach=None, command_env=[])


def _ls(verbs: Verbs) -> None:
    parser = _verb(verbs, "ls", "list sandboxes; with -q only their ids", "sandboxes.listing:ls")
    parser.add_argument(
        "-a", "--all", action="store_true", help="include deleted and failed sandboxes"
    )
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)  # for completion
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only sandboxes in this state (repeatable)"
    )
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=pair,
        metavar="K=V",
        help="only sandboxes with this label (repeatable)",
    )


def _show(verbs: Verbs) -> None:
    add_sandbox(
        _verb(
            verbs,
            "show",
            "show the details and the latest events of a sandbox",
            "sandboxes.listing:show",
        )
    )


def _exec(verbs: Verbs) -> None:
    does = "run a command in a sandbox; a single word is run by the shell, several words are run as they are"
    parser = _verb(verbs, "exec", does, "commands.exec:exec_", takes_command=True, fails_with=125)
    parser.set_defaults(attach=None, keep=True)
    add_execution(parser)
    parser.add_argument("-e", "--env", dest="command_env", **ENV)
    parser.add_argument(
        "-d",
        "--detach",
        action="store_true",
        help="run in the background and print the command's id",
    )
    add_sandbox(parser)
    add_command(parser, help="command and arguments, preferably after --")


def _shell(verbs: Verbs) -> None:
    does = "open a terminal in a sandbox; type ~. at the start of a line to detach"
    parser = _verb(verbs, "shell", does, "commands.shell:shell", takes_command=True, fails_with=125)
    add_where(parser)
    parser.add_argument("-e", "--env", dest="command_env", **ENV)
    parser.add_argument(
        "--attach",
        metavar="TERMINAL",
        help="attach to an existing terminal instead of opening a new one",
    )
    add_sandbox(parser)
    add_command(parser, help="command to run (default: a login shell)")


def _cp(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "cp",
        "copy files between this machine and a sandbox; - means stdin or stdout",
        "files.cp:cp",
    )
    parser.add_argument(
        "-r",
        "--recursive",
        action="store_true",
        help="copy directories recursively; with -, as a tar archive",
    )
    parser.add_argument("-u", "--user", help="user in the sandbox (default: the template's)")
    parser.add_argument("source", metavar="SOURCE", help="PATH or SANDBOX:PATH")
    parser.add_argument("target", metavar="TARGET", help="PATH or SANDBOX:PATH")


def _tail(verbs: Verbs) -> None:
    does = "follow the output of a command until it exits, then exit with its exit code"
    parser = _verb(verbs, "tail", does, "commands.tail:tail")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-n",
        "--lines",
        type=count,
        default=10,
        metavar="N",
        help="start with the last N lines (default: 10)",
    )
    amount.add_argument(
        "-c", "--bytes", type=count, metavar="N", help="start with the last N bytes"
    )
    amount.add_argument(
        "--from-start", action="store_true", help="start with the oldest output that is kept"
    )
    add_sandbox(parser)
    parser.add_argument(
        "command_id",
        nargs="?",
        metavar="COMMAND_ID",
        help="id of the command or its last characters (default: the latest command)",
    )


def _logs(verbs: Verbs) -> None:
    does = "show events of sandboxes and the output of their commands"
    parser = _verb(verbs, "logs", does, "logs.logs:logs")
    add_following(parser)
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        choices=SOURCES,
        help="only entries of this source (repeatable)",
    )
    add_sandboxes(parser)


def _events(verbs: Verbs) -> None:
    parser = _verb(verbs, "events", "show events of one sandbox, or of all", "logs.logs:events")
    add_following(parser)
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        dest="types",
        metavar="TYPE",
        help="only events of this type, for example sandbox.failed (repeatable)",
    )
    add_sandbox(parser, nargs="?")


def _pause(verbs: Verbs) -> None:
    does = "pause sandboxes; their memory and files are kept"
    add_sandboxes(_verb(verbs, "pause", does, "sandboxes.lifecycle_verbs:pause"))


def _resume(verbs: Verbs) -> None:
    add_sandboxes(
        _verb(verbs, "resume", "resume paused sandboxes", "sandboxes.lifecycle_verbs:resume")
    )


def _rm(verbs: Verbs) -> None:
    add_sandboxes(
        _verb(verbs, "rm", "delete sandboxes and their files", "sandboxes.lifecycle_verbs:rm")
    )


def _port(verbs: Verbs) -> None:
    parser = _verb(verbs, "port", "print the URL of a port of a sandbox", "sandboxes.ports:port")
    add_port(parser)
    parser.add_argument(
        "--link",
        nargs="?",
        type=duration,
        const=timedelta(hours=1),
        metavar="DURATION",
        help="create a link that works without an API key (default: for 1h)",
    )


def _open(verbs: Verbs) -> None:
    parser = _verb(verbs, "open", "open a port of a sandbox in a browser", "sandboxes.ports:open_")
    add_port(parser)
    parser.add_argument("--path", help="path to open, for example /docs")


def _login(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "login",
        "save the server URL and an API key",
        "login:login",
    )
    parser.add_argument("server", nargs="?", metavar="URL", help="server URL")


def _completion(verbs: Verbs) -> None:
    does = "print a completion script for a shell"
    parser = _verb(verbs, "completion", does, "completion:completion")
    parser.add_argument("shell", choices=SHELLS)


def _workspace(verbs: Verbs) -> None:
    verbs.add_parser(
        "workspace",
        help="synchronize a project directory with a sandbox (see sbx workspace --help)",
    )


_VERBS = (
    _create, _run, _ls, _show, _exec, _shell, _cp, _tail, _logs, _events,
    _pause, _resume, _rm, _port, _open, _workspace, _login, _completion,
)  # fmt: skip
