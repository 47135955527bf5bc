from sandbox_tools.toolkit.truncation import truncate_line

_MAX = 12
_MAX_NOTE = 300


class PageEvents:
    """Events of pages that no result has reported yet."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._dropped = 0

    def add(self, text: str) -> None:
        """Add an event for the next result, without duplicates; shortened to one line, since pages influence it."""
        line = single_line(text, limit=_MAX_NOTE)
        if line in self._texts:
            return
        if len(self._texts) < _MAX:
            self._texts.append(line)
        else:
            self._dropped += 1

    def take(self) -> list[str]:
        texts = [*self._texts, *([f"And {self._dropped} more events."] if self._dropped else [])]
        self._texts, self._dropped = [], 0
        return texts


def single_line(text: str, *, limit: int) -> str:
    return truncate_line(" ".join(text.split()), limit=limit)
