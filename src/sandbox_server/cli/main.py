import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from sandbox_server.access.encryption import EncryptionKeyMissing, InvalidEncryptionKey
from sandbox_server.access.tenants import DEFAULT_TENANT
from sandbox_server.cli import database, keys, templates
from sandbox_server.db.account import CannotRunPostgres
from sandbox_server.db.address import UnusablePostgres
from sandbox_server.domain.access import Scope
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.templates import AGENT
from sandbox_server.settings import Settings, flags, variable_of
from sandbox_server.structured_logging import configure_logging
from sandbox_server.supervisor import raising
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.templates.bundled import UnusableTemplates

_UNUSABLE = 78  # EX_CONFIG
_INTERRUPTED = 130
_STATE = ("state_dir",)
_EXPLAINED = (
    CannotServe,
    CannotRunPostgres,
    UnusablePostgres,
    EncryptionKeyMissing,
    InvalidEncryptionKey,
    SandboxError,
    UnusableTemplates,
)

Command = Callable[[Settings, Mapping[str, Any]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sandbox-server` command."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    command: Command = given.pop("command")
    names = given.keys() & Settings.model_fields.keys()
    try:
        settings = Settings(**{name: given[name] for name in names if given[name] is not None})
    except ValidationError as error:
        parser.error(_explain(error))
    except SettingsError as error:
        parser.error(_explain_json(error))
    except OSError as error:  # of a file that holds a secret
        parser.error(f"{error.filename}: {error.strerror}")
    configure_logging(settings.log_level, style=settings.log_format, access_log=settings.access_log)
    try:
        return command(settings, given)
    except _EXPLAINED as error:
        sys.stderr.write(f"{error}\n")
        return _UNUSABLE
    except KeyboardInterrupt:
        return _INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandbox-server", description="Computers for AI agents, on your own machine."
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('sandbox-server')}"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    names = [name for name, _ in flags()]
    _add(commands, "serve", "serve until stopped", _serve, settings=names)
    _add(commands, "doctor", "check what the server needs here", _examine, settings=names)
    _add_keys(commands)
    _add_database(commands)
    _add_templates(commands)
    guard = commands.add_parser(raising.COMMAND)  # for `serve` alone, so without a word of help
    guard.add_argument("--directory", type=Path, required=True)
    guard.set_defaults(command=lambda _, given: raising.guard(given["directory"]))
    return parser


# What takes half a second to load is loaded for those alone who need it.
def _serve(settings: Settings, _given: Mapping[str, Any]) -> int:
    ended: int = import_module("sandbox_server.supervisor.serve").serve(settings)
    return ended


def _examine(settings: Settings, given: Mapping[str, Any]) -> int:
    ended: int = import_module("sandbox_server.cli.doctor").command(settings, given)
    return ended


def _add(
    commands: Any, name: str, text: str, command: Command, *, settings: Sequence[str]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text.capitalize()}."
    )
    for field in settings:
        parser.add_argument(
            f"--{field.replace('_', '-')}",
            dest=field,
            help=Settings.model_fields[field].description,
            metavar="VALUE",
        )
    parser.set_defaults(command=command)
    return parser


def _add_keys(commands: Any) -> None:
    group = _add_group(commands, "keys", "API keys, when no valid one is at hand")
    create = _add(group, "create", "make a key and print it", keys.create, settings=_STATE)
    create.add_argument("--tenant", default=DEFAULT_TENANT, help="Whose sandboxes it is for.")
    create.add_argument("--name", default="", help="What to list it as.")
    create.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        choices=list(Scope),
        help="What it may do; repeatable.",
    )
    create.add_argument("--max-priority", type=int, default=0, help="The highest it may ask for.")
    create.add_argument("--rate-per-s", type=float, help="Requests per second that it may make.")
    show = _add(group, "list", "list keys without their secrets", keys.show, settings=_STATE)
    show.add_argument("--tenant", help="Whose; none given: everybody's.")
    revoke = _add(group, "revoke", "end a key for good", keys.revoke, settings=_STATE)
    revoke.add_argument("id", metavar="ID", help="As `list` shows it.")


def _add_database(commands: Any) -> None:
    group = _add_group(commands, "db", "the database as a whole")
    for name, text, command in (
        ("upgrade", "bring the schema up to date", database.upgrade),
        ("check", "tell whether a server could work on it", database.check),
        ("backup", "print how to back it up", database.show_backup),
        ("rotate-encryption", "seal all secrets with a new key", database.rotate_encryption),
        ("new-installation", "cut a copy loose from the original", database.make_new_installation),
        ("forget-engine", "give up what was at an engine that is gone", database.forget_engine),
    ):
        _add(group, name, text, command, settings=_STATE)
    back = _add(
        group, "downgrade", "take the schema back to an older server's", database.take_back,
        settings=_STATE,
    )  # fmt: skip
    back.add_argument("revision", metavar="REVISION", help="As that server's `db check` says it.")


def _add_templates(commands: Any) -> None:
    group = _add_group(commands, "template", "the templates that come with the server")
    places = (*_STATE, "engine_dir", "template_dir")
    build = _add(group, "build", "build one and show how it goes", templates.build, settings=places)
    build.add_argument("name", nargs="?", default=AGENT, metavar="NAME", help="Which; `agent`.")
    build.add_argument("--backend", help="Where; the first provider if none is named.")
    build.add_argument("--force", action="store_true", help="Carry out every step anew.")


def _add_group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
    return parser.add_subparsers(required=True, metavar="COMMAND")


def _explain_json(error: SettingsError) -> str:
    """Name the variable whose JSON cannot be read; the value may have keys in it."""
    field = next(name for name in Settings.model_fields if f'"{name}"' in str(error))
    return f"{variable_of(field)} is not valid JSON: {error.__cause__}"


def _explain(error: ValidationError) -> str:
    def name(location: tuple[Any, ...]) -> str:
        field, *within = map(str, location or ["settings"])
        named = variable_of(field) if field in Settings.model_fields else field
        return ".".join([named, *within])

    return "; ".join(f"{name(one['loc'])}: {one['msg']}" for one in error.errors())
