import errno
import subprocess
import sys
from contextlib import closing as closing_object
from contextlib import contextmanager, suppress

import pytest

from sandbox_engine.rootfs.descriptors import closing
from sandbox_engine.rootfs.trees import TreeCursor, TreeMoved, walk
from tests.engine.envd.file_tree import (
    CANARY,
    USER,
    names,
    read,
    write,
)

pytestmark = pytest.mark.needs_engine

TRIES = 10_000


def tell(root, path):
    """Tell what comes of reading a path."""
    try:
        return read(root, path)
    except OSError as error:
        return errno.errorcode[error.errno or 0]


@pytest.fixture
def outside(tmp_path):
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "canary").write_text(CANARY)
    yield outside
    assert (outside / "canary").read_text() == CANARY
    assert names(outside) == ["canary", "sub"]


def test_path_escape__link_out_of_the_root_stays_inside(box, home, outside):
    (home / "absolute").symlink_to(outside / "canary")
    (home / "relative").symlink_to("../" * 20 + str(outside / "canary").lstrip("/"))
    (home / "shadow").symlink_to("/etc/shadow")
    assert tell(box.root, "/home/user/absolute") == "ENOENT"
    assert tell(box.root, "/home/user/relative") == "ENOENT"
    assert tell(box.root, "/home/user/shadow") == "root:*:\n"
    assert tell(box.root, "/../../../../etc/shadow") == "root:*:\n"


def test_path_escape__writing_through_a_dangling_link_makes_its_target_inside(box, home, outside):
    box.run("mkdir sub; ln -s ../made sub/link; ln -s link sub/chain", uid=1000)
    write(box.root, "/home/user/sub/chain", "text")
    assert (home / "made").read_text() == "text"
    (home / "out").symlink_to(outside / "made")
    with pytest.raises(FileNotFoundError):
        write(box.root, "/home/user/out", "text")


def test_path_escape__link_loops_are_rejected(box):
    box.run("ln -s a b; ln -s b a", uid=1000)
    with pytest.raises(OSError, match="symbolic links"):
        write(box.root, "/home/user/a", "text")


@pytest.mark.parametrize(
    "path",
    ["/proc/1/root/etc/shadow", "/proc/1/cwd/etc/shadow", "/proc/1/exe", "/proc/1/fd/0"],
)
def test_path_escape__magic_links_lead_nowhere(box, path):
    assert tell(box.root, path) == "ELOOP"


def test_path_escape__magic_links_behind_links_lead_nowhere(box, home):
    (home / "link").symlink_to("/proc/1/root")
    assert tell(box.root, "/home/user/link/etc/shadow") == "ELOOP"
    with pytest.raises(OSError, match="symbolic links"):
        box.root.open_directory("/home/user/link")
    with pytest.raises(OSError, match="symbolic links"):
        box.root.make_directories("/home/user/link/etc/new", USER)


@pytest.mark.parametrize("path", ["/proc/self/root/etc/shadow", "/dev/fd/0"])
def test_path_escape__host_process_is_not_found_inside(box, path):
    assert tell(box.root, path) == "ENOENT"


ATTACKER = """
import ctypes, os
rename = ctypes.CDLL(None).renameat2
os.chdir({where!r})
print("attacking", flush=True)
while True:
    rename(-100, {one!r}, -100, {other!r}, {flags})
"""
EXCHANGE = 2


@contextmanager
def attacker(where, one, other, *, flags=EXCHANGE):
    """Swap two names of a directory as fast as a process can."""
    script = ATTACKER.format(where=str(where), one=one.encode(), other=other.encode(), flags=flags)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"attacking\n"
        process.stdout.close()
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def swapped(box, home, outside):
    """Make a directory that changes places all the time with a link to one of the host's."""
    box.run("mkdir -p swapped/sub; echo -n inside > swapped/canary", uid=1000)
    (home / "link").symlink_to(outside)
    with attacker(home, "swapped", "link"):
        yield "/home/user/swapped"


def test_path_escape__reads_never_follow_a_swapped_directory_out(box, swapped):
    seen = {tell(box.root, f"{swapped}/canary") for _ in range(TRIES)}
    assert seen == {"inside", "ENOENT"}


def test_path_escape__writes_never_follow_a_swapped_directory_out(box, swapped):
    for number in range(TRIES):
        for name in ("canary", "new"):
            with suppress(OSError):
                write(box.root, f"{swapped}/{name}", str(number))


def test_path_escape__new_directories_never_follow_a_swapped_directory_out(box, swapped):
    for number in range(TRIES // 10):
        with suppress(OSError):
            box.root.make_directories(f"{swapped}/made/{number}", USER)


@pytest.mark.slow  # races for seconds
def test_path_escape__renames_never_follow_a_swapped_directory_out(box, swapped, home):
    for _ in range(TRIES):
        with suppress(FileNotFoundError):
            box.root.rename(f"{swapped}/canary", "/home/user/taken")
            box.root.rename("/home/user/taken", f"{swapped}/canary")
        with suppress(OSError):
            box.write("/home/user/taken", "inside")


def test_path_escape__renaming_neighbour_does_not_prevent_resolution(box, home, tmp_path):
    for name in "abcd":
        (tmp_path / name).mkdir()
    box.run("mkdir -p a/b/c/d; echo -n found > file; ln -s ../../../../file a/b/c/d/link", uid=1000)
    with attacker(tmp_path, "a", "b"), attacker(tmp_path, "c", "d"):
        for _ in range(TRIES // 10):
            assert read(box.root, "/home/user/a/b/c/d/link") == "found"


def test_path_escape__lists_never_follow_a_swapped_directory_out(box, swapped):
    with closing(box.root.open_directory("/home/user")) as directory:
        for _ in range(TRIES // 10):
            found = {path for _, _, path in walk(directory, depth=9, admit=box.root.admit)}
            assert "link/canary" not in found or "swapped/canary" not in found


def test_path_escape__removal_never_follows_a_swapped_directory_out(box, home, outside):
    box.run("mkdir tree", uid=1000)
    with attacker(home, "tree/sub", "link"):
        for _ in range(TRIES // 50):
            with suppress(OSError):
                (home / "link").symlink_to(outside)
            for name in "abcd":
                with suppress(OSError):
                    box.root.make_directories(f"/home/user/tree/sub/{name}", USER)
            with suppress(OSError):
                box.root.remove("/home/user/tree")


def test_path_escape__moved_directory_does_not_lead_into_another_tree(box, home):
    box.run("mkdir -p from/inner to", uid=1000)
    with (
        closing(box.root.open_directory("/home/user/from")) as directory,
        closing_object(TreeCursor(directory)) as cursor,
    ):
        cursor.enter("inner", across_mounts=False)
        (home / "from/inner").rename(home / "to/inner")
        with pytest.raises(TreeMoved):
            cursor.leave()


@pytest.mark.slow  # races for seconds
def test_path_escape__removal_survives_moving_directories(box, home):
    box.run("mkdir kept; touch kept/precious", uid=1000)
    with attacker(home, "tree/a", "kept/a", flags=0), attacker(home, "kept/a", "tree/a", flags=0):
        for _ in range(TRIES // 50):
            for name in "abcd":
                with suppress(OSError):
                    box.root.make_directories(f"/home/user/tree/a/b/{name}/c", USER)
            with suppress(OSError):
                box.root.remove("/home/user/tree")
    assert (home / "kept/precious").exists()
