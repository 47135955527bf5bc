"""Tries the installed SDK, `blocking` or `async`; further arguments are prefixes of methods to try."""

import asyncio
import sys

import e2b
from harness import Kit, run_all
from methods import public_methods

_AREAS = ("sandboxes", "snapshots", "files", "commands", "git", "templates", "volumes")


def main(mode: str, *beginnings: str) -> None:
    """Print the result of each public method."""
    for area in _AREAS:
        __import__(f"probe_{area}")
    is_async = mode == "async"
    public = public_methods(e2b, is_async=is_async)
    wanted = {one for one in public if not beginnings or one.startswith(beginnings)}
    asyncio.run(run_all(Kit(e2b, is_async), wanted))


main(*sys.argv[1:])
