import argparse
import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module

from pydantic import ValidationError

from sandbox_client.cli.invocation import Interrupts, Invocation
from sandbox_client.cli.output.failures import (
    FAILED,
    SIGNALLED,
    USAGE_ERROR,
    CliError,
    ErrorReport,
    UsageError,
)
from sandbox_client.cli.output.output import Output
from sandbox_client.errors import SandboxError

Verb = Callable[[Invocation], Awaitable[int | None]]


def run(args: argparse.Namespace) -> int:
    """Run the subcommand and return the exit code."""
    output = Output(as_json=args.json, quiet=args.quiet, colours=not args.no_color)
    module, _, name = args.run.partition(":")
    verb: Verb = getattr(import_module(f"sandbox_client.cli.{module}"), name)
    try:
        return asyncio.run(_run(verb, args, output))
    except BrokenPipeError:
        raise
    except UsageError as error:
        output.print_error(ErrorReport.of(error))
        return USAGE_ERROR
    except (CliError, OSError, SandboxError, ValidationError) as error:
        output.print_error(ErrorReport.of(error))
        return int(getattr(args, "fails_with", FAILED))


async def _run(verb: Verb, args: argparse.Namespace, output: Output) -> int:
    interrupts = Interrupts()
    try:
        return await verb(Invocation(args, output, interrupts)) or 0
    except asyncio.CancelledError:
        if interrupts.received is None:
            raise
        return SIGNALLED + interrupts.received
