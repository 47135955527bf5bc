from dataclasses import dataclass

from playwright.async_api import Dialog, Error

from sandbox_tools.browser.arguments import Answer
from sandbox_tools.browser.page_events import PageEvents


@dataclass
class Dialogs:
    """Answers dialogs immediately, since they block the page, and records their text."""

    events: PageEvents
    answer: Answer = "dismiss"
    text: str | None = None

    async def handle(self, dialog: Dialog) -> None:
        accepts = self.answer == "accept" or dialog.type in {"alert", "beforeunload"}
        try:
            if accepts:
                await dialog.accept(self._text_for(dialog))
            else:
                await dialog.dismiss()
        except Error:  # page closed
            return
        self.events.add(_describe(dialog, accepted=accepts))

    def _text_for(self, dialog: Dialog) -> str | None:
        if dialog.type != "prompt":
            return None
        return dialog.default_value if self.text is None else self.text


def _describe(dialog: Dialog, *, accepted: bool) -> str:
    if dialog.type == "alert":
        return f"Alert shown by the page: {dialog.message}"
    if dialog.type == "beforeunload":
        return "The page asked to confirm leaving; confirmed."
    if accepted:
        return f'Accepted the {dialog.type}: "{dialog.message}"'
    # The advice comes first: the page's text may be truncated.
    return f'Dismissed the {dialog.type}; to accept it, repeat the call with dialog="accept": "{dialog.message}"'
