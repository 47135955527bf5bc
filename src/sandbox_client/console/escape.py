"""What a sandbox wrote, as it may be shown: a terminal would carry out the escapes in it."""


def escape_controls(text: str, *, keep: str = "") -> str:
    """Write out what is no plain character: controls, escapes, what turns the direction of writing."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
