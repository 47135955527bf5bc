import os
import socket
import stat
import struct

import pytest

from sandbox_engine.images.layers import shift_ownership
from sandbox_engine.rootfs.ownership import UID_BASE

pytestmark = pytest.mark.needs_engine


def test_layer__shift_moves_owners_and_follows_no_links(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("the host's")
    layer = tmp_path / "layer"
    (layer / "home").mkdir(parents=True)
    (layer / "home/file").write_text("")
    os.chown(layer / "home/file", 1000, 1001)
    (layer / "link").symlink_to(outside)
    (layer / "directory-link").symlink_to(tmp_path)
    os.lchown(layer / "link", 5, 6)
    (layer / "stranger").write_text("")
    os.chown(layer / "stranger", 3_000_000, 70_000)

    shift_ownership(layer, uid_base=UID_BASE)

    def owner(name):
        status = (layer / name).lstat()
        return status.st_uid - UID_BASE, status.st_gid - UID_BASE

    assert owner("") == owner("home") == owner("directory-link") == (0, 0)
    assert owner("home/file") == (1000, 1001)
    assert owner("link") == (5, 6)
    assert owner("stranger") == (65534, 65534)
    assert outside.stat().st_uid == tmp_path.stat().st_uid == 0


def test_layer__shift_keeps_modes_times_and_hard_links(tmp_path):
    (tmp_path / "mail").mkdir()
    (tmp_path / "mail").chmod(0o2775)
    program = tmp_path / "mail/program"
    program.write_text("")
    program.chmod(0o6755)
    (tmp_path / "twin").hardlink_to(program)
    for path in (program, tmp_path / "mail"):
        os.utime(path, ns=(1, 1_000_000_007))

    shift_ownership(tmp_path, uid_base=UID_BASE)

    twin, status, directory = (p.stat() for p in (tmp_path / "twin", program, program.parent))
    assert stat.S_IMODE(status.st_mode) == 0o6755
    assert stat.S_IMODE(directory.st_mode) == 0o2775
    assert status.st_mtime_ns == directory.st_mtime_ns == 1_000_000_007
    assert (twin.st_ino, twin.st_nlink, twin.st_uid) == (status.st_ino, 2, UID_BASE)


def test_layer__shift_binds_file_capabilities_to_the_sandboxes_namespace(tmp_path):
    program = tmp_path / "program"
    program.write_text("")
    net_raw = 1 << 13
    os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, net_raw, 0, 0, 0))

    shift_ownership(tmp_path, uid_base=UID_BASE)

    capability = os.getxattr(program, "security.capability")
    assert struct.unpack("<6I", capability) == (0x03000001, net_raw, 0, 0, 0, UID_BASE)


def test_layer__shift_drops_devices_and_sockets_and_keeps_whiteouts_and_fifos(tmp_path):
    os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o666, os.makedev(7, 0))
    os.mknod(tmp_path / "memory", stat.S_IFCHR | 0o666, os.makedev(1, 1))
    os.mknod(tmp_path / "whiteout", stat.S_IFCHR, os.makedev(0, 0))
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))

    shift_ownership(tmp_path, uid_base=UID_BASE)

    assert {path.name for path in tmp_path.iterdir()} == {"whiteout", "fifo"}
    assert (tmp_path / "whiteout").stat().st_uid == UID_BASE
