"""`sbx desktop show`, `set`, `take` and `return`."""

from collections.abc import Iterator
from typing import Any

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.failures import UsageError
from sandbox_client.cli.output.times import format_instant
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import DesktopHolder, DesktopRead


async def show(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        _print(invocation, await sandbox.desktop.get())


async def set_(invocation: Invocation) -> None:
    args = invocation.args
    changes: dict[str, Any] = {}
    if args.resolution is not None:
        changes["resolution"] = dict(zip(("width", "height"), args.resolution, strict=True))
    if args.dpi is not None:
        changes["dpi"] = args.dpi
    if args.stream is not None:
        changes["stream"] = args.stream
    if not changes:
        raise UsageError("Nothing to set: give --resolution, --dpi, --stream or --no-stream.")
    async with invocation.sandbox() as sandbox:
        _print(invocation, await sandbox.desktop.update(**changes))


async def take(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        ttl_s = in_seconds(invocation.args.ttl)
        desktop = await sandbox.desktop.set_control(DesktopHolder.PERSON, ttl_s=ttl_s)
    invocation.output.print_model_or(desktop, _control(desktop))


async def return_(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        desktop = await sandbox.desktop.set_control(DesktopHolder.AGENT)
    invocation.output.print_model_or(desktop, _control(desktop))


def _print(invocation: Invocation, desktop: DesktopRead) -> None:
    output = invocation.output
    if output.as_json:
        output.print_model(desktop)
        return
    facts = list(_facts(desktop))
    widest = max(len(label) for label, _ in facts)
    for label, fact in facts:
        output.print(f"{output.paint(label.ljust(widest), 'dim')}  {escape_controls(fact)}")


def _facts(desktop: DesktopRead) -> Iterator[tuple[str, str]]:
    size = desktop.resolution
    yield "resolution", "the template's" if size is None else f"{size.width}x{size.height}"
    yield "dpi", "the template's" if desktop.dpi is None else str(desktop.dpi)
    yield "stream", "on" if desktop.stream else "off"
    recording = desktop.recording
    if recording is not None:
        since = format_instant(recording.started_at)
        yield "recording", f"{recording.id}, {recording.fps} fps, since {since}"
    else:
        yield "recording", "none"
    if desktop.viewers is not None:
        yield "viewers", str(desktop.viewers)
    yield "control", _control(desktop)


def _control(desktop: DesktopRead) -> str:
    control = desktop.control
    if control.holder is DesktopHolder.AGENT:
        return "agent"
    who = "a person" if control.name is None else control.name
    return who if control.until is None else f"{who}, until {format_instant(control.until)}"
