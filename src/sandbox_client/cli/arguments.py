"""Arguments shared by several subcommands, and their types."""

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandbox_client.cli.output.durations import parse_duration

Verbs = Any  # argparse's class for it is private

ENV: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "K[=V]",
    "help": "set an environment variable; without a value, take it from this environment (repeatable)",
}


class VerbParser(argparse.ArgumentParser):
    """Accepts options also between a positional argument and an optional one that follows it.

    argparse itself takes the second one as missing as soon as it has read the first.
    """

    _is_intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_intermixing or not self._has_optional_positional():
            return super().parse_known_args(args, namespace)
        self._is_intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False

    def _has_optional_positional(self) -> bool:
        return any(action.nargs == "?" for action in self._get_positional_actions())


def add_everywhere(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument("--url", metavar="URL", help="server URL", **default)
    parser.add_argument(
        "--json", action="store_true", help="print JSON as returned by the API", **default
    )
    parser.add_argument("--no-color", action="store_true", help="disable colors", **default)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="print only results and errors", **default
    )


def add_verb(
    verbs: Verbs, name: str, does: str, run: str, *, takes_command: bool = False, **defaults: object
) -> argparse.ArgumentParser:
    """Add a subcommand; `run` is `module:function` in this package."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    # No default here: it would override an option given before the subcommand.
    add_everywhere(parser, default=argparse.SUPPRESS)
    parser.set_defaults(run=run, takes_command=takes_command, **defaults)
    return parser


def add_sandbox(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("sandbox", metavar="SANDBOX", **options)


def add_command(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("command", nargs="*", metavar="COMMAND", **options)


def add_sandboxes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandboxes", metavar="SANDBOX", nargs="+")


def add_following(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="keep running and print new entries"
    )
    parser.add_argument("-n", "--tail", type=count, metavar="N", help="start with the last N lines")


def add_port(parser: argparse.ArgumentParser) -> None:
    add_sandbox(parser)
    parser.add_argument("port", metavar="PORT", type=int)


def add_creation(parser: argparse.ArgumentParser, *, timeout: str) -> None:
    add = parser.add_argument
    add("--template", metavar="TEMPLATE", help="template (default: the server's default template)")
    add(
        "--capability",
        action="append",
        default=[],
        metavar="CAPABILITY",
        help="capability that the template must have, like desktop or browser; may be repeated",
    )
    add("--name", metavar="NAME", help="name of the sandbox (the label `name`)")
    add("-e", "--env", **ENV)
    add(
        "--metadata",
        action="append",
        default=[],
        type=pair,
        metavar="K=V",
        help="set a label (repeatable)",
    )
    add(
        timeout,
        dest="sandbox_timeout",
        type=duration,
        metavar="DURATION",
        help="lifetime of the sandbox: 90s, 15m, 2h, 7d",
    )
    add(
        "--idle",
        type=duration,
        metavar="DURATION",
        help="pause the sandbox after this time without activity",
    )
    add("--on-timeout", choices=("pause", "delete"), help="what happens at the end of its lifetime")
    add("--backend", metavar="BACKEND", help="backend to run it on")
    add("--session", metavar="SESSION", help="session it belongs to")
    add("--priority", type=int, metavar="N", help="priority in the queue; higher runs first")
    add("--mcp-servers", type=Path, metavar="FILE", help="JSON file with additional MCP servers")
    add("--repository", metavar="OWNER/NAME", help="check out this repository in the sandbox")
    add("--ref", metavar="BRANCH", help="branch of the repository to start from")
    add("--branch", metavar="BRANCH", help="branch to create in the checkout")
    add("--push", action="store_true", help="let `git push` of --branch reach the forge")


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w",
        "--workdir",
        metavar="DIR",
        help="working directory (default: the template's WORKDIR, else the user's home)",
    )
    parser.add_argument("-u", "--user", help="user in the sandbox (default: the template's)")


def add_execution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i", "--interactive", action="store_true", help="pass stdin to the command"
    )
    parser.add_argument("-t", "--tty", action="store_true", help="run the command in a terminal")
    parser.add_argument(
        "--timeout",
        type=duration,
        metavar="DURATION",
        help="kill the command after this time and exit with 124",
    )
    add_where(parser)


def add_code(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", type=Path, metavar="FILE", help="file with the code (default: stdin)")
    add("-c", dest="code", metavar="CODE", help="code to run")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--language", help="default: that of the file's name, else python")
    where.add_argument("--context", metavar="ID", help="context to run the code in")
    add("-e", "--env", dest="command_env", **ENV)
    add(
        "--timeout",
        type=duration,
        metavar="DURATION",
        help="interrupt the code after this time and exit with 124 (default: 5m)",
    )
    add("--save", type=Path, metavar="DIR", help="write figures to files in this directory")


def duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def pair(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE.")
    return name, value


def count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number.")
    return int(text)
