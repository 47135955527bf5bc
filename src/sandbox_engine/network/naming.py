def link_prefix(instance: str) -> str:
    """Return the prefix of an engine's link names."""
    return f"sb{instance}"
