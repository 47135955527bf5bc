"""The texts that E2B's daemon, a Go program, gives for what went wrong."""


def reason(error: OSError) -> str:
    """Say why as Go does: like the C library, but beginning in lower case."""
    text = error.strerror or "unknown error"
    return text[:1].lower() + text[1:]
