import os
import resource
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.filesystems import RefusedFile
from sandbox_engine.rootfs.ownership import NOBODY, UID_BASE, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.rootfs.shared_descriptor import RootClosed
from sandbox_engine.rootfs.trees import walk
from tests.engine.envd.file_tree import (
    USER,
    names,
    read,
    write,
)

pytestmark = pytest.mark.needs_engine


# What is no file


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
def test_rootfs__pipes_sockets_and_devices_are_refused_at_once(box, home, flags):
    os.mkfifo(home / "pipe")
    os.mknod(home / "disk", 0o666 | 0o060000, os.makedev(7, 0))
    os.mknod(home / "socket", 0o666 | 0o140000)
    for name in ("home/user/pipe", "home/user/disk", "home/user/socket", "dev/null"):
        with pytest.raises(RefusedFile, match="not a regular file"):
            box.root.open_file(f"/{name}", flags)


def test_rootfs__pipe_with_a_reader_is_not_written(box, home):
    box.run("mkfifo pipe", uid=1000)
    with closing(os.open(home / "pipe", os.O_RDWR | os.O_NONBLOCK)) as reader:
        with pytest.raises(RefusedFile):
            write(box.root, "/home/user/pipe", "text")
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)


@pytest.mark.parametrize("path", ["/proc/version", "/proc/1/environ", "/sys/kernel/notes"])
def test_rootfs__kernel_files_are_rejected(box, path):
    with pytest.raises(RefusedFile, match="run a command to read it"):
        box.root.open_file(path)


def test_rootfs__kernel_file_systems_are_not_changed(box):
    for refused in (
        lambda: write(box.root, "/proc/1/comm", "evil"),
        lambda: write(box.root, "/sys/new", ""),
        lambda: box.root.make_directories("/sys/fs/cgroup/new", USER),
        lambda: box.root.rename("/home/user/x", "/proc/x"),
        lambda: box.root.remove("/sys/kernel/new"),
        lambda: box.root.open_directory("/proc"),
    ):
        with pytest.raises(RefusedFile):
            refused()


def test_rootfs__tmpfs_files_are_regular_files(box):
    write(box.root, "/dev/shm/x", "text")
    assert read(box.root, "/dev/shm/x") == "text"


@pytest.mark.parametrize("path", ["/small", "/bound"])
def test_rootfs__mount_points_are_neither_removed_nor_renamed(box, path):
    # The host's kernel would not mind: they are no mount points in its own namespace.
    with pytest.raises(OSError, match="busy"):
        box.root.remove(path)
    with pytest.raises(OSError, match="busy"):
        box.root.rename(path, "/home/user/moved")
    box.write("/home/user/new")
    with pytest.raises(OSError, match="busy"):
        box.root.rename("/home/user/new", path)
    assert f" {path} " in box.run("cat /proc/mounts")


@pytest.mark.parametrize("path", ["/", "/home/..", "/home/."])
def test_rootfs__the_root_is_neither_removed_nor_renamed(box, path):
    with pytest.raises(RefusedFile):
        box.root.remove(path)
    with pytest.raises(RefusedFile):
        box.root.rename(path, "/home/user/x")


@pytest.mark.parametrize("path", ["/home/user/a\0b", "\0", "/\0/x"])
def test_rootfs__path_with_nul_is_rejected(box, path):
    box.write("/home/user/a", "text")
    for refused in (
        lambda: box.root.open_file(path),
        lambda: write(box.root, path, ""),
        lambda: box.root.remove(path),
        lambda: box.root.make_directories(path, USER),
    ):
        with pytest.raises(RefusedFile, match="NUL"):
            refused()
    assert read(box.root, "/home/user/a") == "text"


# Trees


def test_rootfs__removal_is_recursive_and_follows_no_links(box, home):
    box.run(
        "mkdir -p tree/a/b tree/c other; touch tree/x tree/a/b/y other/kept;"
        "ln -s ../other tree/link; ln -s ../../other tree/a/link; mkfifo tree/a/pipe",
        uid=1000,
    )
    box.root.remove("/home/user/tree")
    assert names(home) == ["other"]
    assert names(home / "other") == ["kept"]


@pytest.mark.slow  # makes very many files
def test_rootfs__directory_with_very_many_files_is_removed(box, home):
    box.run("mkdir many; cd many; seq 25000 | xargs touch", uid=1000)
    box.root.remove("/home/user/many")
    assert names(home) == []


def test_rootfs__link_itself_is_removed(box, home):
    box.run("mkdir other; touch other/kept; ln -s other link", uid=1000)
    box.root.remove("/home/user/link")
    assert names(home / "other") == ["kept"]


def test_rootfs__names_of_any_bytes_are_removed(box, home):
    names = [b"new\nline", b"\xff\xfe", b"-rf", b" ", b"\\", "é".encode()]
    (home / "tree").mkdir()
    for name in names:
        (home / "tree" / os.fsdecode(name)).mkdir()
    box.root.remove("/home/user/tree")
    assert not (home / "tree").exists()


@pytest.fixture
def few_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(names(Path("/proc/self/fd"))) + 30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow  # makes a very deep tree
def test_rootfs__deep_tree_is_removed_with_few_descriptors(box, home, few_descriptors):
    directory = os.open(home, os.O_RDONLY)
    for _ in range(5_000):
        os.mkdir("deeper", dir_fd=directory)
        deeper = os.open("deeper", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = deeper
    os.close(directory)
    with closing(box.root.open_directory("/home/user")) as directory:
        listed = sum(1 for _ in walk(directory, depth=10_000, admit=box.root.admit))
    assert 500 < listed < 5_000  # as deep as a path can name
    box.root.remove("/home/user/deeper")
    assert names(home) == []


def test_rootfs__removal_continues_after_errors_and_reports_them(box, home):
    box.run("mkdir -p tree/a tree/b tree/c; touch tree/a/x tree/c/y", uid=1000)
    enter = box.command("")[:5]
    subprocess.run([*enter, "mount", "-t", "tmpfs", "m", "/home/user/tree/b"], check=True)
    with pytest.raises(OSError, match="busy"):
        box.root.remove("/home/user/tree")
    assert names(home / "tree") == ["b"]
    subprocess.run([*enter, "umount", "/home/user/tree/b"], check=True)


def test_rootfs__walk_is_sorted_and_limited_in_depth(box):
    box.run("mkdir -p b/c; touch a b/x b/c/y z; ln -s b link", uid=1000)
    with closing(box.root.open_directory("/home/user")) as directory:
        levels = {
            depth: [path for _, _, path in walk(directory, depth=depth, admit=box.root.admit)]
            for depth in (1, 2, 3)
        }
    assert levels[1] == ["a", "b", "link", "z"]
    assert levels[2] == ["a", "b", "b/c", "b/x", "link", "z"]
    assert levels[3] == ["a", "b", "b/c", "b/c/y", "b/x", "link", "z"]


# Ownership


def test_rootfs__new_files_belong_to_the_user_regardless_of_umask(box, home):
    before = os.umask(0o077)
    try:
        box.root.make_directories("/home/user/a/b", USER)
        write(box.root, "/home/user/a/b/file", "")
    finally:
        os.umask(before)
    for made, mode in ((home / "a", 0o40755), (home / "a/b/file", 0o100644)):
        status = made.stat()
        assert status.st_mode == mode
        assert (status.st_uid, status.st_gid) == (UID_BASE + 1000, UID_BASE + 1000)


def test_rootfs__existing_directories_keep_their_owner(box, home):
    box.run("mkdir mine", uid=1000)
    box.root.make_directories("/home/user/mine/new", Owner(0, 0))
    assert (home / "mine").stat().st_uid == UID_BASE + 1000
    assert (home / "mine/new").stat().st_uid == UID_BASE


def test_rootfs__host_files_are_unchanged_and_read_only_if_world_readable(box, home):
    (home / "hosts").mkdir()
    (home / "hosts/public").write_text("public")
    (home / "hosts/secret").write_text("secret")
    (home / "hosts/public").chmod(0o666)
    (home / "hosts/secret").chmod(0o600)
    (home / "hosts/closed").mkdir(mode=0o700)
    assert read(box.root, "/home/user/hosts/public") == "public"
    for refused in (
        lambda: read(box.root, "/home/user/hosts/secret"),
        lambda: write(box.root, "/home/user/hosts/public", "changed"),
        lambda: write(box.root, "/home/user/hosts/new", ""),
        lambda: box.root.make_directories("/home/user/hosts/new", USER),
        lambda: box.root.remove("/home/user/hosts/public"),
        lambda: box.root.rename("/home/user/hosts/public", "/home/user/mine"),
        lambda: box.root.open_directory("/home/user/hosts/closed"),
    ):
        with pytest.raises(PermissionError):
            refused()
    with (
        closing(box.root.open_file("/home/user/hosts/public")) as descriptor,
        pytest.raises(PermissionError),
    ):
        box.root.give(descriptor, USER)
    with closing(box.root.open_directory("/home/user")) as directory:
        found = [path for _, _, path in walk(directory, depth=9, admit=box.root.admit)]
    assert found == ["hosts", "hosts/closed", "hosts/public", "hosts/secret"]


def test_rootfs__unfinished_files_are_inaccessible_to_others(box):
    def make(number):
        for round_ in range(100):
            box.root.make_directories(f"/home/user/{round_}/a/b", USER)
            write(box.root, f"/home/user/{round_}/a/file", str(number))
            write(box.root, f"/home/user/{round_}/a/b/{number}", "")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make, range(8)))


@pytest.mark.parametrize("owner", [Owner(65_536, 0), Owner(0, -1), Owner(-UID_BASE, 0)])
def test_rootfs__files_are_not_given_to_ids_outside_the_sandbox(box, home, owner):
    box.write("/home/user/file")
    with (
        closing(box.root.open_file("/home/user/file")) as descriptor,
        pytest.raises(OSError, match="not mapped in the sandbox"),
    ):
        box.root.give(descriptor, owner)


def test_rootfs__unmapped_ids_appear_as_nobody(box, home):
    (home / "hosts").write_text("")
    os.chown(home / "hosts", 0, UID_BASE + 65_536)
    assert box.root.owner(box.root.stat("/home/user/hosts")) == Owner(NOBODY, NOBODY)


# The end


def test_rootfs__closed_root_rejects_and_never_reuses_its_descriptor(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/secret").write_text("a neighbour's")
    root = Root.at(str(tmp_path / "root"))
    root.close()
    root.close()
    with closing(os.open(tmp_path / "other", os.O_PATH)), pytest.raises(RootClosed):
        root.stat("/secret")


def test_rootfs__closing_during_resolution_never_exposes_another_root(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/secret").write_text("a neighbour's")
    found = []

    def look(root):
        with suppress(RootClosed):
            while True:
                with suppress(FileNotFoundError):
                    found.append(root.stat("/secret"))

    with ThreadPoolExecutor(3) as threads:
        for _ in range(200):
            root = Root.at(str(tmp_path / "root"))
            looking = [threads.submit(look, root) for _ in range(3)]
            root.close()
            neighbour = os.open(tmp_path / "other", os.O_PATH)
            for one in looking:
                one.result()
            os.close(neighbour)
    assert not found


def test_rootfs__close_callback_is_called(tmp_path):
    root = Root.at(str(tmp_path))
    told = threading.Event()
    with root.on_close(told.set):
        with root.on_close(lambda: pytest.fail("left before it was closed")):
            pass
        root.close()
        assert told.is_set()
    with pytest.raises(RootClosed), root.on_close(lambda: None):
        pass
