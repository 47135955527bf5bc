import argparse
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from pydantic import ValidationError

from sandbox_engine.doctor import (
    Finding,
    examine,
    examine_keeper,
    missing,
)
from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.log import configure_logging
from sandbox_engine.system.settings import Settings

_UNUSABLE = 78  # EX_CONFIG


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sandbox-engine` command."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    command, log_level = options.pop("command"), options.pop("log_level")
    provisional: bool = options.pop("provisional", False)
    try:
        settings = Settings(**{name: value for name, value in options.items() if value is not None})
    except ValidationError as error:
        parser.error(_explain(error))
    configure_logging(log_level)
    match command:
        case "serve":
            return _run(settings, "serve", provisional=provisional)
        case "reset":
            return _run(settings, "reset")
        case _:
            return _doctor(settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandbox-engine", description="Serve E2B's protocol on one Linux machine."
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('sandbox-server')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("serve", "serve sandboxes until stopped; sandboxes keep running"),
        ("doctor", "check the requirements of this machine"),
        ("reset", "delete every sandbox of this state directory"),
    ):
        command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
        command.add_argument("--log-level", default="INFO", metavar="LEVEL")
        for field, info in Settings.model_fields.items():
            command.add_argument(
                f"--{field.replace('_', '-')}", dest=field, help=info.description, metavar="VALUE"
            )
        if name == "serve":  # only for `sandbox-server serve`
            command.add_argument("--provisional", action="store_true", help=argparse.SUPPRESS)
    return parser


def _explain(error: ValidationError) -> str:
    def name(location: tuple[Any, ...]) -> str:
        return "--" + str(location[0]).replace("_", "-") if location else "settings"

    return "; ".join(f"{name(problem['loc'])}: {problem['msg']}" for problem in error.errors())


def _run(settings: Settings, work: str, **options: bool) -> int:
    lacking = missing(settings)
    if lacking:
        _print("This machine does not meet the engine's requirements:\n")
        _report(lacking)
        return _UNUSABLE
    # Imported late: these modules fail to load when a requirement is missing.
    serve = import_module("sandbox_engine.serve")
    uvloop = import_module("uvloop")
    try:
        uvloop.run(getattr(serve, work)(settings, **options))
    except EngineError as error:
        _print(f"The engine cannot start: {error}")
        return _UNUSABLE
    return 0


def _doctor(settings: Settings) -> int:
    findings = [*examine(settings), *examine_keeper(settings)]
    _report(findings)
    lacking = [finding for finding in findings if finding.required and not finding.good]
    _print(
        "\nThis machine meets all requirements."
        if not lacking
        else "\nThis machine does not meet all requirements."
    )
    return _UNUSABLE if lacking else 0


def _report(findings: Iterable[Finding]) -> None:
    for finding in findings:
        mark = "ok  " if finding.good else "MISS" if finding.required else "low "
        _print(f"  {mark}  {finding.name}: {finding.detail}")
        if not finding.good:
            _print(f"        -> {finding.fix}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
