"""Drives the web interface at `/ui/` like a user."""

import asyncio
import os
from itertools import product
from pathlib import Path
from typing import Any, Literal

from playwright.async_api import Page

from tests.server.web.page_driver import PATIENCE_MS, FirstPage

ROOT = Path(__file__).parent.parent.parent.parent
_AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
_THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_SIZES = (("wide", 1280, 720), ("phone", 390, 844))
_FIND_BARRIERS = """async () => {
  const found = await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]});
  return found.violations.map(({id, nodes}) => `${id}: ${nodes.map(({html}) => html).join(" | ")}`);
}"""


class Interface(FirstPage):
    """A browser tab with the interface."""

    page: Page

    async def sign_in(self, key: str) -> None:
        await self.page.goto(self.url)
        await self.enter(key)
        await self.until_live()

    async def until_live(self) -> None:
        await self.page.locator("[data-connection=live]").wait_for(timeout=PATIENCE_MS)

    async def until_cookies_are_gone(self) -> None:
        """Wait until the server has answered to the sign-out."""
        for _ in range(PATIENCE_MS // 50):
            if not await self.page.context.cookies():
                return
            await asyncio.sleep(0.05)
        raise AssertionError(await self.page.context.cookies())

    async def picture(self, name: str) -> None:
        """Save the page as a person sees it, wide and on a phone, in both themes, if PICTURES names a directory."""
        if (directory := os.environ.get("PICTURES")) is None:
            return
        for theme, (size, width, height) in product(_THEMES, _SIZES):
            await self.page.emulate_media(color_scheme=theme)
            await self.page.set_viewport_size({"width": width, "height": height})
            await self.page.screenshot(path=Path(directory, f"{name}-{theme}-{size}.png"))

    async def barriers(self) -> list[str]:
        """List what axe objects to on the page as it is now."""
        await self.page.evaluate(_AXE.read_text())
        found: list[Any] = await self.page.evaluate(_FIND_BARRIERS)
        return [str(each) for each in found]
