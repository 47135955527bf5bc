"""Invisible marks in what the server writes at a forge: they find it again, and nothing that bears one starts anything."""

from sandbox_server.db.models import Forge

_MARK = "<!-- sandbox-server:"


def marker(key: str) -> str:
    return f"{_MARK}{key} -->"


def without_markers(text: str) -> str:
    """Remove what would make a comment of an agent look like another comment of the server."""
    return text.replace(_MARK, "")


def marked(body: str, key: str) -> str:
    """Add the marker to a comment."""
    return f"{body}\n\n{marker(key)}"


def is_ours(forge: Forge, *, author: str, body: str) -> bool:
    """Return whether the server wrote it, or whether it imitates the server."""
    return _MARK in body or (forge.bot_login is not None and same_login(author, forge.bot_login))


def same_login(one: str, other: str) -> bool:
    """Compare logins, which ignore case; an App is named with and without `[bot]`."""
    return _plain(one) == _plain(other)


def _plain(login: str) -> str:
    return login.lower().removesuffix("[bot]")
