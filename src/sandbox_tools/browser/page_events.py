from sandbox_tools.toolkit.truncation import cut_line

_MOST = 12
_MOST_OF_A_NOTE = 300


class Notes:
    """What happened in the browser and has not been told yet."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._untold = 0

    def add(self, text: str) -> None:
        """Have the next result tell something, once; pages have a say in it, so it is one short line."""
        line = in_one_line(text, at_most=_MOST_OF_A_NOTE)
        if line in self._texts:
            return
        if len(self._texts) < _MOST:
            self._texts.append(line)
        else:
            self._untold += 1

    def take(self) -> list[str]:
        texts = [*self._texts, *([f"And {self._untold} more of that."] if self._untold else [])]
        self._texts, self._untold = [], 0
        return texts


def in_one_line(text: str, *, at_most: int) -> str:
    return cut_line(" ".join(text.split()), at_most=at_most)
