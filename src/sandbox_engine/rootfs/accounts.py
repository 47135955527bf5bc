import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from sandbox_engine.rootfs.ownership import ID_COUNT, Owner
from sandbox_engine.rootfs.root import Root

_LIMIT_BYTES = 1 << 20


class UnknownUser(Exception):
    """The sandbox has no user with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"unknown user {name}")
        self.name = name


class InvalidPath(ValueError):
    """The path is invalid."""


@dataclass(frozen=True)
class Account:
    """A user of a sandbox; ids are those inside, the primary group comes first."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str

    @property
    def owner(self) -> Owner:
        return Owner(self.uid, self.gid)


class Accounts:
    """Users and groups of a sandbox, from its own files."""

    def __init__(self, passwd: str, group: str) -> None:
        self._users = list(_records(passwd, fields=7))
        self._groups = list(_records(group, fields=4))
        self._user_names = {int(uid): name for name, _, uid, *_ in reversed(self._users)}
        self._group_names = {int(gid): name for name, _, gid, _ in reversed(self._groups)}

    @classmethod
    def read(cls, root: Root) -> Self:
        """Read the sandbox's files; malformed lines are skipped."""
        return cls(_text(root, "/etc/passwd"), _text(root, "/etc/group"))

    def find(self, name: str) -> Account:
        """Find a user by name."""
        for found, _, uid, gid, _, home, shell in self._users:
            if found == name and (primary := _id(gid)) is not None:
                return Account(
                    name=name,
                    uid=int(uid),
                    gid=primary,
                    groups=(primary, *self._supplementary(name, primary)),
                    home=home if home.startswith("/") else "/",
                    shell=shell or "/bin/sh",
                )
        raise UnknownUser(name)

    def find_group(self, name: str) -> int:
        """Find a group by name or number."""
        for found, _, gid, _ in self._groups:
            if name in (found, gid):
                return int(gid)
        if (number := _id(name)) is not None:
            return number
        raise UnknownUser(name)

    def user_name(self, uid: int) -> str:
        """Return a user's name, or its number if it has none."""
        return self._user_names.get(uid) or str(uid)

    def group_name(self, gid: int) -> str:
        """Return a group's name, or its number if it has none."""
        return self._group_names.get(gid) or str(gid)

    def _supplementary(self, name: str, primary: int) -> list[int]:
        found = [int(gid) for _, _, gid, members in self._groups if name in members.split(",")]
        return [gid for gid in dict.fromkeys(found) if gid != primary]


def resolve_path(path: str, account: Account, *, workdir: str | None = None) -> str:
    """Make a path absolute and normalized, with `~` expanded."""
    if "\0" in path:
        raise InvalidPath("path contains invalid characters: a NUL byte")
    if not path and workdir is not None:
        path = workdir
    head, _, rest = path.partition("/")
    if head == "~":
        path = f"{account.home}/{rest}"
    elif head.startswith("~"):
        raise InvalidPath(
            f"failed to expand path '{path}' for user '{account.name}': "
            "cannot expand user-specific home dir"
        )
    # A POSIX path may begin with exactly two slashes, which normpath keeps.
    return "/" + posixpath.normpath(posixpath.join(account.home, path)).lstrip("/")


def _text(root: Root, path: str) -> str:
    try:
        return root.read(path, limit=_LIMIT_BYTES).decode(errors="surrogateescape")
    except OSError:
        return ""


def _records(text: str, *, fields: int) -> Iterator[list[str]]:
    for line in text.split("\n"):
        record = line.split(":")
        has_name = len(record) == fields and record[0] and "\0" not in line
        if has_name and _id(record[2]) is not None:
            yield record


def _id(text: str) -> int | None:
    """Parse a user or group id; None for ids that sandboxes cannot have."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(ID_COUNT))):
        return None
    return number if (number := int(text)) < ID_COUNT else None
