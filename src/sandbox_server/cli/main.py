import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError

from sandbox_server.access.configuration.file import UnusableConfiguration
from sandbox_server.access.encryption import EncryptionKeyMissing, InvalidEncryptionKey
from sandbox_server.access.tenants import DEFAULT_TENANT
from sandbox_server.cli import database, keys, templates
from sandbox_server.db.account import CannotRunPostgres
from sandbox_server.db.database_url import UnusablePostgres
from sandbox_server.domain.access import Scope
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.templates import AGENT
from sandbox_server.settings import Settings, flags, variable_of
from sandbox_server.structured_logging import configure_logging
from sandbox_server.supervisor import sudo_guard
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
    UnusableConfiguration,
)

Command = Callable[[Settings, Mapping[str, Any]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `sandbox-server` command."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    command: Command = options.pop("command")
    names = options.keys() & Settings.model_fields.keys()
    try:
        settings = Settings(**{name: options[name] for name in names if options[name] is not None})
    except ValidationError as error:
        parser.error(_explain(error))
    except SettingsError as error:
        parser.error(_explain_json(error))
    except OSError as error:  # a `_FILE` variable names an unreadable file
        parser.error(f"{error.filename}: {error.strerror}")
    configure_logging(settings.log_level, style=settings.log_format, access_log=settings.access_log)
    try:
        return command(settings, options)
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
    _add(commands, "serve", "run the server", _serve, settings=names)
    _add(commands, "doctor", "check the requirements of the server", _examine, settings=names)
    _add_keys(commands)
    _add_database(commands)
    _add_templates(commands)
    guard = commands.add_parser(sudo_guard.COMMAND)  # internal, used by `serve`; hidden from help
    guard.add_argument("--directory", type=Path, required=True)
    guard.add_argument("--server-url", required=True)
    guard.set_defaults(
        command=lambda _, options: sudo_guard.guard(
            options["directory"], server_url=options["server_url"]
        )
    )
    return parser


# Imported on demand: these take half a second to load.
def _serve(settings: Settings, _given: Mapping[str, Any]) -> int:
    ended: int = import_module("sandbox_server.supervisor.serve").serve(settings)
    return ended


def _examine(settings: Settings, options: Mapping[str, Any]) -> int:
    ended: int = import_module("sandbox_server.cli.doctor").command(settings, options)
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
    group = _add_group(commands, "keys", "manage API keys")
    create = _add(group, "create", "create a key and print it", keys.create, settings=_STATE)
    create.add_argument("--tenant", default=DEFAULT_TENANT, help="Tenant of the key.")
    create.add_argument("--name", default="", help="Name of the key.")
    create.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        choices=list(Scope),
        help="Scope of the key; repeatable.",
    )
    create.add_argument(
        "--max-priority", type=int, default=0, help="Highest priority of its requests."
    )
    create.add_argument("--rate-per-s", type=float, help="Maximum requests per second.")
    show = _add(group, "list", "list keys, without secrets", keys.show, settings=_STATE)
    show.add_argument("--tenant", help="Tenant. Default: all.")
    revoke = _add(group, "revoke", "revoke a key", keys.revoke, settings=_STATE)
    revoke.add_argument("id", metavar="ID", help="Id of the key, from `keys list`.")


def _add_database(commands: Any) -> None:
    group = _add_group(commands, "db", "maintain the database")
    for name, text, command in (
        ("upgrade", "upgrade the schema", database.upgrade),
        ("check", "check the database", database.check),
        ("backup", "print how to back up", database.show_backup),
        ("rotate-encryption", "encrypt all secrets with a new key", database.rotate_encryption),
        (
            "new-installation",
            "detach a copied database from the original",
            database.make_new_installation,
        ),
        ("forget-engine", "mark the sandboxes of a lost engine as failed", database.forget_engine),
    ):
        _add(group, name, text, command, settings=_STATE)
    back = _add(
        group, "downgrade", "downgrade the schema for an older server", database.take_back,
        settings=_STATE,
    )  # fmt: skip
    back.add_argument(
        "revision", metavar="REVISION", help="Revision shown by `db check` of that server."
    )


def _add_templates(commands: Any) -> None:
    group = _add_group(commands, "template", "build the bundled templates")
    places = (*_STATE, "engine_dir", "template_dir")
    build = _add(
        group, "build", "build a template and show its progress", templates.build, settings=places
    )
    build.add_argument(
        "name",
        nargs="?",
        default=AGENT,
        metavar="NAME",
        help="Name of the template. Default: agent.",
    )
    build.add_argument("--backend", help="Backend to build at. Default: the first.")
    build.add_argument("--force", action="store_true", help="Rebuild without cached layers.")


def _add_group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
    return parser.add_subparsers(required=True, metavar="COMMAND")


def _explain_json(error: SettingsError) -> str:
    """Name the variable with invalid JSON, without its value, which may contain keys."""
    field = next(name for name in Settings.model_fields if f'"{name}"' in str(error))
    return f"{variable_of(field)} is not valid JSON: {error.__cause__}"


def _explain(error: ValidationError) -> str:
    def name(location: tuple[Any, ...]) -> str:
        field, *within = map(str, location or ["settings"])
        named = variable_of(field) if field in Settings.model_fields else field
        return ".".join([named, *within])

    return "; ".join(f"{name(problem['loc'])}: {problem['msg']}" for problem in error.errors())
