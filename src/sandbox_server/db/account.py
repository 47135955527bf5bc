import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# One process for all directories of a path: a start asks for a dozen paths.
_FIRST_CLOSED = 'n=0; for d; do test -x "$d" || { echo $n; exit; }; n=$((n + 1)); done'


class CannotRunPostgres(RuntimeError):
    """What keeps the embedded PostgreSQL from running, and what can be done about it."""


@dataclass(frozen=True)
class Account:
    """Whom PostgreSQL runs as and its files belong to; it refuses to be root."""

    name: str
    uid: int
    gid: int

    @classmethod
    def ours_or(cls, name: str) -> "Account":
        """Take the account that we run as; for root the named one, made where it is missing."""
        uid = os.geteuid()
        entry = pwd.getpwuid(uid) if uid != 0 else _find(name) or _make(name)
        if entry.pw_uid == 0:
            raise CannotRunPostgres("PostgreSQL does not run as root: name another account.")
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    @classmethod
    def find(cls, name: str) -> "Account | None":
        """Give what `ours_or` would, unless it would have to make it."""
        uid = os.geteuid()
        entry = pwd.getpwuid(uid) if uid != 0 else _find(name)
        return None if entry is None else cls(entry.pw_name, entry.pw_uid, entry.pw_gid)

    def run(
        self, *command: str | Path, keep_open: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as this account, with none of the caller's variables."""
        return subprocess.run(  # noqa: S603
            command,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},  # PGDATA and its like would have a say
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
        """Find the first directory on the way to `path` that this account may not enter."""
        directories = [*reversed(path.parents)]
        first = self.run("sh", "-c", _FIRST_CLOSED, "sh", *directories).stdout
        return directories[int(first)] if first else None

    def _may(self, test: str, path: Path) -> bool:
        # The kernel is asked, which knows of access lists too.
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
    entry = _find(name)  # another starter may have made it in the meantime
    if entry is None:
        raise CannotRunPostgres(f"The account {name} cannot be made: {made.stderr.strip()}")
    return entry
