"""Output that a message quotes: of the setup, of the repository's checks, of jobs at the forge.

It is kept apart from the words of the message, because the agent is told those as they are and output as data.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from sandbox_server.db.models import TaskMessage

_KEY = "quotes"


@dataclass(frozen=True, kw_only=True)
class Quote:
    about: str
    text: str
    check: str | None = None
    """Id of the check at the forge whose log it is."""


def with_quotes(*quotes: Quote, **data: Any) -> dict[str, Any]:
    """Build the data of a message that quotes output."""
    return {**data, _KEY: [asdict(quote) for quote in quotes]}


def quotes_of(message: TaskMessage) -> list[Quote]:
    return [Quote(**document) for document in message.data.get(_KEY, ())]


def full_text(message: TaskMessage) -> str:
    """Return a message with all that it quotes, as people read it."""
    return "\n\n".join(_parts(message))


def _parts(message: TaskMessage) -> Iterator[str]:
    yield message.text
    for quote in quotes_of(message):
        yield f"{quote.about}\n{quote.text}".rstrip()
