"""Checks the requirements of the server and says how to meet those that are missing."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_server.db.account import Account
from sandbox_server.db.database import OLDEST, find_version
from sandbox_server.db.database_url import UnusablePostgres
from sandbox_server.db.embedded import ACCOUNT
from sandbox_server.db.postgres_programs import are_bundled
from sandbox_server.db.session import create_engine
from sandbox_server.git.process import OLDEST_GIT, find_git_version
from sandbox_server.settings import Settings
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.listeners import listen
from sandbox_server.supervisor.providers import needs_engine
from sandbox_server.supervisor.state_directory import find_server

_UNUSABLE = 78
_LEAST_DISK_MB = 1024
_MIB = 1024**2


@dataclass(frozen=True)
class Finding:
    """Result of one check, with a remedy if it failed."""

    name: str
    good: bool
    detail: str
    fix: str = ""


def command(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Print all findings; return whether the server can run here."""
    able = True
    for finding in examine(settings):
        able = able and finding.good
        sys.stdout.write(
            f"  {'ok  ' if finding.good else 'MISS'}  {finding.name}: {finding.detail}\n"
        )
        if not finding.good:
            sys.stdout.write(f"        -> {finding.fix}\n")
    sys.stdout.flush()
    if needs_engine(settings):
        able = _examine_engine() and able
    sys.stdout.write(f"\nThe server can{'' if able else 'not'} run here{'' if able else ' yet'}.\n")
    return 0 if able else _UNUSABLE


def examine(settings: Settings) -> Iterator[Finding]:
    yield _address(settings)
    yield _disk(settings)
    if settings.database_url is not None:
        yield _given_database(settings.database_url.get_secret_value())
    else:
        yield _own_database(settings)
    yield _git()
    if needs_engine(settings) and os.geteuid() != 0:
        yield _sudo()


def _address(settings: Settings) -> Finding:
    name = f"port {settings.port} of {settings.host}"
    running = find_server(settings.state_dir)
    if running is not None:
        return Finding(
            name, good=True, detail=f"in use by a server of this state directory (pid {running})"
        )
    try:
        for listener in listen(settings.host, settings.port):
            listener.close()
    except CannotServe as error:
        return Finding(name, good=False, detail="cannot listen on it", fix=str(error))
    return Finding(name, good=True, detail="is free")


def _disk(settings: Settings) -> Finding:
    free = shutil.disk_usage(_existing(settings.state_dir)).free // _MIB
    return Finding(
        "disk",
        good=free >= _LEAST_DISK_MB,
        detail=f"{free} MiB free for {settings.state_dir}",
        fix="Free space there or choose another --state-dir.",
    )


def _given_database(url: str) -> Finding:
    try:
        version = asyncio.run(_version_at(url))
    except UnusablePostgres as error:
        return Finding("database", good=False, detail="not usable", fix=str(error))
    return Finding(
        "database",
        good=version >= OLDEST,
        detail=f"PostgreSQL {version} of DATABASE_URL",
        fix=f"Upgrade it to {OLDEST} or newer.",
    )


async def _version_at(url: str) -> int:
    engine = create_engine(url, pool_size=1)
    try:
        return await find_version(engine, url)
    finally:
        await engine.dispose()


def _own_database(settings: Settings) -> Finding:
    account = Account.find(ACCOUNT)
    closed = None if account is None else account.closed_parent(_existing(settings.state_dir) / "x")
    return Finding(
        "database",
        good=are_bundled() and closed is None,
        detail=f"embedded, in {settings.state_dir}, as {account.name if account else ACCOUNT}",
        fix=f"Grant the account access: chmod o+x {closed}. Or choose another --state-dir."
        if closed
        else "No embedded PostgreSQL for this platform: set DATABASE_URL.",
    )


def _git() -> Finding:
    """Check the program that repositories and tasks need: mirrors, checkouts, pushes."""
    found = find_git_version()
    said = "missing" if found is None else ".".join(map(str, found))
    least = ".".join(map(str, OLDEST_GIT))
    return Finding(
        "git",
        good=found is not None and found >= OLDEST_GIT,
        detail=f"{said}, for repositories and tasks",
        fix=f"Install git {least} or newer.",
    )


def _sudo() -> Finding:
    return Finding(
        "sudo",
        good=shutil.which("sudo") is not None,
        detail="needed to start the engine, the only part that needs root",
        fix="Start the server as root, or set E2B_API_KEY to use another provider.",
    )


def _examine_engine() -> bool:
    words = [sys.executable, "-m", "sandbox_engine", "doctor"]
    prefix = [] if os.geteuid() == 0 else ["sudo"]
    return subprocess.run([*prefix, *words], check=False).returncode == 0  # noqa: S603


def _existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())
