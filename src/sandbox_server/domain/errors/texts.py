def storable(said: str) -> str:
    """Leave out of what others say what PostgreSQL's texts and UTF-8 cannot hold."""
    return said.replace("\0", "").encode(errors="replace").decode()
