"""Loop devices that are removed automatically when unused."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

DIRECT_IO = 16

_GET_STATUS = 0x4C05
_CONFIGURE = 0x4C0A
_CTL_GET_FREE = 0x4C82
_AUTOCLEAR = 4
_INFO_BYTES = 232
_MAJOR = 7
_BLKFLSBUF = 0x1261


def set_up(backing: int, flags: int = 0) -> tuple[int, str]:
    """Attach a file to a free loop device; returns the open device and its path."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("I", info, 52, _AUTOCLEAR | flags)
    config = struct.pack("II", backing, 0) + bytes(info) + bytes(64)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        while True:
            number = fcntl.ioctl(control, _CTL_GET_FREE)
            device, path = _open(number)
            try:
                fcntl.ioctl(device, _CONFIGURE, config)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # another process took the same number
                    raise
            else:
                return device, path
    finally:
        os.close(control)


def drop_cached_reads(device: int) -> None:
    """Drop cached reads of the device after its file was written directly."""
    fcntl.ioctl(device, _BLKFLSBUF, 0)


def find(image: Path) -> tuple[int, str] | None:
    """Open the device attached to the image, if any; it stays attached while open."""
    for place in _places(image):
        try:
            device, path = _open(int(place.name.removeprefix("loop")))
        except OSError:  # it is being detached
            continue
        # It may have been attached to another file just before it was opened.
        if _works_on(device, image):
            return device, path
        os.close(device)
    return None


def is_in_use(image: Path) -> bool:
    """Return whether a device is attached to the image."""
    return any(True for _ in _places(image))


def _open(number: int) -> tuple[int, str]:
    path = f"/dev/loop{number}"
    if not Path(path).exists():  # in a container /dev has no new devices
        os.mknod(path, 0o600 | 0o060000, os.makedev(_MAJOR, number))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC), path


def _places(image: Path) -> Iterator[Path]:
    name = str(image.resolve())
    return (device for device in Path("/sys/block").glob("loop*") if _backing_file(device) == name)


def _backing_file(place: Path) -> str:
    try:
        return (place / "loop/backing_file").read_text().rstrip("\n")
    except OSError:  # detached
        return ""


def _works_on(device: int, image: Path) -> bool:
    info = bytearray(_INFO_BYTES)
    try:
        fcntl.ioctl(device, _GET_STATUS, info)
    except OSError:
        return False
    there = image.stat()
    return struct.unpack_from("QQ", info) == (there.st_dev, there.st_ino)
