"""The argument parser of `sbx`. Standard library only, to keep the start fast."""

import argparse
from collections.abc import Sequence
from datetime import timedelta

from sandbox_client.cli.arguments import (
    ENV,
    VerbParser,
    Verbs,
    add_code,
    add_command,
    add_creation,
    add_everywhere,
    add_execution,
    add_following,
    add_port,
    add_sandbox,
    add_sandboxes,
    add_verb,
    add_where,
    count,
    duration,
    pair,
)
from sandbox_client.cli.browser_verbs import add_browser_verbs
from sandbox_client.cli.desktop_verbs import add_desktop_verbs
from sandbox_client.cli.task_verbs import add_forge_verbs, add_repository_verbs, add_task_verbs

SHELLS = ("bash", "zsh", "fish", "tcsh")
SOURCES = ("events", "command", "terminal", "service", "agent", "code")
STATES = "queued starting running pausing paused resuming stopping stopped failed".split()

_EPILOG = """\
SANDBOX is a sandbox's id, the last characters of its id, its session, or its name (`sbx create --name web`).

The server URL and the API key are read from SANDBOX_SERVER_URL and SANDBOX_SERVER_API_KEY, or from the file that
`sbx login` saves. Options may stand before or after the command. DURATION is 90s, 15m, 2h, 1h30m or 7d.
"""


def build_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Build the parser; subcommands of a group that is not among the words are left out, which saves time."""
    parser = argparse.ArgumentParser(
        prog="sbx",
        description="Manage sandboxes on a sandbox server.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_everywhere(parser)
    verbs = parser.add_subparsers(
        metavar="COMMAND", required=True, dest="verb", parser_class=VerbParser
    )
    for add in _VERBS:
        add(verbs)
    for name, add_group in _GROUPS.items():
        add_group(verbs, is_named=words is None or name in words)
    for add in _OF_SBX:
        add(verbs)
    return parser


def _create(verbs: Verbs) -> None:
    parser = add_verb(
        verbs, "create", "create a sandbox and print its id", "sandboxes.create:create"
    )
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
    parser = add_verb(
        verbs, "run", does, "sandboxes.create:run", takes_command=True, fails_with=125
    )
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
    parser = add_verb(verbs, "ls", "list sandboxes; with -q only their ids", "sandboxes.listing:ls")
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
        add_verb(
            verbs,
            "show",
            "show the details and the latest events of a sandbox",
            "sandboxes.listing:show",
        )
    )


def _exec(verbs: Verbs) -> None:
    does = "run a command in a sandbox; a single word is run by the shell, several words are run as they are"
    parser = add_verb(
        verbs, "exec", does, "commands.exec:exec_", takes_command=True, fails_with=125
    )
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


def _code(verbs: Verbs) -> None:
    does = "run code in the interpreter of a sandbox, from a file, -c or stdin; variables stay for later calls"
    parser = add_verb(verbs, "code", does, "commands.code:run_code", fails_with=125)
    add_sandbox(parser)
    add_code(parser)


def _shell(verbs: Verbs) -> None:
    does = "open a terminal in a sandbox; type ~. at the start of a line to detach"
    parser = add_verb(
        verbs, "shell", does, "commands.shell:shell", takes_command=True, fails_with=125
    )
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
    parser = add_verb(
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
    parser = add_verb(verbs, "tail", does, "commands.tail:tail")
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
    parser = add_verb(verbs, "logs", does, "logs.logs:logs")
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
    parser = add_verb(verbs, "events", "show events of one sandbox, or of all", "logs.logs:events")
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
    add_sandboxes(add_verb(verbs, "pause", does, "sandboxes.lifecycle_verbs:pause"))


def _resume(verbs: Verbs) -> None:
    add_sandboxes(
        add_verb(verbs, "resume", "resume paused sandboxes", "sandboxes.lifecycle_verbs:resume")
    )


def _rm(verbs: Verbs) -> None:
    add_sandboxes(
        add_verb(verbs, "rm", "delete sandboxes and their files", "sandboxes.lifecycle_verbs:rm")
    )


def _port(verbs: Verbs) -> None:
    parser = add_verb(verbs, "port", "print the URL of a port of a sandbox", "sandboxes.ports:port")
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
    parser = add_verb(
        verbs, "open", "open a port of a sandbox in a browser", "sandboxes.ports:open_"
    )
    add_port(parser)
    parser.add_argument("--path", help="path to open, for example /docs")


def _login(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "login",
        "save the server URL and an API key",
        "login:login",
    )
    parser.add_argument("server", nargs="?", metavar="URL", help="server URL")


def _completion(verbs: Verbs) -> None:
    does = "print a completion script for a shell"
    parser = add_verb(verbs, "completion", does, "completion:completion")
    parser.add_argument("shell", choices=SHELLS)


def _workspace(verbs: Verbs) -> None:
    verbs.add_parser(
        "workspace",
        help="synchronize a project directory with a sandbox (see sbx workspace --help)",
    )


_VERBS = (
    _create, _run, _ls, _show, _exec, _code, _shell, _cp, _tail, _logs, _events, _pause, _resume, _rm, _port, _open,
)  # fmt: skip
_GROUPS = {
    "desktop": add_desktop_verbs,
    "browser": add_browser_verbs,
    "task": add_task_verbs,
    "repo": add_repository_verbs,
    "forge": add_forge_verbs,
}
_OF_SBX = (_workspace, _login, _completion)
