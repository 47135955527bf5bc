import argparse
import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module

from pydantic import ValidationError

from sandbox_client.cli.invocation import Interrupts, Invocation
from sandbox_client.cli.output.failures import (
    FAILED,
    NOT_UNDERSTOOD,
    SIGNALLED,
    Failure,
    NotUnderstood,
    Told,
)
from sandbox_client.cli.output.output import Output
from sandbox_client.errors import SandboxError

Verb = Callable[[Invocation], Awaitable[int | None]]


def run(given: argparse.Namespace) -> int:
    """Carry out what was said; gives the exit code."""
    output = Output(as_json=given.json, quiet=given.quiet, colours=not given.no_color)
    module, _, name = given.run.partition(":")
    verb: Verb = getattr(import_module(f"sandbox_client.cli.{module}"), name)
    try:
        return asyncio.run(_run(verb, given, output))
    except BrokenPipeError:
        raise
    except NotUnderstood as error:
        output.fail(Told.of(error))
        return NOT_UNDERSTOOD
    except (Failure, OSError, SandboxError, ValidationError) as error:
        output.fail(Told.of(error))
        return int(getattr(given, "fails_with", FAILED))


async def _run(verb: Verb, given: argparse.Namespace, output: Output) -> int:
    interrupts = Interrupts()
    try:
        return await verb(Invocation(given, output, interrupts)) or 0
    except asyncio.CancelledError:
        if interrupts.received is None:
            raise
        return SIGNALLED + interrupts.received
