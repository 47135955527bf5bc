import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from sandbox_server.db.account import Account, CannotRunPostgres
from sandbox_server.db.postgres_programs import PostgresPrograms
from sandbox_server.db.postmaster import has_survivors, is_running, remove_stale_pid_files

ACCOUNT = "sandbox-server"
_USER = "sandbox"
_DATABASE = "postgres"
_SOCKET = ".s.PGSQL.5432"
_LONGEST_SOCKET_PATH = 103  # macOS; Linux allows 107 bytes
_PATIENCE_S = 300.0


class EmbeddedPostgres:
    """An embedded PostgreSQL in a directory, reached through a private socket.

    It is nobody's child: it outlives the process that started it, and the next start finds it running.
    """

    def __init__(
        self,
        directory: Path,
        *,
        account: str = ACCOUNT,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._directory = directory.absolute()
        self._account = Account.ours_or(account)
        self._given_programs = programs
        self._settings = settings or {}
        self._data = self._directory / "data"
        self._password_file = self._directory / "password"

    @property
    def is_running(self) -> bool:
        return is_running(self._data)

    def start(self) -> str:
        """Start it unless it is running, and return its URL."""
        self._make_directory()
        with self._locked() as lock:
            programs = self._programs()
            password = self._password()
            socket = self._socket_directory()
            self._make_cluster(programs, lock=lock)
            if not is_running(self._data):
                self._start(programs, socket)
            if not _wait(lambda: programs.answers(socket)):
                raise CannotRunPostgres(
                    f"PostgreSQL does not respond. Its log is in {self._data / 'log'}."
                )
        return f"postgresql://{_USER}:{password}@/{_DATABASE}?host={quote(str(socket), safe='')}"

    def stop(self) -> None:
        """Stop it, also if another process started it; committed data is on disk."""
        if not self._data.exists():
            return
        with self._locked():
            if is_running(self._data):
                self._programs().stop(self._data)

    def _make_directory(self) -> None:
        if not self._directory.exists():
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        found = self._directory.stat()
        if found.st_uid not in (os.geteuid(), self._account.uid) or found.st_mode & 0o022:
            raise CannotRunPostgres(
                f"Other accounts can write to {self._directory}. Change its owner and mode (chown, chmod go-w)."
            )
        if found.st_uid == os.geteuid():
            self._directory.chmod(0o711)  # an account that can open it could hold our lock forever
        closed = self._account.closed_parent(self._data)
        if closed is not None:
            raise CannotRunPostgres(
                f"The account {self._account.name} cannot enter {closed}. Choose another "
                f"--state-dir, or grant access: chmod o+x {closed}"
            )

    @contextmanager
    def _locked(self) -> Iterator[int]:
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield directory
        finally:
            os.close(directory)

    def _programs(self) -> PostgresPrograms:
        if self._given_programs is not None:
            return PostgresPrograms(self._given_programs, account=self._account)
        return PostgresPrograms.bundled(account=self._account, copies=self._directory)

    def _password(self) -> str:
        if not self._password_file.exists():
            if self._data.exists():
                raise CannotRunPostgres(
                    f"{self._password_file} is missing; the database in {self._data} needs it. Restore it from a backup."
                )
            self._write_password()
        self._require_private(self._password_file)
        return self._password_file.read_text()

    def _write_password(self) -> None:
        descriptor, fresh = tempfile.mkstemp(dir=self._directory)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
            file.flush()
            os.fsync(descriptor)
        self._account.own(Path(fresh))
        Path(fresh).rename(self._password_file)

    def _require_private(self, path: Path) -> None:
        found = path.lstat()
        others = stat.S_ISLNK(found.st_mode) or found.st_mode & 0o077
        if others or found.st_uid != self._account.uid:
            raise CannotRunPostgres(
                f"{path} must belong to the account {self._account.name} and be private "
                f"(chown {self._account.name}, chmod go=)."
            )

    def _socket_directory(self) -> Path:
        """Create it next to the data, or below /tmp if the path would be too long."""
        directory = self._directory / "socket"
        if len(os.fsencode(directory / _SOCKET)) > _LONGEST_SOCKET_PATH:
            name = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:16]
            directory = Path("/tmp") / f"sandbox-server-{name}"  # noqa: S108 - checked below
        self._make_private(directory)
        return directory

    def _make_private(self, directory: Path) -> None:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        if directory.lstat().st_uid == os.geteuid():  # created now, or by a start that died here
            self._account.own(directory)
        self._require_private(directory)

    def _make_cluster(self, programs: PostgresPrograms, *, lock: int) -> None:
        if not self._data.exists():
            fresh = self._directory / "data.new"
            shutil.rmtree(fresh, ignore_errors=True)  # its start died
            self._make_private(fresh)
            programs.make_cluster(fresh, user=_USER, password_file=self._password_file, lock=lock)
            fresh.rename(self._data)
        self._require_private(self._data)
        made_by = (self._data / "PG_VERSION").read_text().strip()
        if made_by != programs.major_version():
            raise CannotRunPostgres(
                f"{self._data} was created by PostgreSQL {made_by}, but this is {programs.major_version()}: "
                "migrate it with pg_dump, or install that version."
            )

    def _start(self, programs: PostgresPrograms, socket: Path) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(socket),
            "unix_socket_permissions": "0700",
            "password_encryption": "scram-sha-256",
            # One log file per weekday: keeps one week.
            "logging_collector": "on",
            "log_filename": "%a.log",
            "log_truncate_on_rotation": "on",
            **self._settings,
        }
        _wait(lambda: not has_survivors(self._data))
        remove_stale_pid_files(
            self._data, self._data / "postmaster.pid", socket / f"{_SOCKET}.lock"
        )
        try:
            programs.start(self._data, settings=settings)
        except CannotRunPostgres:
            # A server begun by a killed start may have been quicker.
            if not is_running(self._data):
                raise


def _wait(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
