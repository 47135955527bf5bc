"""The agent's actions: pointer, keyboard and looking, in the action space of common computer-use models."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from sandbox_tools.desktop.control import Control
from sandbox_tools.desktop.display import Display
from sandbox_tools.desktop.images import Picture, Region
from sandbox_tools.desktop.keysyms import UnknownKey, find_chord, keysym_of_character
from sandbox_tools.desktop.requests import ActionRequest, Coordinate
from sandbox_tools.desktop.rfb import RfbConnection
from sandbox_tools.desktop.x11 import Screen

_BUTTONS = {
    "left_click": 1,
    "middle_click": 2,
    "right_click": 3,
    "double_click": 1,
    "triple_click": 1,
}
_CLICKS = {"double_click": 2, "triple_click": 3}
_WHEEL = {"up": 4, "down": 5, "left": 6, "right": 7}
_LOOKS = {"screenshot", "zoom", "cursor_position", "wait"}
_SHOWS = {"screenshot", "zoom"}
# Programs lose events that come at the same instant: menus under the pointer, keys after a new mapping.
_STEP_SECONDS = 0.012
_KEY_SECONDS = 0.005
_DRAG_STEPS = 12
_SETTLE_SECONDS = 1.0
_DEFAULT_SECONDS = 1.0


class InvalidAction(ValueError):
    """The action lacks an argument, or has one that is wrong."""


class Performed:
    """What an action has led to."""

    def __init__(self, screen: Screen, png: bytes | None) -> None:
        self.screen = screen
        self.png = png


class Actor:
    """Performs the agent's actions, one at a time, while the agent has control."""

    def __init__(self, display: Display, control: Control) -> None:
        self._display = display
        self._control = control
        self._is_left_down = False

    async def perform(self, request: ActionRequest) -> Performed:
        screen = await self._display.screen()
        act = _checked(request, screen)
        if request.action not in _LOOKS:
            await self._control.run_as_agent(lambda: self._act(request, act, screen))
        elif request.action == "wait":
            await asyncio.sleep(_seconds(request))
        return await self._look(request)

    async def _look(self, request: ActionRequest) -> Performed:
        png = None
        if request.screenshot or request.action in _SHOWS:
            if request.action not in _LOOKS:
                await self._display.settle(_SETTLE_SECONDS)
            picture = await self._display.picture()
            region = request.region if request.action == "zoom" else None
            png = await asyncio.to_thread(_encoded, picture, region)
        return Performed(await self._display.screen(), png)

    async def _act(self, request: ActionRequest, keysyms: Sequence[int], screen: Screen) -> None:
        connection = await self._display.connection()
        hand = _Hand(connection, screen.pointer, is_left_down=self._is_left_down)
        try:
            await _MOVES[request.action](hand, request, keysyms)
        finally:
            self._is_left_down = request.action == "left_mouse_down" or (
                self._is_left_down and request.action in ("mouse_move", "type", "key", "hold_key")
            )
            hand.let_go(keep_left=self._is_left_down)
            # Xvnc has all of it when it has answered a later request.
            if connection.is_open:
                await asyncio.shield(self._display.screen())


class _Hand:
    """Pointer and keys of one action, released when it ends."""

    def __init__(self, connection: RfbConnection, place: Coordinate, *, is_left_down: bool) -> None:
        self._connection = connection
        self._place = place
        self._buttons = int(is_left_down)
        self._keys: list[int] = []

    async def move(self, place: Coordinate | None) -> None:
        if place is not None:
            self._place = place
            self._point()
            await asyncio.sleep(_STEP_SECONDS)

    async def press(self, button: int) -> None:
        self._buttons |= 1 << (button - 1)
        self._point()
        await asyncio.sleep(_STEP_SECONDS)

    async def release(self, button: int) -> None:
        self._buttons &= ~(1 << (button - 1))
        self._point()
        await asyncio.sleep(_STEP_SECONDS)

    async def click(self, button: int, times: int = 1) -> None:
        for _ in range(times):
            await self.press(button)
            await self.release(button)

    async def drag_to(self, place: Coordinate) -> None:
        start = self._place
        for step in range(1, _DRAG_STEPS + 1):
            x, y = (a + (b - a) * step // _DRAG_STEPS for a, b in zip(start, place, strict=True))
            await self.move((x, y))

    async def tap(self, keysym: int) -> None:
        self._connection.send_key(keysym, is_down=True)
        self._connection.send_key(keysym, is_down=False)
        await asyncio.sleep(_KEY_SECONDS)

    @asynccontextmanager
    async def holding(self, keysyms: Sequence[int]) -> AsyncIterator[None]:
        for keysym in keysyms:
            self._keys.append(keysym)
            self._connection.send_key(keysym, is_down=True)
        if keysyms:
            await asyncio.sleep(_STEP_SECONDS)
        yield
        self._release_keys()
        if keysyms:
            await asyncio.sleep(_STEP_SECONDS)

    def let_go(self, *, keep_left: bool) -> None:
        """Release what an action that was ended early still holds."""
        if not self._connection.is_open:
            return
        self._release_keys()
        if self._buttons != int(keep_left):
            self._buttons = int(keep_left)
            self._point()

    def _release_keys(self) -> None:
        while self._keys:
            self._connection.send_key(self._keys.pop(), is_down=False)

    def _point(self) -> None:
        self._connection.send_pointer(*self._place, self._buttons)


async def _click(hand: _Hand, request: ActionRequest, keysyms: Sequence[int]) -> None:
    await hand.move(request.coordinate)
    async with hand.holding(keysyms):
        await hand.click(_BUTTONS[request.action], _CLICKS.get(request.action, 1))


async def _drag(hand: _Hand, request: ActionRequest, keysyms: Sequence[int]) -> None:
    await hand.move(request.start_coordinate)
    async with hand.holding(keysyms):
        await hand.press(1)
        assert request.coordinate is not None  # _checked
        await hand.drag_to(request.coordinate)
        await hand.release(1)


async def _mouse_down(hand: _Hand, request: ActionRequest, _keysyms: Sequence[int]) -> None:
    await hand.move(request.coordinate)
    await hand.press(1)


async def _mouse_up(hand: _Hand, request: ActionRequest, _keysyms: Sequence[int]) -> None:
    await hand.move(request.coordinate)
    await hand.release(1)


async def _move(hand: _Hand, request: ActionRequest, _keysyms: Sequence[int]) -> None:
    await hand.move(request.coordinate)


async def _scroll(hand: _Hand, request: ActionRequest, keysyms: Sequence[int]) -> None:
    await hand.move(request.coordinate)
    async with hand.holding(keysyms):
        await hand.click(_WHEEL[request.scroll_direction or "down"], request.scroll_amount)


async def _type(hand: _Hand, _request: ActionRequest, keysyms: Sequence[int]) -> None:
    for keysym in keysyms:
        await hand.tap(keysym)


async def _hold_keys(hand: _Hand, request: ActionRequest, keysyms: Sequence[int]) -> None:
    async with hand.holding(keysyms):
        if request.action == "hold_key":
            await asyncio.sleep(_seconds(request))


_Move = Callable[[_Hand, ActionRequest, Sequence[int]], Awaitable[None]]
_MOVES: dict[str, _Move] = {
    **dict.fromkeys(_BUTTONS, _click),
    "left_click_drag": _drag,
    "left_mouse_down": _mouse_down,
    "left_mouse_up": _mouse_up,
    "mouse_move": _move,
    "scroll": _scroll,
    "type": _type,
    "key": _hold_keys,
    "hold_key": _hold_keys,
}
_REQUIRED = {
    "mouse_move": ("coordinate",),
    "left_click_drag": ("coordinate",),
    "scroll": ("scroll_direction",),
    "type": ("text",),
    "key": ("text",),
    "hold_key": ("text",),
    "zoom": ("region",),
}


def _checked(request: ActionRequest, screen: Screen) -> list[int]:
    """Check the arguments before anything is moved, and return the keysyms that the text stands for."""
    for name in _REQUIRED.get(request.action, ()):
        if getattr(request, name) is None:
            raise InvalidAction(f"The action {request.action} requires {name}.")
    for place in (request.coordinate, request.start_coordinate):
        if place is not None:
            _check_inside(place, screen)
    if request.region is not None:
        _check_region(request.region, screen)
    try:
        if request.action == "type":
            return [keysym_of_character(character) for character in request.text or ""]
        return find_chord(request.text) if request.text else []
    except UnknownKey as error:
        raise InvalidAction(str(error)) from None


def _check_inside(place: Coordinate, screen: Screen) -> None:
    if not (0 <= place[0] < screen.width and 0 <= place[1] < screen.height):
        raise InvalidAction(
            f"The coordinate {place} is outside of the display of {screen.width} by {screen.height} pixels."
        )


def _check_region(region: Region, screen: Screen) -> None:
    left, top, right, bottom = region
    if not (0 <= left < right <= screen.width and 0 <= top < bottom <= screen.height):
        raise InvalidAction(
            f"The region {region} is empty or outside of the display of {screen.width} by {screen.height} pixels."
        )


def _seconds(request: ActionRequest) -> float:
    return _DEFAULT_SECONDS if request.duration_s is None else request.duration_s


def _encoded(picture: Picture, region: Region | None) -> bytes:
    return picture.encode() if region is None else picture.zoom(region)
