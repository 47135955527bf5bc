import os

import pytest

from sandbox_engine.rootfs.accounts import (
    Account,
    Accounts,
    InvalidPath,
    UnknownUser,
    resolve_path,
)
from sandbox_engine.rootfs.root import Root

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
user:x:1000:1000:,,,:/home/user:/bin/bash
"""
GROUP = "root:x:0:\nuser:x:1000:\nstaff:x:50:user\nsudo:x:27:other,user\nmine:x:1000:user\n"
USER = Account("user", 1000, 1000, (1000,), "/home/user", "/bin/bash")


@pytest.fixture
def etc(tmp_path):
    etc = tmp_path / "root/etc"
    etc.mkdir(parents=True)
    (etc / "passwd").write_text(PASSWD)
    (etc / "group").write_text(GROUP)
    return etc


@pytest.fixture
def root(etc):
    root = Root.at(str(etc.parent))
    yield root
    root.close()


def test_accounts__primary_group_comes_first(root):
    assert Accounts.read(root).find("user") == Account(
        "user", 1000, 1000, (1000, 50, 27), "/home/user", "/bin/bash"
    )


def test_accounts__users_are_found_by_name(root):
    with pytest.raises(UnknownUser, match="unknown user 1000"):
        Accounts.read(root).find("1000")


def test_accounts__unnamed_ids_stay_numbers(root):
    accounts = Accounts.read(root)
    assert accounts.user_name(1000) == "user"
    assert accounts.group_name(27) == "sudo"
    assert accounts.user_name(4321) == "4321"
    assert accounts.group_name(4321) == "4321"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "evil",
        ":x:1:1::/:/bin/sh",
        "evil:x:1:1::/home/evil",
        "evil:x:one:1::/:/bin/sh",
        "evil:x:-1:1::/:/bin/sh",
        "evil:x:1:-1::/:/bin/sh",
        "evil:x:65536:1::/:/bin/sh",
        "evil:x:1:4294967295::/:/bin/sh",
        "evil:x:٣:1::/:/bin/sh",
        "evil:x:1:1::/\0:/bin/sh",
    ],
)
def test_accounts__malformed_lines_are_skipped(root, etc, line):
    (etc / "passwd").write_text(f"{line}\n{PASSWD}")
    accounts = Accounts.read(root)
    assert accounts.find("user").uid == 1000
    with pytest.raises(UnknownUser):
        accounts.find("evil")


def test_accounts__unusable_home_falls_back_to_the_root(root, etc):
    (etc / "passwd").write_text("lost:x:5:5::relative:\n")
    lost = Accounts.read(root).find("lost")
    assert (lost.home, lost.shell) == ("/", "/bin/sh")


def test_accounts__first_duplicate_name_counts(root, etc):
    (etc / "passwd").write_text("twin:x:1:1::/a:/bin/sh\ntwin:x:2:2::/b:/bin/sh\n")
    assert Accounts.read(root).find("twin").uid == 1


def test_accounts__huge_files_are_read_partially(root, etc):
    with (etc / "passwd").open("a") as passwd:
        passwd.truncate(1 << 40)
    assert Accounts.read(root).find("user").uid == 1000


def test_accounts__missing_files_mean_no_users(root, etc):
    (etc / "passwd").unlink()
    os.mkfifo(etc / "passwd")
    (etc / "group").unlink()
    accounts = Accounts.read(root)
    with pytest.raises(UnknownUser):
        accounts.find("root")
    assert accounts.user_name(0) == "0"


def test_accounts__files_are_read_inside_the_root(root, etc, tmp_path):
    (tmp_path / "passwd").write_text("outsider:x:7:7::/:/bin/sh\n")
    (etc / "passwd").unlink()
    (etc / "passwd").symlink_to(tmp_path / "passwd")
    with pytest.raises(UnknownUser):
        Accounts.read(root).find("outsider")


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("", "/home/user"),
        ("~", "/home/user"),
        ("~/", "/home/user"),
        ("~/a/b", "/home/user/a/b"),
        ("~//etc", "/home/user/etc"),
        ("a/../b", "/home/user/b"),
        ("../../../../etc/shadow", "/etc/shadow"),
        ("/", "/"),
        ("//", "/"),
        ("//etc//passwd/", "/etc/passwd"),
        ("/a/./b/../../..", "/"),
        ("a/~", "/home/user/a/~"),
        ("new\nline", "/home/user/new\nline"),
    ],
)
def test_accounts__paths_are_resolved_like_a_shell(path, resolved):
    assert resolve_path(path, USER) == resolved


def test_accounts__empty_path_is_the_working_directory():
    assert resolve_path("", USER, workdir="/work") == "/work"
    assert resolve_path("a", USER, workdir="/work") == "/home/user/a"


@pytest.mark.parametrize("path", ["~root", "~root/x", "a\0b", "\0"])
def test_accounts__invalid_paths_are_rejected(path):
    with pytest.raises(InvalidPath):
        resolve_path(path, USER)
