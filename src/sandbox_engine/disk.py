import errno
import fcntl
import os
import struct
from pathlib import Path

from sandbox_engine.runner import Runner
from sandbox_engine.sparse import copy_data
from sandbox_engine.syscalls import (
    MNT_DETACH,
    MS_NOATIME,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    mount,
    unmount,
)

_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_LO_FLAGS_AUTOCLEAR = 4
_LO_FLAGS_DIRECT_IO = 16
_LOOP_MAJOR = 7

# Direct I/O keeps the image out of the page cache (the mounted file system has its own), and
# discard gives the space of deleted files back to the host.
_MOUNT_OPTIONS = "discard,noinit_itable,errors=remount-ro"

MKFS = (
    "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=4",
    "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
    "-O", "^resize_inode,sparse_super2", "-i", "16384",
)  # fmt: skip


async def make(image: Path, *, size_mb: int, run: Runner) -> None:
    """Make an image with an empty file system of this size, which takes no room yet."""
    with image.open("wb") as file:
        os.ftruncate(file.fileno(), size_mb << 20)
    made = await run([*MKFS, str(image)])
    if made.returncode != 0:
        raise OSError(made.stderr.decode(errors="replace"))


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file with its holes."""
    with source.open("rb") as reader, target.open("xb") as writer:
        copy_data(reader.fileno(), writer.fileno())


def attach(image: Path, mountpoint: Path) -> None:
    """Mount a file system image; the loop device goes away with the mount."""
    _attach(image, mountpoint, loop_flags=_LO_FLAGS_DIRECT_IO, options=_MOUNT_OPTIONS)


def attach_read_only(image: Path, mountpoint: Path) -> None:
    """Mount a file system image that nobody changes; what its journal still holds is put in place.

    It goes through the page cache: setting up direct I/O would wait until a fresh copy is on disk.
    """
    _attach(image, mountpoint, mount_flags=MS_RDONLY)


def _attach(
    image: Path, mountpoint: Path, *, loop_flags: int = 0, mount_flags: int = 0, options: str = ""
) -> None:
    with image.open("r+b") as backing:
        device, path = _configure_loop(backing.fileno(), _LO_FLAGS_AUTOCLEAR | loop_flags)
    try:
        flags = MS_NODEV | MS_NOSUID | MS_NOATIME | mount_flags
        mount(path, str(mountpoint), "ext4", flags, options)
    finally:
        os.close(device)


def _configure_loop(backing: int, flags: int) -> tuple[int, str]:
    info = bytearray(232)
    struct.pack_into("I", info, 52, flags)
    config = struct.pack("II", backing, 0) + bytes(info) + bytes(64)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
            device, path = _open_loop(number)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, config)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process took the same number
                    raise
            else:
                return device, path
    finally:
        os.close(control)


def _open_loop(number: int) -> tuple[int, str]:
    path = f"/dev/loop{number}"
    if not Path(path).exists():  # in a container /dev does not follow the kernel
        os.mknod(path, 0o600 | 0o060000, os.makedev(_LOOP_MAJOR, number))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC), path


def is_attached(image: Path) -> bool:
    """Tell whether a loop device still works on the image."""
    name = str(image.resolve())
    return any(_backing_file(device) == name for device in Path("/sys/block").glob("loop*"))


def _backing_file(device: Path) -> str:
    try:
        return (device / "loop/backing_file").read_text().rstrip("\n")
    except OSError:  # it has none, or not any more
        return ""


def detach(mountpoint: Path) -> None:
    """Unmount, if something is mounted there; open files keep it alive until they are closed."""
    try:
        unmount(str(mountpoint), MNT_DETACH)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise
