"""Arguments that several verbs have, and what may be said for them."""

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

from sandbox_client.cli.output.durations import parse_duration

ENV: dict[str, Any] = {
    "action": "append",
    "default": [],
    "metavar": "K[=V]",
    "help": "an environment variable; without a value the one that it has here",
}


def add_everywhere(parser: argparse.ArgumentParser, **default: Any) -> None:
    parser.add_argument("--url", metavar="URL", help="where the server is", **default)
    parser.add_argument("--json", action="store_true", help="print what the API answers", **default)
    parser.add_argument("--no-color", action="store_true", help="print no colours", **default)
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="say only what matters", **default
    )


def add_sandbox(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("sandbox", metavar="SANDBOX", **options)


def add_command(parser: argparse.ArgumentParser, **options: Any) -> None:
    parser.add_argument("command", nargs="*", metavar="COMMAND", **options)


def add_sandboxes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sandboxes", metavar="SANDBOX", nargs="+")


def add_following(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what happens from now on"
    )
    parser.add_argument("-n", "--tail", type=count, metavar="N", help="begin with the last N lines")


def add_port(parser: argparse.ArgumentParser) -> None:
    add_sandbox(parser)
    parser.add_argument("port", metavar="PORT", type=int)


def add_creation(parser: argparse.ArgumentParser, *, timeout: str) -> None:
    add = parser.add_argument
    add("--template", metavar="T", help="what to make it from")
    add("--name", metavar="N", help="a name for it: the label `name`")
    add("-e", "--env", **ENV)
    add("--metadata", action="append", default=[], type=pair, metavar="K=V", help="a label")
    add(
        timeout,
        dest="sandbox_timeout",
        type=duration,
        metavar="D",
        help="how long it may run: 90s, 15m, 2h, 7d",
    )
    add(
        "--idle",
        type=duration,
        metavar="D",
        help="pause it when nothing happened in it for so long",
    )
    add("--on-timeout", choices=("pause", "delete"), help="what becomes of it when its time is up")
    add("--backend", metavar="B", help="at which provider")
    add("--session", metavar="S", help="the session it is for")
    add("--priority", type=int, metavar="P", help="who has a higher one comes first")
    add("--mcp-servers", type=Path, metavar="FILE", help="MCP servers of your own, as JSON")


def add_where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w",
        "--workdir",
        metavar="DIR",
        help="working directory (default: the template's WORKDIR, else the user's home)",
    )
    parser.add_argument("-u", "--user", help="else the template's")


def add_execution(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-i", "--interactive", action="store_true", help="pass stdin on")
    parser.add_argument("-t", "--tty", action="store_true", help="in a terminal")
    parser.add_argument(
        "--timeout", type=duration, metavar="D", help="when to kill the command; it exits with 124"
    )
    add_where(parser)


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
        raise argparse.ArgumentTypeError(f"{text!r} is no number.")
    return int(text)
