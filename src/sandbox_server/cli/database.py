"""`sandbox-server db`: maintenance of the database."""

import asyncio
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox_server.access.encryption import KEY_FILE, new_key, open_vault, read_keys, reencrypt
from sandbox_server.admin.stats_repository import StatsRepository
from sandbox_server.db.account import Account
from sandbox_server.db.database import open_database
from sandbox_server.db.embedded import ACCOUNT
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.postgres_programs import PostgresPrograms
from sandbox_server.db.schema_migrations import (
    UnknownRevision,
    downgrade,
    find_revision,
    is_current,
)
from sandbox_server.db.session import create_engine, without_transaction
from sandbox_server.jobs.kinds import SANDBOX, SERVICES, SNAPSHOT
from sandbox_server.settings import Settings
from sandbox_server.supervisor.database import opened, running_database
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.first_start import ADMIN_KEY_FILE
from sandbox_server.supervisor.providers import LOCAL
from sandbox_server.supervisor.state_directory import sole_server, write_private

_UNUSABLE = 78


def upgrade(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Migrate the schema to this version, as every start of the server does."""

    async def open_once(url: str) -> None:
        async with open_database(url, state_dir=settings.state_dir):
            _say("The schema is up to date.")

    with running_database(settings) as url:
        asyncio.run(open_once(url))
    return 0


def take_back(settings: Settings, options: Mapping[str, Any]) -> int:
    """Downgrade the schema to a revision, before starting an older server."""
    revision: str = options["revision"]

    async def go_back(url: str) -> None:
        engine = create_engine(url, pool_size=1)
        try:
            await downgrade(engine, revision)
        except UnknownRevision:
            raise CannotServe(f"Unknown schema revision {revision!r}.") from None
        finally:
            await engine.dispose()

    with sole_server(settings.state_dir), running_database(settings) as url:
        asyncio.run(go_back(url))
    _say(f"The schema is now at {revision}. A server of this version would upgrade it again.")
    return 0


def check(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Check whether this version can use the database, and summarize its content."""
    with running_database(settings) as url:
        obstacles = asyncio.run(_examine(settings, url))
    for obstacle in obstacles:
        _say(f"MISS  {obstacle}")
    return _UNUSABLE if obstacles else 0


def show_backup(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Print how to back up and how to use a copy."""
    _say("Back up the database; the server may keep running:\n")
    _say(f"  {_dump_command(settings)}\n")
    _say(
        "Keep these files with the backup, in a safe place: without them its secrets cannot be decrypted.\n"
    )
    for name in (KEY_FILE, ADMIN_KEY_FILE):
        _say(f"  {settings.state_dir / name}")
    _say(
        "\nFiles of sandboxes are stored by their providers. Stop the engine before you copy its "
        "directory.\n\nA restored database that replaces the original needs nothing else. To run a copy "
        "beside the\noriginal, detach it first, so that it does not control the original's "
        "sandboxes:\n\n  sandbox-server db new-installation"
    )
    return 0


def rotate_encryption(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Encrypt all secrets with the first key of the settings, or with a generated one."""
    if settings.encryption_keys is not None:
        keys = read_keys(settings.encryption_keys.get_secret_value())
        with running_database(settings) as url:
            count = asyncio.run(_reseal(url, keys, settings.state_dir))
        _say(
            f"{count} values are now encrypted with the first key. The other keys are no longer needed."
        )
        return 0
    with sole_server(settings.state_dir), running_database(settings) as url:
        count = _rotate_file(url, settings.state_dir)
    _say(f"{count} values are now encrypted with the new key in {settings.state_dir / KEY_FILE}.")
    return 0


def make_new_installation(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Detach a copied database from the sandboxes of the original."""

    async def renew(url: str) -> int:
        async with opened(url) as sessions, sessions.begin() as session:
            return await InstallationRepository(session).renew(
                job_kinds=[SANDBOX, SERVICES, SNAPSHOT]
            )

    with sole_server(settings.state_dir), running_database(settings) as url:
        count = asyncio.run(renew(url))
    _say(f"This database is now a separate installation; {count} sandboxes were detached.")
    return 0


def forget_engine(settings: Settings, _options: Mapping[str, Any]) -> int:
    """Mark the sandboxes of a lost engine as failed, so that a new engine can become `local`."""

    async def forget(url: str) -> int:
        async with opened(url) as sessions, sessions.begin() as session:
            return await InstallationRepository(session).forget_engine(backend=LOCAL)

    with sole_server(settings.state_dir), running_database(settings) as url:
        count = asyncio.run(forget(url))
    _say(
        f"{count} sandboxes of the lost engine are now failed. The next start registers its own engine."
    )
    return 0


async def _examine(settings: Settings, url: str) -> Sequence[str]:
    async with opened(url) as sessions:
        async with without_transaction(sessions) as session:
            revision = await find_revision(session)
            if not is_current(revision):
                return ["The schema is older than this server. Run: sandbox-server db upgrade"]
            installation = await InstallationRepository(session).find_or_make()
            occupancy = await StatsRepository(session).list_occupancy()
            dead = await StatsRepository(session).count_dead_jobs()
        await open_vault(sessions, keys=_keys(settings), state_dir=settings.state_dir)
    states = Counter[str]()
    for count in occupancy:
        states[count.state] += count.count
    _say(
        f"ok    installation {installation.id}, schema up to date, encryption keys complete, revision {revision}"
    )
    _say(f"ok    sandboxes: {', '.join(f'{n} {s}' for s, n in sorted(states.items())) or 'none'}")
    _say(f"{'low ' if dead else 'ok  '}  dead jobs: {dead} (GET /v1/jobs)")
    return []


def _keys(settings: Settings) -> list[bytes]:
    configured = settings.encryption_keys
    return [] if configured is None else read_keys(configured.get_secret_value())


async def _reseal(url: str, keys: list[bytes], state_dir: Path) -> int:
    async with opened(url) as sessions:
        return await reencrypt(sessions, await open_vault(sessions, keys=keys, state_dir=state_dir))


def _rotate_file(url: str, state_dir: Path) -> int:
    """Rotate the key file; at every step it contains all keys in use."""
    file = state_dir / KEY_FILE
    if not file.exists():
        raise CannotServe(
            f"{file} does not exist: this installation has no generated key. Set SANDBOX_SERVER_ENCRYPTION_KEYS."
        )
    old, new = file.read_text().split(), new_key()
    write_private(file, "\n".join([new, *old]) + "\n")
    count = asyncio.run(_reseal(url, read_keys(file.read_text()), state_dir))
    write_private(file, f"{new}\n")
    return count


def _dump_command(settings: Settings) -> str:
    target = ["--format=custom", "--file=sandbox-server.dump"]
    if settings.database_url is not None:
        return f'{shlex.join(["pg_dump", *target])} "$DATABASE_URL"'
    directory = settings.state_dir / "postgres"
    programs = PostgresPrograms.bundled(account=Account.ours_or(ACCOUNT), copies=directory)
    with running_database(settings) as url:
        user, _, place = url.partition("@")
    without_password = f"{user.rpartition(':')[0]}@{place}"
    words = shlex.join([str(programs.path("pg_dump")), *target, without_password])
    return f'PGPASSWORD="$(cat {shlex.quote(str(directory / "password"))})" {words}'


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
