"""Secrets of API keys, `sbx_…`, of tickets, `sbt_…`, and of logins, `sbl_…`: the rest are 43 characters of chance (256 bits).

So much chance cannot be guessed or listed: one round of SHA-256 keeps it as safe as a slow hash would, and costs a
microsecond. The database is asked for the hash, so how long a comparison takes tells nothing of the secret.
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
    """Tell whether it could be a key of ours, without asking anybody."""
    return _KEY.fullmatch(text) is not None


def is_ticket(text: str) -> bool:
    """Tell whether it could be a ticket of ours, without asking anybody."""
    return _TICKET.fullmatch(text) is not None


def is_login(text: str) -> bool:
    """Tell whether it could be a login of ours, without asking anybody."""
    return _LOGIN.fullmatch(text) is not None


def hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def prefix_of(secret: str) -> str:
    """Give as much of it as its owner needs to tell it from others."""
    return secret[:_PREFIX_LENGTH]
