"""Makes untrusted text from sandboxes safe to print: a terminal would execute its escape sequences."""


def escape_controls(text: str, *, keep: str = "") -> str:
    """Replace control characters, escapes and direction marks by visible notation."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
