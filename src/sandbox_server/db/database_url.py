"""Addresses of databases in messages, without passwords."""

import os
import re
import socket
from typing import NoReturn
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import asyncpg
from sqlalchemy.exc import DBAPIError

VARIABLE = "DATABASE_URL"
MALFORMED = (
    f"{VARIABLE} is not the URL of a PostgreSQL database. It has the form "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with / @ : ? # in the user and the password "
    "percent-encoded."
)

_SCHEME = re.compile(r"postgres(ql)?(\+\w+)?")
_HOST = re.compile(r"(?P<name>[\w.-]*|\[[0-9a-fA-F:.%]+\])(:(?P<port>[0-9]{1,5}))?")
_USUAL_PORT, _LAST_PORT = 5432, 65535


class UnusablePostgres(RuntimeError):
    """The database cannot be used: unreachable, access denied or too old."""


def place_of(url: str) -> str:
    """Return the host and port, or the socket directory, of a libpq URL."""
    parts = _split(url)
    hosts = parts.netloc.rpartition("@")[2]
    named = unquote(hosts) or parse_qs(parts.query).get("host", [""])[-1]
    if named.startswith("/"):
        return f"the socket in {named}"
    return ", ".join(map(_with_port, named.split(",")))


def refuse(error: Exception, url: str) -> NoReturn:
    """Explain why a connection failed and what to do."""
    raise UnusablePostgres(
        f"Cannot connect to PostgreSQL at {place_of(url)} ({VARIABLE}): {_reason(error)}. {_remedy(error)}"
    ) from None


def server_error(error: Exception) -> BaseException:
    """Unwrap the driver's exception from SQLAlchemy's."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise UnusablePostgres(MALFORMED) from None
    # An unescaped `/` in a password would split it into host and path.
    is_cut = "@" not in parts.netloc and "@" in parts.path + parts.query + parts.fragment
    is_ours = _SCHEME.fullmatch(parts.scheme) is not None and "://" in url
    if not is_ours or is_cut or parts.netloc.count("@") > 1:
        raise UnusablePostgres(MALFORMED)
    return parts


def _with_port(host: str) -> str:
    found = _HOST.fullmatch(host)
    port = _USUAL_PORT if found is None else int(found["port"] or _USUAL_PORT)
    if found is None or port > _LAST_PORT:
        raise UnusablePostgres(MALFORMED)
    return f"{found['name'] or 'localhost'}:{port}"


def _reason(error: Exception) -> str:
    found = server_error(error)
    if isinstance(found, TimeoutError):
        return "no answer"
    if isinstance(found, socket.gaierror):
        return f"the host is unknown ({found.strerror})"
    if isinstance(found, OSError) and found.errno:
        return os.strerror(found.errno)
    return str(found).partition("\n")[0].rstrip(".")


def _remedy(error: Exception) -> str:
    match server_error(error):
        case asyncpg.InvalidAuthorizationSpecificationError():
            return f"Correct the user or the password in {VARIABLE}."
        case asyncpg.InvalidCatalogNameError():
            return f"Create the database, or correct its name in {VARIABLE}."
        case OSError():
            return f"Check that it runs there, and correct host and port in {VARIABLE}."
        case _:
            return f"Correct {VARIABLE}."
