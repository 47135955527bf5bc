class CannotServe(RuntimeError):
    """The server cannot start; the message says why and what to do."""
