"""How much a tool says at once: what is more costs agents their context, and is cut where it says so."""

MOST_CHARACTERS = 50_000
MOST_OF_A_LINE = 2_000


def cut_middle(text: str, *, at_most: int = MOST_CHARACTERS) -> str:
    """Keep the beginning and the end of a text, and say between them how much is missing."""
    if len(text) <= at_most:
        return text
    head = at_most // 2
    tail = at_most - head
    return f"{text[:head]}\n[… {len(text) - at_most} characters cut …]\n{text[-tail:]}"


def cut_end(text: str, *, at_most: int = MOST_CHARACTERS, rest: str = "") -> str:
    """Keep the beginning of a text, and say how much is missing and by `rest` how to get it."""
    if len(text) <= at_most:
        return text
    return f"{text[:at_most]}\n[… {len(text) - at_most} characters cut{rest and '; '}{rest}]"


def cut_line(line: str, *, at_most: int = MOST_OF_A_LINE) -> str:
    """Keep the beginning of a line, and say in it how much is missing."""
    if len(line) <= at_most:
        return line
    return f"{line[:at_most]} [… {len(line) - at_most} characters cut]"
