"""Secrets of API keys (`sbx_…`), tickets (`sbt_…`) and logins (`sbl_…`): a prefix and 256 random bits.

256 random bits cannot be guessed or enumerated, so one round of SHA-256 is as safe as a slow hash and costs a
microsecond. Lookups are by hash, so the time of a comparison reveals nothing about the secret.
"""

import hashlib
import re
import secrets

_KEY = re.compile(r"sbx_[A-Za-z0-9_-]{43}")
_TICKET = re.compile(r"sbt_[A-Za-z0-9_-]{43}")
_LOGIN = re.compile(r"sbl_[A-Za-z0-9_-]{43}")
_PREFIX_LENGTH = 10


def new_secret() -> str:
    return f"sbx_{secrets.token_urlsafe(32)}"


def new_ticket() -> str:
    return f"sbt_{secrets.token_urlsafe(32)}"


def new_login() -> str:
    return f"sbl_{secrets.token_urlsafe(32)}"


def is_secret(text: str) -> bool:
    """Return whether the text has the format of an API key."""
    return _KEY.fullmatch(text) is not None


def is_ticket(text: str) -> bool:
    """Return whether the text has the format of a ticket."""
    return _TICKET.fullmatch(text) is not None


def is_login(text: str) -> bool:
    """Return whether the text has the format of a login secret."""
    return _LOGIN.fullmatch(text) is not None


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def prefix_of(secret: str) -> str:
    """Return the part of a secret that is stored and shown to identify the key."""
    return secret[:_PREFIX_LENGTH]
