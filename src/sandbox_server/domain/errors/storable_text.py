def storable(said: str) -> str:
    """Remove what PostgreSQL's text type and UTF-8 cannot store."""
    return said.replace("\0", "").encode(errors="replace").decode()
