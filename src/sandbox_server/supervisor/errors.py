class CannotServe(RuntimeError):
    """What keeps the server from starting, and what can be done about it."""
