from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

_LATELY = timedelta(hours=1)
_MOST = 16  # each takes 0.15 ms whenever stock is taken, which every create has done


class Demand:
    """Which templates are asked for: those that were lately, and some `always`."""

    def __init__(self, always: Sequence[str]) -> None:
        self._always = always
        self._asked: dict[str, datetime] = {}

    def __iter__(self) -> Iterator[str]:
        """Give the references: what is always wanted, however much the others take, then what was asked for last."""
        since = datetime.now(UTC) - _LATELY
        self._asked = {name: at for name, at in self._asked.items() if at > since}
        asked = list(reversed(self._asked))[:_MOST]
        yield from dict.fromkeys((*self._always, *asked))

    def note(self, reference: str) -> None:
        """Remember that somebody asked for this template."""
        self._asked.pop(reference, None)  # the one asked for last is the last one kept
        self._asked[reference] = datetime.now(UTC)

    def forget(self, reference: str) -> None:
        """Stop looking for a template that is no more."""
        self._asked.pop(reference, None)
