def link_prefix(instance: str) -> str:
    """Tell what the names of an engine's links begin with."""
    return f"sb{instance}"
