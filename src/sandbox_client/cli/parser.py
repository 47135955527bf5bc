"""What can be said to `sbx`. It is of the standard library alone, since every start pays for it."""

import argparse
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandbox_client.cli.durations import read_duration

SHELLS = ("bash", "zsh", "fish", "tcsh")
SOURCES = ("events", "command", "terminal", "service", "agent")
STATES = (
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "resuming",
    "stopping",
    "stopped",
    "failed",
)

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
    _add_everywhere(parser)
    verbs = parser.add_subparsers(metavar="VERB", required=True, dest="verb")
    for add in _VERBS:
        add(verbs)
    return parser


def _add_everywhere(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument("--url", metavar="URL", help="where the server is", **default)
    parser.add_argument("--json", action="store_true", help="print what the API answers", **default)
    parser.add_argument("--no-color", action="store_true", help="print no colours", **default)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="say only what matters", **default
    )


Verbs = Any  # argparse's class for it is private


def _verb(
    verbs: Verbs, name: str, does: str, run: str, *, takes_command: bool = False, **defaults: object
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    # Said before the verb it holds too, which a default here would take back.
    _add_everywhere(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run, takes_command=takes_command, **defaults)
    return parser


def _add_sandbox(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("sandbox", metavar="SANDBOX", **options)


def _add_command(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("command", nargs="*", metavar="COMMAND", **options)


def _add_sandboxes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandboxes", metavar="SANDBOX", nargs="+")


def _create(verbs: Verbs) -> None:
    parser = _verb(verbs, "create", "create a sandbox and print its id", "creating:create")
    _add_creation(parser, timeout="--timeout")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait",
        type=_duration,
        metavar="D",
        help="how long to wait until it runs; else as long as it takes",
    )
    waiting.add_argument("--no-wait", action="store_true", help="print the id at once")


def _run(verbs: Verbs) -> None:
    does = "create a sandbox, run a command in it, delete it"
    parser = _verb(verbs, "run", does, "creating:run", takes_command=True, fails_with=125)
    _add_creation(parser, timeout="--sandbox-timeout")
    _add_execution(parser)
    parser.add_argument(
        "--wait", type=_duration, metavar="D", help="how long to wait for the sandbox"
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the sandbox")
    _add_command(parser, help="best after --")
    parser.set_defaults(detach=False, no_wait=False, attach=None, command_env=[])


def _ls(verbs: Verbs) -> None:
    parser = _verb(verbs, "ls", "list sandboxes; with -q their ids alone", "listing:ls")
    parser.add_argument("-a", "--all", action="store_true", help="those that have ended too")
    parser.add_argument("--names", action="store_true", help=argparse.SUPPRESS)  # for completion
    parser.add_argument("--state", action="append", choices=STATES, help="those in this state")
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        type=_pair,
        metavar="K=V",
        help="those with this label",
    )


def _show(verbs: Verbs) -> None:
    _add_sandbox(_verb(verbs, "show", "tell all about a sandbox", "listing:show"))


def _exec(verbs: Verbs) -> None:
    does = "run a command in a sandbox; several words are its arguments, one is a line for a shell"
    parser = _verb(verbs, "exec", does, "executing:exec_", takes_command=True, fails_with=125)
    parser.set_defaults(attach=None, keep=True)
    _add_execution(parser)
    parser.add_argument("-e", "--env", dest="command_env", **_ENV)
    parser.add_argument(
        "-d", "--detach", action="store_true", help="print the command's id and leave it"
    )
    _add_sandbox(parser)
    _add_command(parser, help="best after --")


def _shell(verbs: Verbs) -> None:
    does = "open a terminal in a sandbox; ~. at the start of a line leaves it"
    parser = _verb(verbs, "shell", does, "shell:shell", takes_command=True, fails_with=125)
    _add_where(parser)
    parser.add_argument("-e", "--env", dest="command_env", **_ENV)
    parser.add_argument(
        "--attach", metavar="TERMINAL", help="one that was left, in place of a new one"
    )
    _add_sandbox(parser)
    _add_command(parser, help="in place of a login shell")


def _cp(verbs: Verbs) -> None:
    parser = _verb(
        verbs,
        "cp",
        "copy to or from a sandbox: SANDBOX:PATH is there, - is stdin or stdout",
        "copying:cp",
    )
    parser.add_argument(
        "-r", "--recursive", action="store_true", help="a directory with all in it; with - as tar"
    )
    parser.add_argument("-u", "--user", help="the sandbox's user to do it as")
    parser.add_argument("source", metavar="SOURCE")
    parser.add_argument("target", metavar="TARGET")


def _tail(verbs: Verbs) -> None:
    does = "show what a command writes until it ends, and exit as it does"
    parser = _verb(verbs, "tail", does, "tailing:tail")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument(
        "-n", "--lines", type=_count, default=10, metavar="N", help="begin so many lines before now"
    )
    amount.add_argument(
        "-c", "--bytes", type=_count, metavar="N", help="begin so many bytes before now"
    )
    amount.add_argument("--from-start", action="store_true", help="begin with all that is kept")
    _add_sandbox(parser)
    parser.add_argument("command_id", nargs="?", metavar="COMMAND_ID", help="else the newest")


def _logs(verbs: Verbs) -> None:
    does = "tell what happened to sandboxes and what ran in them"
    parser = _verb(verbs, "logs", does, "telling:logs")
    _add_following(parser)
    parser.add_argument(
        "--source", action="append", default=[], choices=SOURCES, help="only what comes from there"
    )
    _add_sandboxes(parser)


def _events(verbs: Verbs) -> None:
    parser = _verb(
        verbs, "events", "tell what happened to one sandbox, or to all", "telling:events"
    )
    _add_following(parser)
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        dest="types",
        metavar="TYPE",
        help="such as sandbox.failed",
    )
    _add_sandbox(parser, nargs="?")


def _add_following(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what happens from now on"
    )
    parser.add_argument(
        "-n", "--tail", type=_count, metavar="N", help="begin with the last so many"
    )


def _pause(verbs: Verbs) -> None:
    does = "freeze sandboxes; memory and files stay"
    _add_sandboxes(_verb(verbs, "pause", does, "turning:pause"))


def _resume(verbs: Verbs) -> None:
    _add_sandboxes(_verb(verbs, "resume", "let paused sandboxes run on", "turning:resume"))


def _rm(verbs: Verbs) -> None:
    _add_sandboxes(_verb(verbs, "rm", "end sandboxes, and all that is in them", "turning:rm"))


def _port(verbs: Verbs) -> None:
    parser = _verb(verbs, "port", "tell where a port of a sandbox is reached", "ports:port")
    _add_port(parser)
    parser.add_argument(
        "--link",
        nargs="?",
        type=_duration,
        const=timedelta(hours=1),
        metavar="D",
        help="make a link that needs no key, for so long; else for an hour",
    )


def _open(verbs: Verbs) -> None:
    parser = _verb(verbs, "open", "open a port of a sandbox in the browser", "ports:open_")
    _add_port(parser)
    parser.add_argument("--path", help="what to open there, such as /docs")


def _add_port(parser: argparse.ArgumentParser) -> None:
    _add_sandbox(parser)
    parser.add_argument("port", metavar="PORT", type=int)


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


def _add_creation(parser: argparse.ArgumentParser, *, timeout: str) -> None:
    add = parser.add_argument
    add("--template", metavar="T", help="what to make it from")
    add("--name", metavar="N", help="a name for it: the label `name`")
    add("-e", "--env", **_ENV)
    add("--metadata", action="append", default=[], type=_pair, metavar="K=V", help="a label")
    add(
        timeout,
        dest="sandbox_timeout",
        type=_duration,
        metavar="D",
        help="how long it may run: 90s, 15m, 2h, 7d",
    )
    add(
        "--idle",
        type=_duration,
        metavar="D",
        help="pause it when nothing happened in it for so long",
    )
    add("--on-timeout", choices=("pause", "delete"), help="what becomes of it when its time is up")
    add("--backend", metavar="B", help="at which provider")
    add("--session", metavar="S", help="the session it is for")
    add("--priority", type=int, metavar="P", help="who has a higher one comes first")
    add("--mcp-servers", type=Path, metavar="FILE", help="MCP servers of your own, as JSON")


def _add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-w", "--workdir", metavar="DIR", help="else the user's home")
    parser.add_argument("-u", "--user", help="else the template's")


def _add_execution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--interactive", action="store_true", help="pass stdin on")
    parser.add_argument("-t", "--tty", action="store_true", help="in a terminal")
    parser.add_argument(
        "--timeout", type=_duration, metavar="D", help="when to kill the command; it exits with 124"
    )
    _add_where(parser)


def _duration(text: str) -> timedelta:
    return _said(read_duration, text)


def _pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE.")
    return name, value


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number.")
    return int(text)


def _said(read: Callable[[str], timedelta], text: str) -> timedelta:
    try:
        return read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


_ENV: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "K[=V]",
    "help": "an environment variable; without a value the one that it has here",
}
