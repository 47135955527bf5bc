import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sandbox_server.browsers.records.captcha_scripts import fill_script, find_script
from sandbox_server.browsers.records.captcha_solver import (
    Captcha,
    CaptchaKind,
    CaptchaNotSolved,
    CaptchaSolver,
)
from sandbox_server.browsers.records.cdp_client import CdpClient, CdpFailure
from sandbox_server.browsers.records.entries import EntryKind, LogEntry

LOOK_EVERY = timedelta(seconds=1)
STARTED = "browserbase-solving-started"
FINISHED = "browserbase-solving-finished"

_MOST_ATTEMPTS = 100  # of one page
_LONGEST_KEY = 500


@dataclass(frozen=True, kw_only=True)
class CaptchaOptions:
    """Selectors of a captcha that is a picture with a field for its text."""

    image: str | None = None
    text_input: str | None = None


class CaptchaWatch:
    """Looks for captchas on one page and has them solved, each once per document."""

    def __init__(
        self,
        client: CdpClient,
        target_session: str,
        *,
        session_id: str,
        page: int,
        solver: CaptchaSolver,
        options: CaptchaOptions,
        add_entry: Callable[[LogEntry], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._target_session = target_session
        self._session_id = session_id
        self._page = page
        self._solver = solver
        self._options = options
        self._add_entry = add_entry
        self._now_ms = now_ms
        self._attempted: set[tuple[str, str, str]] = set()
        self._document = 0

    def on_navigated(self) -> None:
        """Note a new document, whose captchas have no solutions yet."""
        self._document += 1

    async def run(self) -> None:
        """Look until cancelled, or until the connection ends."""
        while not self._client.closed.is_set() and len(self._attempted) < _MOST_ATTEMPTS:
            await asyncio.sleep(LOOK_EVERY.total_seconds())
            try:
                captcha = await self._find()
                if captcha is not None:
                    await self._solve(captcha)
            except CdpFailure:
                continue  # the page navigates, or a dialog blocks it

    async def _find(self) -> Captcha | None:
        found = await self._evaluate(find_script(self._options.image, self._options.text_input))
        if not isinstance(found, dict) or not isinstance(found.get("found"), list):
            return None
        url = str(found.get("url"))
        for each in found["found"]:
            captcha = await self._read(each, url) if isinstance(each, dict) else None
            if captcha is not None:
                return captcha
        return None

    async def _read(self, found: Mapping[str, Any], url: str) -> Captcha | None:
        try:
            kind = CaptchaKind(str(found.get("kind")))
        except ValueError:
            return None
        key = str(found.get("siteKey") or "")[:_LONGEST_KEY]
        attempt = (f"{self._document} {url}", kind, key)
        if attempt in self._attempted:
            return None
        self._attempted.add(attempt)
        if kind is CaptchaKind.IMAGE:
            return Captcha(kind=kind, page_url=url, image=await self._picture(found.get("box")))
        action = found.get("action")
        return Captcha(
            kind=kind,
            page_url=url,
            site_key=key,
            action=action[:_LONGEST_KEY] if isinstance(action, str) else None,
        )

    async def _picture(self, box: object) -> str:
        taken = await self._client.call(
            "Page.captureScreenshot",
            {"format": "png", "clip": {**(box if isinstance(box, dict) else {}), "scale": 1}},
            session_id=self._target_session,
        )
        return str(taken.get("data"))

    async def _solve(self, captcha: Captcha) -> None:
        name = captcha.kind.value
        self._log(f"Solving of a captcha ({name}) started.", captcha, level="info")
        await self._announce(STARTED)
        try:
            token = await self._solver.solve(captcha, session_id=self._session_id)
        except CaptchaNotSolved as error:
            self._log(f"The captcha ({name}) was not solved: {error}.", captcha, level="error")
        else:
            await self._evaluate(fill_script(name, token, self._options.text_input))
            self._log(f"The captcha ({name}) was solved.", captcha, level="info")
        await self._announce(FINISHED)

    def _log(self, text: str, captcha: Captcha, *, level: str) -> None:
        self._add_entry(
            LogEntry(
                at_ms=self._now_ms(),
                page=self._page,
                kind=EntryKind.CAPTCHA,
                text=text,
                level=level,
                url=captcha.page_url[:2000],
            )
        )

    async def _announce(self, event: str) -> None:
        """Write the event to the page's console, where clients of Browserbase listen for it."""
        await self._evaluate(f"console.log('{event}')")

    async def _evaluate(self, script: str) -> Any:
        answer = await self._client.call(
            "Runtime.evaluate",
            {"expression": script, "returnByValue": True},
            session_id=self._target_session,
        )
        result = answer.get("result")
        return result.get("value") if isinstance(result, dict) else None
