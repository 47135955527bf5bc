"""What happens in sandboxes, as it happens or as a list."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from pydantic import BaseModel

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.logs.event_lines import line_of_event, line_of_gap
from sandbox_client.cli.logs.log_lines import LogLines
from sandbox_client.cli.sandbox_lookup import NAME, find_sandbox
from sandbox_client.events import LogItem
from sandbox_client.models import LogGap, SandboxRead

Item = TypeVar("Item", bound=BaseModel)

_ID_END = 6


async def logs(invocation: Invocation) -> None:
    given, output = invocation.given, invocation.output
    async with invocation.client() as client:
        records = [(await find_sandbox(client, each)).record for each in given.sandboxes]
        lines = LogLines(output, _labels(records))
        log = partial(client.logs, [record.id for record in records], sources=given.source)
        if given.tail is None or output.as_json:
            await _tell(log(tail=given.tail, follow=given.follow), invocation, lines.of)
        else:
            after = await _tell_last_lines(log(follow=False), invocation, lines)
            if given.follow:
                await _tell(log(after=after), invocation, lines.of)
    for line in lines.rest():
        output.say(line)


async def _tell_last_lines(
    told: AsyncGenerator[LogItem, None], invocation: Invocation, lines: LogLines
) -> int | None:
    """Tell the last lines of a log, whose entries may have thousands; gives the number that it is gone on after."""
    kept: deque[str] = deque(maxlen=invocation.given.tail)
    after = None
    async with aclosing(told):
        async for item in told:
            kept.extend(lines.of(item))
            after = item.oldest - 1 if isinstance(item, LogGap) else item.seq
    if not invocation.given.follow:
        kept.extend(lines.rest())
    for line in kept:
        invocation.output.say(line)
    return after


async def events(invocation: Invocation) -> None:
    given, output = invocation.given, invocation.output
    async with invocation.client() as client:
        source = client if given.sandbox is None else await find_sandbox(client, given.sandbox)
        told = source.events(tail=given.tail, types=given.types, follow=given.follow)
        await _tell(
            told,
            invocation,
            lambda item: [
                line_of_gap(item) if isinstance(item, LogGap) else line_of_event(item, output)
            ],
        )


async def _tell(
    told: AsyncGenerator[Item, None],
    invocation: Invocation,
    lines_of: Callable[[Item], Iterable[str]],
) -> None:
    """Tell people in lines, and programs in objects: one per line of what goes on, else as one array."""
    given, output = invocation.given, invocation.output
    async with aclosing(told):
        items = told
        if given.tail is not None and not given.follow:  # which the API has for streams alone
            items = _last(told, given.tail)
        if output.as_json and not given.follow:
            await output.show_all(items)
            return
        async for item in items:
            if output.as_json:
                output.show(item)
                continue
            for line in lines_of(item):
                output.say(line)


async def _last(told: AsyncGenerator[Item, None], count: int) -> AsyncGenerator[Item, None]:
    kept: deque[Item] = deque(maxlen=count)
    async for item in told:
        kept.append(item)
    for item in kept:
        yield item


def _labels(records: Sequence[SandboxRead]) -> dict[str, str]:
    """Name sandboxes where there are several."""
    if len(records) == 1:
        return {}
    return {each.id: each.metadata.get(NAME) or each.id[-_ID_END:] for each in records}
