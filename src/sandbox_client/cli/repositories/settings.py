"""The subcommands of `sbx repo`."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.commands.command_line import read_environment
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import FAILED, CliError, ErrorReport, UsageError
from sandbox_client.cli.output.times import format_instant, format_relative
from sandbox_client.console.escape import escape_controls
from sandbox_client.errors import SandboxError
from sandbox_client.models import RepositoryRead

_MAY_PUSH = {
    True: "yes",
    False: "no: tasks cannot be published",
    None: "unknown: the forge does not tell",
}
_HEADS = ("ID", "REPOSITORY", "FORGE", "AGENT", "CHECKS", "ADDED")
_ID = re.compile(r"[a-z0-9]{20}")
_SETTINGS = ("template", "setup", "checks", "agent", "agent_command", "model")


async def add(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    settings, envs = _settings(args), read_environment(args.env)
    async with invocation.client() as client:
        forge = args.forge or await _only_forge(client)
        repository = await client.create_repository(
            forge, args.full_name, settings=settings, envs=envs
        )
    output.print_model_or(repository, repository.id)
    if repository.may_push is False:
        output.note(
            f"The forge's credential may not push to {repository.full_name}, which tasks need. "
            f"See: sbx forge check {forge} --repository {repository.full_name}"
        )
    else:
        output.note(f'Start a task: sbx task run {repository.full_name} "…"')


async def set_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    settings, envs = _settings(args), read_environment(args.env)
    if not settings and not envs:
        raise UsageError("Nothing to change. Give a setting, for example --checks 'make test'.")
    changes: dict[str, Any] = {"settings": settings} if settings else {}
    if envs:
        changes["envs"] = envs
    async with invocation.client() as client:
        found = await find_repository(client, args.repository)
        changed = await client.update_repository(found.id, **changes)
    output.print_model_or(changed, changed.id)


async def list_(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        if output.as_json:
            await output.print_models(client.list_repositories())
            return
        found = [each async for each in client.list_repositories()]
    if output.is_quiet:
        for each in found:
            output.print(each.full_name)
        return
    output.print_table(_HEADS, [_row(each) for each in found])
    if not found:
        output.note("Add one with: sbx repo add OWNER/REPO")


async def show(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        repository = await find_repository(client, invocation.args.repository)
    if output.as_json:
        output.print_model(repository)
        return
    facts = list(_facts(repository))
    widest = max(len(label) for label, _ in facts)
    for label, fact in facts:
        output.print(f"{output.paint(label.ljust(widest), 'dim')}  {escape_controls(fact)}")


async def rm(invocation: Invocation) -> int:
    """Remove each; an error with one does not stop the others."""
    output, code = invocation.output, 0
    async with invocation.client() as client:
        for named in invocation.args.repositories:
            try:
                repository = await find_repository(client, named)
                await client.delete_repository(repository.id)
            except (CliError, SandboxError) as error:
                output.print_error(ErrorReport.of(error).about(named))
                code = FAILED
            else:
                output.print(repository.id)
    return code


async def find_repository(client: AsyncSandboxClient, named: str) -> RepositoryRead:
    """Find a repository by its name or id."""
    if _ID.fullmatch(named):
        return await client.get_repository(named)
    found = [each async for each in client.list_repositories(full_name=named)]
    if len(found) > 1:
        ids = ", ".join(f"{each.id} ({each.forge})" for each in found)
        raise CliError(f"{named!r} is ambiguous: {ids}.", advice="Use the id.", code="ambiguous")
    if not found:
        advice = f"Add it with `sbx repo add {named}`. List repositories with `sbx repo list`."
        raise CliError(
            f"Repository {named!r} not found.", advice=advice, code="repository-not-found"
        )
    return found[0]


async def _only_forge(client: AsyncSandboxClient) -> str:
    names = [forge.name async for forge in client.list_forges()]
    if len(names) == 1:
        return names[0]
    if not names:
        raise CliError("There is no forge.", advice="Create one with `sbx forge set`.")
    raise UsageError(f"There are several forges. Name one with --forge: {', '.join(names)}.")


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Merge the file of settings with those on the command line, which win."""
    given = {name: getattr(args, name) for name in _SETTINGS}
    return {
        **_read_settings(args),
        **{name: text for name, text in given.items() if text is not None},
    }


def _read_settings(args: argparse.Namespace) -> dict[str, Any]:
    if args.settings is None:
        return {}
    text = sys.stdin.read() if str(args.settings) == "-" else args.settings.read_text()
    try:
        read = json.loads(text)
    except ValueError as error:
        raise CliError(f"{args.settings} is not valid JSON: {error}.") from None
    if not isinstance(read, dict):
        raise CliError(f"{args.settings} must contain a JSON object of settings.")
    return read


def _row(repository: RepositoryRead) -> tuple[str, ...]:
    settings = repository.settings
    return (
        repository.id,
        repository.full_name,
        repository.forge,
        settings.agent or settings.agent_command or "",
        settings.checks or "",
        format_relative(repository.created_at),
    )


def _facts(repository: RepositoryRead) -> Iterator[tuple[str, str]]:
    yield "id", repository.id
    yield "name", repository.full_name
    yield "url", repository.url
    yield "forge", repository.forge
    yield "default branch", repository.default_branch
    yield "visibility", "private" if repository.private else "public"
    yield "may push", _MAY_PUSH[repository.may_push]
    if repository.triggers_paused_reason is not None:
        yield "triggers paused", repository.triggers_paused_reason
    if repository.env_names:
        yield "variables", ", ".join(repository.env_names)
    yield "added", format_instant(repository.created_at)
    for name, value in repository.settings.model_dump(mode="json").items():
        if value not in (None, [], {}):
            yield name, value if isinstance(value, str) else json.dumps(value)
