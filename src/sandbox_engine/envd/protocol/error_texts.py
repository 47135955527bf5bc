"""Error texts as E2B's daemon, a Go program, words them."""


def reason(error: OSError) -> str:
    """Return Go's text for an error: the C library's, starting in lower case."""
    text = error.strerror or "unknown error"
    return text[:1].lower() + text[1:]
