"""Finds the sandbox that the user names by id, label `name`, session, or end of the id."""

import re
from collections.abc import Sequence
from difflib import get_close_matches

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.cli.output.failures import CliError
from sandbox_client.errors import SandboxNotFound
from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.protocol.outcomes import ENDED

NAME = "name"

_ID = re.compile(r"[a-z0-9]{20}")
_SHORTEST_END = 3
_MOST_NAMED = 5


async def find_sandbox(client: AsyncSandboxClient, named: str) -> AsyncSandbox:
    """Find one sandbox: a living one, else the newest that has ended."""
    if _ID.fullmatch(named):
        try:
            return await client.get_sandbox(named)
        except SandboxNotFound:
            pass  # it may be a name
    for states in (None, ENDED):
        found = await _named(client, named, states)
        if len(found) > 1 and states is None:
            raise _ambiguous(named, [each.record for each in found])
        if found:
            return found[0]
    known = [each async for each in client.list_sandboxes(states=SandboxState)]
    ending = find_by_id_suffix(named, [each.record for each in known])
    if ending is not None:
        return next(each for each in known if each.record is ending)
    raise _unknown(named, [each.record for each in known])


async def _named(
    client: AsyncSandboxClient, named: str, states: frozenset[SandboxState] | None
) -> list[AsyncSandbox]:
    by_label = client.list_sandboxes(states=states, metadata={NAME: named})
    found = [each async for each in by_label]
    if not found:
        found = [each async for each in client.list_sandboxes(states=states, session_id=named)]
    return found


def find_by_id_suffix(end: str, records: Sequence[SandboxRead]) -> SandboxRead | None:
    """Find a sandbox by the end of its id; ended sandboxes count only if no living one matches."""
    if len(end) < _SHORTEST_END:
        return None
    found = [each for each in records if each.id.endswith(end)]
    living = [each for each in found if each.state not in ENDED]
    meant = living or found
    if len(meant) > 1:
        raise _ambiguous(end, meant)
    return meant[0] if meant else None


def near(named: str, records: Sequence[SandboxRead]) -> list[str]:
    """Suggest similar names."""
    names = [
        name for each in records for name in (each.metadata.get(NAME), each.session_id, each.id)
    ]
    ends = {each.id[-len(named) :]: each.id for each in records}
    close = get_close_matches(named, {*filter(None, names), *ends}, n=_MOST_NAMED)
    return list(dict.fromkeys(ends.get(each, each) for each in close))


def _ambiguous(named: str, records: Sequence[SandboxRead]) -> CliError:
    ids = ", ".join(each.id for each in records[:_MOST_NAMED])
    more = "" if len(records) <= _MOST_NAMED else f" and {len(records) - _MOST_NAMED} more"
    return CliError(f"{named!r} is ambiguous: {ids}{more}.", advice="Use the id.", code="ambiguous")


def _unknown(named: str, records: Sequence[SandboxRead]) -> CliError:
    close = near(named, records)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    return CliError(
        f"Sandbox {named!r} not found.{meant}",
        advice="List sandboxes with `sbx ls --all`.",
        code="sandbox-not-found",
    )
