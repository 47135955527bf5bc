"""The subcommands of `sbx forge`. Secrets are not arguments, which are visible to all users of a machine."""

import getpass
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import FAILED, CliError, ErrorReport, UsageError
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_instant, format_relative
from sandbox_client.console.escape import escape_controls
from sandbox_client.errors import SandboxError
from sandbox_client.models import ForgeCheckRead, MissingPermissionRead
from sandbox_client.protocol.options import ForgeOptions

_STDIN = Path("-")
_HEADS = ("NAME", "KIND", "ACCESS", "ACCOUNT", "URL")
_TOKEN = "Access token (not shown; Enter keeps the stored one): "  # noqa: S105 - a prompt


async def set_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    options = _options(invocation)
    async with invocation.client() as client:
        forge = await client.put_forge(args.forge, args.kind, **options)
    output.print_model_or(forge, forge.name)
    output.note(f"Webhook address: {forge.webhook_url}")
    output.note(f"Check what the credential may do: sbx forge check {forge.name}")


def _options(invocation: Invocation) -> ForgeOptions:
    args = invocation.args
    if args.app_id is not None and (args.token_file or args.token_env):
        raise UsageError("Give either a token, or --app-id with --private-key-file.")
    token = _read_secret(args.token_file, args.token_env)
    if token is None and args.app_id is None:
        token = _ask_secret(invocation, _TOKEN)
    return {
        "api_url": args.api_url,
        "git_url": args.git_url,
        "token": token,
        "app_id": args.app_id,
        "private_key": _read_secret(args.private_key_file),
        "webhook_secret": _read_secret(args.webhook_secret_file, args.webhook_secret_env),
        "git_only": args.git_only,
        "git_username": args.git_username,
    }


async def list_(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.client() as client:
        if output.as_json:
            await output.print_models(client.list_forges())
            return
        forges = [forge async for forge in client.list_forges()]
    if output.is_quiet:
        for forge in forges:
            output.print(forge.name)
        return
    rows = [
        (each.name, each.kind, each.auth, each.bot_login or "", each.api_url or each.git_url)
        for each in forges
    ]
    output.print_table(_HEADS, rows)


async def check(invocation: Invocation) -> int:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        found = await client.check_forge(args.forge, repository=args.repository)
    if output.as_json:
        output.print_model(found)
    else:
        _print_check(output, found)
    return 0 if found.is_ready else FAILED


def _print_check(output: Output, found: ForgeCheckRead) -> None:
    for line in _lines(found):
        output.print(escape_controls(line))
    missing = list(map(_missing, found.missing_permissions))
    for line in missing:
        output.print(escape_controls(line))
    if not found.is_ready:
        advice = "Give the credential these permissions at the forge, then check again."
        output.note(advice)


def _lines(found: ForgeCheckRead) -> Iterator[str]:
    yield f"ready     {'yes' if found.is_ready else 'no'}"
    yield f"account   {found.login or 'unknown'}"
    yield f"webhooks  {found.webhook_url}"
    if found.token_expires_at is not None:
        yield f"expires   {format_instant(found.token_expires_at)}"
    for each in found.installations:
        scope = "all repositories" if each.all_repositories else "selected repositories"
        suspended = ", suspended" if each.suspended else ""
        yield f"installed {each.account}: {scope}{suspended}"
    for limit in found.limits:
        paused = "" if limit.paused_until is None else f", paused: {limit.paused_reason}"
        resets = "" if limit.reset_at is None else f", resets {format_relative(limit.reset_at)}"
        left = "unknown" if limit.limit is None else f"{limit.remaining} of {limit.limit} left"
        yield f"limit     {limit.resource}: {left}{resets}{paused}"


def _missing(permission: MissingPermissionRead) -> str:
    of = "" if permission.account is None else f" of {permission.account}"
    needed = "missing" if permission.is_required else "optional"
    return f"{needed:9} {permission.name}: {permission.access}{of}, {permission.needed_for}"


async def rm(invocation: Invocation) -> int:
    """Delete each; an error with one does not stop the others."""
    output, code = invocation.output, 0
    async with invocation.client() as client:
        for name in invocation.args.forges:
            try:
                await client.delete_forge(name)
            except (CliError, SandboxError) as error:
                output.print_error(ErrorReport.of(error).about(name))
                code = FAILED
            else:
                output.print(name)
    return code


def _read_secret(file: Path | None, variable: str | None = None) -> str | None:
    """Read a secret from a file or a variable; None if neither is named."""
    if variable is not None:
        return _required(os.environ.get(variable), f"The environment variable {variable}")
    if file is None:
        return None
    if file == _STDIN:
        return _required(sys.stdin.read(), "stdin")
    return _required(file.read_text(), str(file))


def _ask_secret(invocation: Invocation, prompt: str) -> str | None:
    """Ask at a terminal, without an echo; None if there is none, or nothing was typed."""
    if not sys.stdin.isatty():
        return None
    with invocation.interrupts.suspended():
        return getpass.getpass(prompt).strip() or None


def _required(text: str | None, source: str) -> str:
    if text is None or not text.strip():
        raise CliError(f"{source} is empty or not set.", advice="Put the secret there.")
    return text.strip()
