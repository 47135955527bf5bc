"""`sandbox-server db`: what an operator does to the database as a whole."""

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
from sandbox_server.db.migrating import UnknownRevision, downgrade, find_revision, is_current
from sandbox_server.db.programs import Programs
from sandbox_server.db.session import create_engine, without_transaction
from sandbox_server.jobs.kinds import SANDBOX, SERVICES, SNAPSHOT
from sandbox_server.settings import Settings
from sandbox_server.supervisor.database import opened, running_database
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.first_start import ADMIN_KEY_FILE
from sandbox_server.supervisor.providers import LOCAL
from sandbox_server.supervisor.state_directory import sole_server, write_private

_UNUSABLE = 78


def upgrade(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Bring the schema up to date, as every start of the server does."""

    async def open_once(url: str) -> None:
        async with open_database(url, state_dir=settings.state_dir):
            _say("The schema is up to date.")

    with running_database(settings) as url:
        asyncio.run(open_once(url))
    return 0


def take_back(settings: Settings, given: Mapping[str, Any]) -> int:
    """Take the schema back to a revision, before a server of that version is started again."""
    revision: str = given["revision"]

    async def go_back(url: str) -> None:
        engine = create_engine(url, pool_size=1)
        try:
            await downgrade(engine, revision)
        except UnknownRevision:
            raise CannotServe(f"The schema was never at a revision {revision!r}.") from None
        finally:
            await engine.dispose()

    with sole_server(settings.state_dir), running_database(settings) as url:
        asyncio.run(go_back(url))
    _say(f"The schema is at {revision} now; a server of this version would bring it up to date.")
    return 0


def check(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Tell whether a server could work on this database, and what is in it."""
    with running_database(settings) as url:
        obstacles = asyncio.run(_examine(settings, url))
    for obstacle in obstacles:
        _say(f"MISS  {obstacle}")
    return _UNUSABLE if obstacles else 0


def show_backup(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Print how to back everything up, and what to do with a copy."""
    _say("Everything that the server knows is in its database; it may run meanwhile:\n")
    _say(f"  {_dump_command(settings)}\n")
    _say(
        "Keep these with it, and from others: without them nobody can read what is sealed in it.\n"
    )
    for name in (KEY_FILE, ADMIN_KEY_FILE):
        _say(f"  {settings.state_dir / name}")
    _say(
        "\nThe files of sandboxes are at their providers. The engine's are in its directory, which is "
        "to be\ncopied while it is stopped. A database that goes on in the original's place needs "
        "nothing more.\nOne that is to run beside the original, as a test, is cut loose from its "
        "sandboxes first:\n\n  sandbox-server db new-installation"
    )
    return 0


def rotate_encryption(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Seal everything with a new key: the first of the settings, else one that is made now."""
    if settings.encryption_keys is not None:
        keys = read_keys(settings.encryption_keys.get_secret_value())
        with running_database(settings) as url:
            count = asyncio.run(_reseal(url, keys, settings.state_dir))
        _say(
            f"{count} values are sealed with the first key now; the others are of no use any more."
        )
        return 0
    with sole_server(settings.state_dir), running_database(settings) as url:
        count = _rotate_file(url, settings.state_dir)
    _say(f"{count} values are sealed with the new key in {settings.state_dir / KEY_FILE}.")
    return 0


def make_new_installation(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Cut a copied database loose from the sandboxes of the original, which go on without it."""

    async def renew(url: str) -> int:
        async with opened(url) as sessions, sessions.begin() as session:
            return await InstallationRepository(session).renew(
                job_kinds=[SANDBOX, SERVICES, SNAPSHOT]
            )

    with sole_server(settings.state_dir), running_database(settings) as url:
        count = asyncio.run(renew(url))
    _say(f"This database is an installation of its own now; it has let go of {count} sandboxes.")
    return 0


def forget_engine(settings: Settings, _given: Mapping[str, Any]) -> int:
    """Give up the sandboxes of an engine whose files are lost, so that a new one can be `local`."""

    async def forget(url: str) -> int:
        async with opened(url) as sessions, sessions.begin() as session:
            return await InstallationRepository(session).forget_engine(backend=LOCAL)

    with sole_server(settings.state_dir), running_database(settings) as url:
        count = asyncio.run(forget(url))
    _say(f"{count} sandboxes of the engine are given up; the next start takes its own engine.")
    return 0


async def _examine(settings: Settings, url: str) -> Sequence[str]:
    async with opened(url) as sessions:
        async with without_transaction(sessions) as session:
            revision = await find_revision(session)
            if not is_current(revision):
                return ["The schema is older than this server: sandbox-server db upgrade"]
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
    _say(f"{'low ' if dead else 'ok  '}  jobs that were given up: {dead} (GET /v1/jobs lists them)")
    return []


def _keys(settings: Settings) -> list[bytes]:
    given = settings.encryption_keys
    return [] if given is None else read_keys(given.get_secret_value())


async def _reseal(url: str, keys: list[bytes], state_dir: Path) -> int:
    async with opened(url) as sessions:
        return await reencrypt(sessions, await open_vault(sessions, keys=keys, state_dir=state_dir))


def _rotate_file(url: str, state_dir: Path) -> int:
    """At each step of this the file has every key that something may be sealed with."""
    file = state_dir / KEY_FILE
    if not file.exists():
        raise CannotServe(f"There is no {file}: nothing has been sealed with a key of its own.")
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
    programs = Programs.bundled(account=Account.ours_or(ACCOUNT), copies=directory)
    with running_database(settings) as url:
        user, _, place = url.partition("@")
    without_password = f"{user.rpartition(':')[0]}@{place}"
    words = shlex.join([str(programs.path("pg_dump")), *target, without_password])
    return f'PGPASSWORD="$(cat {shlex.quote(str(directory / "password"))})" {words}'


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
