_LEFT_OUT = " … "


def storable(text: str) -> str:
    """Remove what PostgreSQL's text type and UTF-8 cannot store."""
    return text.replace("\0", "").encode(errors="replace").decode()


def both_ends(text: str, most: int) -> str:
    """Leave out the middle of what is too long: a program that says much says why at its beginning or its end."""
    half = (most - len(_LEFT_OUT)) // 2
    return text if len(text) <= most else f"{text[:half]}{_LEFT_OUT}{text[-half:]}"
