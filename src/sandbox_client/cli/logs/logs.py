"""The subcommands logs and events."""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from pydantic import BaseModel

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.logs.event_lines import format_event, format_gap
from sandbox_client.cli.logs.log_lines import LogLines
from sandbox_client.cli.sandbox_lookup import NAME, find_sandbox
from sandbox_client.events import LogItem
from sandbox_client.models import LogGap, SandboxRead

Item = TypeVar("Item", bound=BaseModel)

_ID_END = 6


async def logs(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        records = [(await find_sandbox(client, each)).record for each in args.sandboxes]
        lines = LogLines(output, _labels(records))
        log = partial(client.logs, [record.id for record in records], sources=args.source)
        if args.tail is None or output.as_json:
            await _print_items(log(tail=args.tail, follow=args.follow), invocation, lines.of)
        else:
            after = await _print_last_lines(log(follow=False), invocation, lines)
            if args.follow:
                await _print_items(log(after=after), invocation, lines.of)
    for line in lines.rest():
        output.print(line)


async def _print_last_lines(
    items: AsyncGenerator[LogItem, None], invocation: Invocation, lines: LogLines
) -> int | None:
    """Print the last lines of a log, whose entries may have thousands; return the number to continue after."""
    kept: deque[str] = deque(maxlen=invocation.args.tail)
    after = None
    async with aclosing(items):
        async for item in items:
            kept.extend(lines.of(item))
            after = item.oldest - 1 if isinstance(item, LogGap) else item.seq
    if not invocation.args.follow:
        kept.extend(lines.rest())
    for line in kept:
        invocation.output.print(line)
    return after


async def events(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        source = client if args.sandbox is None else await find_sandbox(client, args.sandbox)
        items = source.events(tail=args.tail, types=args.types, follow=args.follow)
        await _print_items(
            items,
            invocation,
            lambda item: [
                format_gap(item) if isinstance(item, LogGap) else format_event(item, output)
            ],
        )


async def _print_items(
    source: AsyncGenerator[Item, None],
    invocation: Invocation,
    format_item: Callable[[Item], Iterable[str]],
) -> None:
    """Print lines, or with --json objects: one per line if followed, else one array."""
    args, output = invocation.args, invocation.output
    async with aclosing(source):
        items = source
        if args.tail is not None and not args.follow:  # the API supports `tail` for streams only
            items = _last(source, args.tail)
        if output.as_json and not args.follow:
            await output.print_models(items)
            return
        async for item in items:
            if output.as_json:
                output.print_model(item)
                continue
            for line in format_item(item):
                output.print(line)


async def _last(items: AsyncGenerator[Item, None], count: int) -> AsyncGenerator[Item, None]:
    kept: deque[Item] = deque(maxlen=count)
    async for item in items:
        kept.append(item)
    for item in kept:
        yield item


def _labels(records: Sequence[SandboxRead]) -> dict[str, str]:
    """Label the sandboxes if there are several."""
    if len(records) == 1:
        return {}
    return {each.id: each.metadata.get(NAME) or each.id[-_ID_END:] for each in records}
