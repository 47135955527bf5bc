from typing import Any

from playwright.async_api import Locator

from sandbox_tools.browser.arguments import Direction

_SIGNS = {
    "down": (0, 1),
    "up": (0, -1),
    "left": (-1, 0),
    "right": (1, 0),
    "top": (0, -1),
    "bottom": (0, 1),
}

# Like a mouse wheel: the innermost scrollable ancestor that can still move, or else the document.
_SCROLL = """(origin, {x, y, pixels, far}) => {
  const around = origin === origin.ownerDocument.documentElement
    ? origin.ownerDocument.elementFromPoint(innerWidth / 2, innerHeight / 2) ?? origin
    : origin;
  const root = origin.ownerDocument.scrollingElement ?? origin.ownerDocument.documentElement;
  const at = element => Math.round(x ? element.scrollLeft : element.scrollTop);
  const seen = element => x ? element.clientWidth : element.clientHeight;
  const size = element => x ? element.scrollWidth : element.scrollHeight;
  const overflow = element => getComputedStyle(element)[x ? "overflowX" : "overflowY"];
  const moves = element => (x + y > 0 ? size(element) - seen(element) - at(element) > 1 : at(element) > 0)
    && (element === root || /auto|scroll|overlay/.test(overflow(element)));
  let moved = around;
  while (moved && !moves(moved)) moved = moved.parentElement ?? moved.getRootNode().host;
  moved ??= root;
  const before = at(moved);
  const by = far ? size(moved) : pixels ?? Math.round(seen(moved) * 0.8);
  moved.scrollBy({left: x * by, top: y * by, behavior: "instant"});
  return {before, now: at(moved), seen: seen(moved), size: size(moved), part: moved !== root};
}"""


async def scroll(element: Locator, direction: Direction, pixels: int | None) -> str:
    """Scroll the container of an element and describe the new position."""
    if direction == "into_view":
        await element.scroll_into_view_if_needed()
        return "Scrolled the element into view."
    x, y = _SIGNS[direction]
    far = direction in {"top", "bottom"}
    arguments = {"x": x, "y": y, "pixels": pixels, "far": far}
    return _describe(await element.evaluate(_SCROLL, arguments), onwards=x + y > 0)


def _describe(scrolled: dict[str, Any], *, onwards: bool) -> str:
    now, end = scrolled["now"], scrolled["now"] + scrolled["seen"]
    what = "A part of the page" if scrolled["part"] else "The page"
    distance = abs(now - scrolled["before"])
    text = f"{what} scrolled by {distance} pixels and shows {now} to {end} of {scrolled['size']}."
    at_end = end >= scrolled["size"] - 1 if onwards else now <= 0
    return f"{text} This is the end in that direction." if at_end else text
