import errno
import os
import posixpath
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Self

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.filesystems import RefusedFile, require_data
from sandbox_engine.rootfs.ownership import UID_BASE, IdRange, Owner
from sandbox_engine.rootfs.shared_descriptor import SharedDescriptor
from sandbox_engine.rootfs.trees import remove_tree, require_no_mount
from sandbox_engine.system.syscalls import RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, openat2

# openat2 fails with EAGAIN if a rename anywhere on the machine coincides with resolving a `..`:
# next to a neighbour that renames without pause one try in a hundred succeeds.
_TRIES_TO_RESOLVE = 10_000
_TRIES_TO_CREATE = 100
_USUAL_MODE = 0o755

# Errors of creating a file on a file system of the sandbox's own, like its /dev/shm.
_NO_PLACE_FOR_HOST_ROOT = errno.EOVERFLOW


class Root:
    """Safe access to a sandbox's file tree from the host; all methods block.

    The kernel resolves each path once, below the sandbox's root, whatever its links are and
    whichever entries are renamed meanwhile. After that only descriptors are used.

    The host's root does only what the sandbox's root could: files of ids outside the sandbox, such
    as files mounted from the host, are read only if world-readable, and never changed.
    """

    def __init__(self, descriptor: int, *, uid_base: int = UID_BASE) -> None:
        self._handle = SharedDescriptor(descriptor)
        self._ids = IdRange(uid_base)
        self._making = threading.Lock()
        # "/" of another mount namespace; in tests a directory of this one.
        self._place = _place(descriptor).rstrip("/")

    @classmethod
    def at(cls, path: str) -> Self:
        """Open the tree below a directory of the host, such as `/proc/<pid>/root`."""
        return cls(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """Close the tree; operations in progress finish, new ones are rejected."""
        self._handle.close()

    def on_close(self, callback: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `farewell` if the tree is closed within this context, in any thread."""
        return self._handle.on_close(callback)

    def locate(self, path: str, flags: int = 0) -> int:
        """Open `path` with O_PATH, without side effects."""
        return self._open(path, flags | os.O_PATH)

    def stat(self, path: str) -> os.stat_result:
        """Return the status of what `path` leads to."""
        with closing(self.locate(path)) as place:
            return os.fstat(place)

    def open_file(self, path: str, flags: int = os.O_RDONLY) -> int:
        """Open an existing regular file with data; rejects everything else."""
        with closing(self.locate(path)) as place:
            mode = os.fstat(place).st_mode
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not stat.S_ISREG(mode):
                raise RefusedFile("it is not a regular file")
            if flags & os.O_ACCMODE == os.O_RDONLY:
                self.admit(place)
            else:
                self._require_changeable(place)
            return os.open(_magic(place), flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)

    def open_directory(self, path: str) -> int:
        """Open a directory for listing."""
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self.admit(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def admit(self, descriptor: int) -> None:
        """Reject what the sandbox's root could not read."""
        require_data(descriptor)
        self._require(descriptor, self._ids.may_read)

    def open_for_writing(self, path: str, owner: Owner) -> tuple[int, bool]:
        """Open or create a regular file; returns whether it was created."""
        for _ in range(_TRIES_TO_CREATE):
            try:
                return self.open_file(path, os.O_WRONLY), False
            except FileNotFoundError:
                pass
            try:
                return self._create(path, owner), True
            except FileExistsError:
                path = self._behind(path)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def read(self, path: str, *, limit: int) -> bytes:
        """Read the start of a small file."""
        with closing(self.open_file(path)) as descriptor:
            return os.pread(descriptor, limit, 0)

    def make_directory(self, path: str, owner: Owner, *, mode: int) -> None:
        """Create a directory."""
        with self.parent(path) as (directory, name), self._making:
            os.mkdir(name, 0o700, dir_fd=directory)
            os.close(self._take_over(directory, name, owner, mode))

    def make_directories(self, path: str, owner: Owner, *, mode: int = _USUAL_MODE) -> None:
        """Create a directory with its missing parents."""
        missing: list[str] = []
        while (place := self._find_directory(path)) is None:
            path, name = posixpath.split(path)
            missing.append(name)
        try:
            if missing:
                self._require_changeable(place)
            while missing:
                made = self._make_directory(place, missing.pop(), owner, mode)
                os.close(place)
                place = made
        finally:
            os.close(place)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Open the parent directory of an entry; yields it with the entry's name."""
        _require_no_nul(path)
        directory, name = posixpath.split(path)
        if name in {"", ".", ".."}:
            raise RefusedFile("that is not a name in a directory")
        with closing(self.locate(directory or "/", os.O_DIRECTORY)) as place:
            self._require_changeable(place)
            yield place, name

    def rename(self, source: str, destination: str) -> None:
        """Rename an entry, replacing the target."""
        with self.parent(source) as (old, old_name), self.parent(destination) as (new, new_name):
            require_no_mount(old, old_name)
            require_no_mount(new, new_name)
            os.rename(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)

    def remove(self, path: str) -> None:
        """Remove an entry recursively."""
        with self.parent(path) as (directory, name):
            remove_tree(directory, name)

    def remove_file(self, path: str, descriptor: int) -> None:
        """Remove the open file if the path still leads to it."""
        with self.parent(path) as (directory, name):
            there = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(descriptor)):
                os.unlink(name, dir_fd=directory)

    def give(self, descriptor: int, owner: Owner) -> None:
        """Change the owner of an open file or directory."""
        self._require_changeable(descriptor)
        self._ids.give(descriptor, owner)

    def hand_over(self, directory: int, name: str, owner: Owner) -> None:
        """Change the owner of a newly created entry, without following links."""
        self._ids.give_entry(directory, name, owner)

    def owner(self, status: os.stat_result) -> Owner:
        """Return a file's owner as seen in the sandbox."""
        return self._ids.owner(status)

    def path_of(self, descriptor: int) -> str:
        """Return a descriptor's resolved path in the tree."""
        return _place(descriptor).removeprefix(self._place) or "/"

    def _require_changeable(self, descriptor: int) -> None:
        require_data(descriptor)
        self._require(descriptor, self._ids.may_change)

    def _require(self, descriptor: int, allows: Callable[[os.stat_result], bool]) -> None:
        if allows(os.fstat(descriptor)):
            return
        with self._making:  # it may have just been created without its final owner
            if not allows(os.fstat(descriptor)):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def _open(self, path: str, flags: int) -> int:
        _require_no_nul(path)
        with self._handle.held() as root:
            for _ in range(_TRIES_TO_RESOLVE):
                try:
                    return openat2(
                        root,
                        path,
                        flags,
                        resolve=RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
                    )
                except BlockingIOError:
                    continue
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def _create(self, path: str, owner: Owner) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.parent(path) as (directory, name), self._making:
            try:
                descriptor = os.open(name, flags, 0o600, dir_fd=directory)
            except OSError as error:
                if error.errno != _NO_PLACE_FOR_HOST_ROOT:
                    raise
                with self._ids.acting_as(owner):
                    descriptor = os.open(name, flags, 0o600, dir_fd=directory)
            return self._adopt(descriptor, owner, 0o644)

    def _behind(self, path: str) -> str:
        """Return the target of a dangling symbolic link; otherwise `path`."""
        with self.parent(path) as (directory, name):
            try:
                target = os.readlink(name, dir_fd=directory)
            except OSError:
                return path
        return posixpath.join(posixpath.dirname(path), target)

    def _find_directory(self, path: str) -> int | None:
        try:
            return self.locate(path, os.O_DIRECTORY)
        except FileNotFoundError:
            return None

    def _make_directory(self, parent: int, name: str, owner: Owner, mode: int) -> int:
        with self._making:
            try:
                os.mkdir(name, 0o700, dir_fd=parent)
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno != _NO_PLACE_FOR_HOST_ROOT:
                    raise
                with self._ids.acting_as(owner), suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=parent)
            return self._take_over(parent, name, owner, mode)

    def _take_over(self, parent: int, name: str, owner: Owner, mode: int) -> int:
        """Give a new directory to its owner; an existing one is unchanged."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, dir_fd=parent)
        # Processes in the sandbox cannot create files owned by the host's root, so this is the new
        # directory and not a replacement.
        is_ours = os.fstat(descriptor).st_uid == os.geteuid()
        return self._adopt(descriptor, owner, mode) if is_ours else descriptor

    def _adopt(self, descriptor: int, owner: Owner, mode: int) -> int:
        try:
            os.fchmod(descriptor, mode)
            self._ids.give(descriptor, owner)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _require_no_nul(path: str) -> None:
    # The kernel would cut the path there.
    if "\0" in path:
        raise RefusedFile("the path contains a NUL byte")


def _magic(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _place(descriptor: int) -> str:
    return str(Path(_magic(descriptor)).readlink())
