import shlex
from collections.abc import Sequence


def line_of(words: Sequence[str]) -> str:
    """Write a command as a line for a shell: one word is such a line, several are arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)
