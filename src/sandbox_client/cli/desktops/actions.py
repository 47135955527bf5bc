"""`sbx desktop action` and `screenshot`."""

import asyncio
import base64
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import parse_duration
from sandbox_client.cli.output.failures import CliError, UsageError
from sandbox_client.cli.output.stdio import read_stdin, write_output
from sandbox_client.protocol.options import DesktopActionOptions

_SHORT = {
    "click": "left_click",
    "drag": "left_click_drag",
    "move": "mouse_move",
    "down": "left_mouse_down",
    "up": "left_mouse_up",
    "cursor": "cursor_position",
}
_JPEG = frozenset({".jpg", ".jpeg"})


async def screenshot(invocation: Invocation) -> None:
    args = invocation.args
    media = args.format or ("jpeg" if _suffix(args.output) in _JPEG else "png")
    require_target(args.output)
    async with invocation.sandbox() as sandbox:
        content = await sandbox.desktop.screenshot(media=media, quality=args.quality)
    await write_content(args.output, content)


async def act(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    name = args.action.replace("-", "_")
    name = _SHORT.get(name, name)
    options = read_arguments(name, args.command)
    if options.get("text") == "-" and name == "type":
        options["text"] = b"".join([part async for part in read_stdin()]).decode()
    if args.at is not None:
        options["coordinate"] = args.at
    if args.hold is not None:
        options["text"] = args.hold
    if args.output is not None:
        options["screenshot"] = True
    async with invocation.sandbox() as sandbox:
        result = await sandbox.desktop.act(name, **options)
    if args.output is not None and result.screenshot is not None:
        await write_content(args.output, base64.b64decode(result.screenshot))
        result = result.model_copy(update={"screenshot": None})
    output.print_model_or(result, "{} {}".format(*result.cursor))


def require_target(file: Path | None) -> None:
    if file is None and sys.stdout.isatty():
        raise UsageError("The result is binary: give -o FILE, or redirect stdout.")


async def write_content(file: Path | None, content: bytes) -> None:
    if file is None or str(file) == "-":
        await write_output("stdout", content)
        return
    try:
        await asyncio.to_thread(file.write_bytes, content)
    except OSError as error:
        raise CliError(f"Cannot write {file}: {error.strerror}.") from None


def _suffix(file: Path | None) -> str:
    return "" if file is None else file.suffix.lower()


def read_arguments(name: str, words: Sequence[str]) -> DesktopActionOptions:
    """Read the words after the action's name; what they mean depends on it."""
    read = _READ.get(name, _click)
    try:
        return read(list(words))
    except (ValueError, IndexError, TypeError):
        form = _FORMS.get(name, "[X Y]")
        raise UsageError(
            f"Wrong arguments: write `sbx desktop action SANDBOX {name} {form}`."
        ) from None


def _click(words: list[str]) -> DesktopActionOptions:
    return {"coordinate": _point(words)} if words else {}


def _move(words: list[str]) -> DesktopActionOptions:
    return {"coordinate": _point(words)}


def _drag(words: list[str]) -> DesktopActionOptions:
    *start, x, y = words
    options: DesktopActionOptions = {"coordinate": _point([x, y])}
    return {**options, "start_coordinate": _point(start)} if start else options


def _scroll(words: list[str]) -> DesktopActionOptions:
    direction, *amount = words
    options: DesktopActionOptions = {"scroll_direction": direction}
    return {**options, "scroll_amount": int(*amount)} if amount else options


def _text(words: list[str]) -> DesktopActionOptions:
    (text,) = words
    return {"text": text}


def _hold(words: list[str]) -> DesktopActionOptions:
    keys, lasts = words
    return {"text": keys, "duration_s": _seconds(lasts)}


def _wait(words: list[str]) -> DesktopActionOptions:
    (lasts,) = words
    return {"duration_s": _seconds(lasts)}


def _zoom(words: list[str]) -> DesktopActionOptions:
    x0, y0, x1, y1 = map(int, words)
    return {"region": (x0, y0, x1, y1)}


def _nothing(words: list[str]) -> DesktopActionOptions:
    () = words
    return {}


def _point(words: Sequence[str]) -> tuple[int, int]:
    x, y = map(int, words)
    return x, y


def _seconds(word: str) -> float:
    return parse_duration(word).total_seconds()


_READ: dict[str, Callable[[list[str]], DesktopActionOptions]] = {
    "mouse_move": _move,
    "left_click_drag": _drag,
    "scroll": _scroll,
    "type": _text,
    "key": _text,
    "hold_key": _hold,
    "wait": _wait,
    "zoom": _zoom,
    "cursor_position": _nothing,
    "screenshot": _nothing,
}
_FORMS = {
    "mouse_move": "X Y",
    "left_click_drag": "[X Y] TO_X TO_Y",
    "scroll": "up|down|left|right [AMOUNT]",
    "type": "TEXT",
    "key": "KEYS",
    "hold_key": "KEYS DURATION",
    "wait": "DURATION",
    "zoom": "X0 Y0 X1 Y1",
    "cursor_position": "",
    "screenshot": "",
}
