import asyncio
from dataclasses import dataclass
from typing import Any

from fastmcp.exceptions import ToolError
from mcp_types import ImageContent
from playwright.async_api import Locator, Page

from sandbox_tools.toolkit.truncation import MAX_MESSAGE_BYTES

# Larger images are scaled down or rejected by models.
MAX_SIDE_PIXELS = 2_000
_MIN_SCALE = 0.5
_TIMEOUT_SECONDS = 15.0
_QUALITIES = (80, 50, 20, 5)


@dataclass(frozen=True)
class Region:
    """A part of a page, in pixels from the start of the document."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Screenshot:
    image: ImageContent
    about: str


async def of_visible_part(page: Page) -> Screenshot:
    return await _take(page, await _visible_part(page))


async def of_whole_page(page: Page) -> Screenshot:
    size = (await _layout(page))["cssContentSize"]
    return await _take(page, Region(0, 0, size["width"], size["height"]), beyond=True)


async def of_element(page: Page, element: Locator) -> Screenshot:
    await element.scroll_into_view_if_needed()
    box = await element.bounding_box()
    if box is None or not box["width"] or not box["height"]:
        raise ToolError("The element has no size, so there is nothing to capture.")
    seen = await _visible_part(page)
    region = Region(seen.x + box["x"], seen.y + box["y"], box["width"], box["height"])
    beyond = region.width > seen.width or region.height > seen.height
    return await _take(page, region, beyond=beyond)


async def _visible_part(page: Page) -> Region:
    seen = (await _layout(page))["cssVisualViewport"]
    return Region(seen["pageX"], seen["pageY"], seen["clientWidth"], seen["clientHeight"])


async def _layout(page: Page) -> dict[str, Any]:
    return await _ask(page, "Page.getLayoutMetrics")


async def _take(page: Page, whole: Region, *, beyond: bool = False) -> Screenshot:
    scale = max(_MIN_SCALE, min(1, MAX_SIDE_PIXELS / max(whole.width, whole.height)))
    most = MAX_SIDE_PIXELS / scale
    region = Region(whole.x, whole.y, min(whole.width, most), min(whole.height, most))
    clip = {**vars(region), "scale": scale}
    data, kind = await _encoded(page, {"clip": clip, "captureBeyondViewport": beyond})
    about = [f"{region.width * scale:.0f} by {region.height * scale:.0f} pixels"]
    if scale < 1:
        about.append(f"scaled to {scale:.0%}")
    if region != whole:
        about.append(
            f"truncated from {whole.width:.0f} by {whole.height:.0f}; scroll to see the rest"
        )
    image = ImageContent(type="image", data=data, mime_type=f"image/{kind}")
    return Screenshot(image, f"Screenshot: {', '.join(about)}.")


async def _encoded(page: Page, what: dict[str, Any]) -> tuple[str, str]:
    """Capture a PNG, for sharp text, or a JPEG if the PNG is too large."""
    data = await _capture(page, what | {"format": "png"})
    kind = "png"
    for quality in _QUALITIES:
        if len(data) <= MAX_MESSAGE_BYTES:
            break
        data = await _capture(page, what | {"format": "jpeg", "quality": quality})
        kind = "jpeg"
    return data, kind


async def _capture(page: Page, what: dict[str, Any]) -> str:
    data: str = (await _ask(page, "Page.captureScreenshot", what))["data"]
    return data


async def _ask(page: Page, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
    # Chromium's protocol: playwright's screenshots cannot be scaled and wait for fonts that may never load.
    # No detach in a `finally`: it hangs like the page, and a leaked session costs little.
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        session = await page.context.new_cdp_session(page)
        answer: dict[str, Any] = await session.send(method, parameters)
        await session.detach()
    return answer
