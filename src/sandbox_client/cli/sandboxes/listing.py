from collections.abc import AsyncIterator, Iterator

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.logs.event_lines import format_event
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.output.times import format_instant, format_relative
from sandbox_client.cli.sandbox_lookup import NAME
from sandbox_client.cli.sandboxes.queue_progress import describe_progress
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import OnTimeout, SandboxRead, SandboxState, ServicesRead, TimelineEntry

_HEADS = ("ID", "NAME", "STATE", "TEMPLATE", "CREATED", "EXPIRES")
_LAST_ENTRIES = 10


async def ls(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        records = _records(client, invocation)
        if output.as_json:
            await output.print_models(records)
            return
        rows = [record async for record in records]
    if args.quiet or args.names:
        for record in rows:
            output.print((args.names and record.metadata.get(NAME)) or record.id)
        return
    output.print_table(_HEADS, [_row(record) for record in rows])


async def _records(
    client: AsyncSandboxClient, invocation: Invocation
) -> AsyncIterator[SandboxRead]:
    args = invocation.args
    states = args.state or (SandboxState if args.all else None)
    async for sandbox in client.list_sandboxes(states=states, metadata=dict(args.metadata)):
        yield sandbox.record


def _row(record: SandboxRead) -> tuple[str, ...]:
    return (
        record.id,
        record.metadata.get(NAME) or record.session_id or "",
        _state(record),
        record.template,
        format_relative(record.created_at),
        _end(record),
    )


def _state(record: SandboxRead) -> str:
    return record.state if record.queue is None else f"{record.state} #{record.queue.position}"


def _end(record: SandboxRead) -> str:
    if record.ended_at is not None:
        return format_relative(record.ended_at)
    ends = record.expires_at or record.retain_until
    if ends is None:
        return ""
    is_paused_then = record.expires_at is not None and record.on_timeout is OnTimeout.PAUSE
    return f"pauses {format_relative(ends)}" if is_paused_then else format_relative(ends)


async def show(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.sandbox() as sandbox:
        record = sandbox.record
        if output.as_json:
            output.print_model(record)
            return
        timeline = await sandbox.timeline()
    facts = list(_facts(record))
    widest = max(len(label) for label, _ in facts)
    for label, fact in facts:
        output.print(f"{output.paint(label.ljust(widest), 'dim')}  {escape_controls(fact)}")
    _show_timeline(output, timeline)


def _show_timeline(output: Output, timeline: list[TimelineEntry]) -> None:
    left_out = len(timeline) - _LAST_ENTRIES
    output.print("")
    if left_out > 0:
        output.print(f"… {left_out} earlier events")
    for entry in timeline[-_LAST_ENTRIES:]:
        output.print(format_event(entry, output))


def _facts(record: SandboxRead) -> Iterator[tuple[str, str]]:
    yield "id", record.id
    yield (
        "state",
        f"{_state(record)}: {record.state_reason}" if record.state_reason else _state(record),
    )
    if record.queue is not None:
        yield "queue", describe_progress(record)
    yield from _names(record)
    yield from _machine(record)
    yield from _deadlines(record)
    if record.services is not None:
        yield from _services(record.services)
    if record.urls is not None:
        yield "ports", record.urls.ports
        yield "mcp", record.urls.mcp
        yield "code-server", record.urls.code_server


def _names(record: SandboxRead) -> Iterator[tuple[str, str]]:
    for label, value in (
        ("session", record.session_id),
        ("user", record.user_id),
        ("agent", record.agent_type),
    ):
        if value is not None:
            yield label, value
    if record.metadata:
        yield "metadata", ", ".join(f"{name}={text}" for name, text in record.metadata.items())


def _machine(record: SandboxRead) -> Iterator[tuple[str, str]]:
    noted = "" if record.template_note is None else f" ({record.template_note})"
    yield "template", f"{record.template}{noted}"
    if record.backend is not None:
        yield "backend", record.backend
    resources = record.resources
    has = [f"{resources.cpu_count} CPUs"] if resources.cpu_count else []
    if resources.memory_mb:
        has.append(f"{resources.memory_mb} MB")
    if has:
        yield "resources", ", ".join(has)


def _deadlines(record: SandboxRead) -> Iterator[tuple[str, str]]:
    for label, instant in (
        ("created", record.created_at),
        ("running since", record.started_at),
        ("last activity", record.last_activity_at),
        ("idle pause at", record.idle_pause_at),
        ("kept awake until", record.awake_until),
        ("timeout at", record.expires_at),
        ("deleted at", record.retain_until),
        ("unreachable since", record.silent_since),
        ("ended", record.ended_at),
    ):
        if instant is not None:
            then = f", then {record.on_timeout}" if label == "timeout at" else ""
            yield label, f"{format_instant(instant)}{then}"


def _services(services: ServicesRead) -> Iterator[tuple[str, str]]:
    tools = services.tool_server
    yield (
        "tool server",
        tools.state if tools.tools is None else f"{tools.state}, {tools.tools} tools",
    )
    for name, server in tools.servers.items():
        yield (
            f"  {escape_controls(name)}",
            f"{server.state}: {server.error}" if server.error else server.state,
        )
    yield "agent server", services.agent
    yield "code-server", services.code_server
    if services.settings_error is not None:
        yield "settings", services.settings_error
