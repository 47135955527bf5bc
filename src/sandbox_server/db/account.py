import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# One process checks all directories of a path: a start checks a dozen paths.
_FIRST_CLOSED = 'n=0; for d; do test -x "$d" || { echo $n; exit; }; n=$((n + 1)); done'


class CannotRunPostgres(RuntimeError):
    """The embedded PostgreSQL cannot run; the message says why and what to do."""


@dataclass(frozen=True)
class Account:
    """The account of PostgreSQL and its files; PostgreSQL refuses to run as root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def ours_or(cls, name: str) -> "Account":
        """Return our own account; for root the named one, created if missing."""
        uid = os.geteuid()
        entry = pwd.getpwuid(uid) if uid != 0 else _find(name) or _make(name)
        if entry.pw_uid == 0:
            raise CannotRunPostgres("PostgreSQL does not run as root. Choose another account.")
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @classmethod
    def find(cls, name: str) -> "Account | None":
        """Return what `ours_or` would, or None if the account does not exist."""
        uid = os.geteuid()
        entry = pwd.getpwuid(uid) if uid != 0 else _find(name)
        return None if entry is None else cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    def run(
        self, *command: str | Path, keep_open: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, without the caller's environment."""
        return subprocess.run(  # noqa: S603
            command,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},  # variables such as PGDATA would take effect
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            pass_fds=keep_open,
            umask=0o077,
            **self._switch(),
        )

    def _switch(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def can_run(self, program: Path) -> bool:
        return self._may("-x", program)

    def closed_parent(self, path: Path) -> Path | None:
        """Return the first directory in `path` that this account may not enter."""
        directories = [*reversed(path.parents)]
        first = self.run("sh", "-c", _FIRST_CLOSED, "sh", *directories).stdout
        return directories[int(first)] if first else None

    def _may(self, test: str, path: Path) -> bool:
        # Checked by the kernel, which also applies ACLs.
        return self.run("test", test, path).returncode == 0


def _find(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _make(name: str) -> pwd.struct_passwd:
    options = ("--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent")
    made = subprocess.run(  # noqa: S603
        ["useradd", *options, "--shell", "/usr/sbin/nologin", name],  # noqa: S607
        env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    entry = _find(name)  # another process may have created it meanwhile
    if entry is None:
        raise CannotRunPostgres(f"Cannot create the account {name}: {made.stderr.strip()}")
    return entry
