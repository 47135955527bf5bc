from dataclasses import dataclass

from playwright.async_api import Dialog, Error

from sandbox_tools.browser.arguments import Answer
from sandbox_tools.browser.page_events import PageEvents


@dataclass
class Dialogs:
    """Answers dialogs at once, since a page stands still while one is open, and notes what they said."""

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
        except Error:  # its page is gone
            return
        self.events.add(_describe(dialog, accepted=accepts))

    def _text_for(self, dialog: Dialog) -> str | None:
        if dialog.type != "prompt":
            return None
        return dialog.default_value if self.text is None else self.text


def _describe(dialog: Dialog, *, accepted: bool) -> str:
    if dialog.type == "alert":
        return f"The page showed an alert: {dialog.message}"
    if dialog.type == "beforeunload":
        return "The page asked whether to be left, and was."
    if accepted:
        return f'The {dialog.type} was accepted: "{dialog.message}"'
    # What to do comes first: the page's words may be cut.
    return f'A {dialog.type} was dismissed; do it again with dialog="accept" to accept it: "{dialog.message}"'
