def storable(text: str) -> str:
    """Remove what PostgreSQL's text type and UTF-8 cannot store."""
    return text.replace("\0", "").encode(errors="replace").decode()
