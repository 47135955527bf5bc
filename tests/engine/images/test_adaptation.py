"""What is added to an image so that sandboxes can be made of it."""

import os
import stat
from pathlib import Path

import pytest

from sandbox_engine.images.adaptation.adapt import adapt
from sandbox_engine.images.certificates import TRUST_STORE, Certificate
from sandbox_engine.images.layers import shift_ownership
from sandbox_engine.rootfs.ownership import UID_BASE
from sandbox_engine.system.errors import ImageRefused

pytestmark = pytest.mark.needs_engine

OURS = Certificate("company.crt", b"-----BEGIN CERTIFICATE-----\nours\n-----END CERTIFICATE-----\n")


@pytest.fixture
def image(tmp_path):
    """Make the files of an image that has a shell."""
    image = tmp_path / "image"
    put(image / "bin/sh", "", mode=0o755)
    return image


def put(path, text, *, mode=0o644, owner=(0, 0)):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chown(path, *owner)
    path.chmod(mode)


@pytest.fixture
def added(image, tmp_path):
    """Add to the image what it lacks by now; gives what was added."""

    def add(*certificates):
        shift_ownership(image, uid_base=UID_BASE)
        tree = tmp_path / "added"
        tree.mkdir()
        adapt(tree, image, certificates)
        return tree

    return add


def test_image_adaptation__account_gets_the_next_free_id(image, added):
    put(image / "etc/passwd", "root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/sh")
    put(image / "etc/group", "root:x:0:\nubuntu:x:1000:\ndocker:x:1001:\n")
    tree = added()
    users = (tree / "etc/passwd").read_text().splitlines()
    assert users[1:] == [
        "ubuntu:x:1000:1000::/home/ubuntu:/bin/sh",
        "user:x:1002:1002::/home/user:/bin/bash",
    ]
    assert (tree / "etc/group").read_text().endswith("docker:x:1001:\nuser:x:1002:\n")
    assert (tree / "home/user").stat().st_uid == UID_BASE + 1002


def test_image_adaptation__existing_account_is_kept(image, added):
    put(image / "etc/passwd", "user:x:1234:1234::/srv/user:/bin/sh\n")
    put(image / "srv/user/file", "")
    tree = added()
    assert not (tree / "etc/passwd").exists()
    assert not (tree / "srv").exists()
    assert not (tree / "home/user").exists()


def test_image_adaptation__shadow_files_keep_owners_and_modes(image, added):
    put(image / "etc/shadow", "root:*:19000:0:99999:7:::\n", mode=0o640, owner=(0, 42))
    tree = added()
    status = (tree / "etc/shadow").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_gid) == (0o640, UID_BASE + 42)
    assert (tree / "etc/shadow").read_text().splitlines()[1].startswith("user:!:")
    assert not (tree / "etc/gshadow").exists()


def test_image_adaptation__home_starts_with_the_image_skeleton(image, added):
    put(image / "etc/skel/.bashrc", "alias ll='ls -l'\n")
    bashrc = added() / "home/user/.bashrc"
    assert bashrc.read_text() == "alias ll='ls -l'\n"
    assert bashrc.stat().st_uid == UID_BASE + 1000


def test_image_adaptation__account_gets_sudo_if_installed(image, added):
    put(image / "usr/bin/sudo", "", mode=0o4755)
    rules = added(OURS) / "etc/sudoers.d/user"
    assert "user ALL=(ALL:ALL) NOPASSWD: ALL\n" in rules.read_text()
    assert "SSL_CERT_FILE" in rules.read_text()
    assert stat.S_IMODE(rules.stat().st_mode) == 0o440


def test_image_adaptation__no_sudo_rules_without_sudo(added):
    assert not (added() / "etc/sudoers.d").exists()


def test_image_adaptation__existing_bash_is_kept(image, added):
    put(image / "usr/bin/bash", "", mode=0o755)
    (image / "bin/bash").symlink_to("../usr/bin/bash")
    assert not (added() / "bin/bash").exists()


def test_image_adaptation__existing_directories_are_kept(image, added):
    for name, mode in (("home", 0o711), ("etc", 0o750), ("tmp", 0o700)):
        (image / name).mkdir()
        os.chown(image / name, 5, 6)
        (image / name).chmod(mode)
    image.chmod(0o700)
    tree = added()
    for name, mode in (("home", 0o711), ("etc", 0o750)):
        status = (tree / name).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (mode, UID_BASE + 5)
    assert not (tree / "tmp").exists()
    assert stat.S_IMODE(tree.stat().st_mode) == 0o700


def test_image_adaptation__missing_directories_are_created(added):
    tree = added()
    assert stat.S_IMODE((tree / "tmp").stat().st_mode) == 0o1777
    assert stat.S_IMODE((tree / "root").stat().st_mode) == 0o700
    assert all((tree / name).is_dir() for name in ("dev", "proc", "run", "sys", "var/tmp"))


@pytest.mark.parametrize("shell", [None, "directory", "data", "link"])
def test_image_adaptation__image_without_a_shell_is_rejected(image, added, shell):
    (image / "bin/sh").unlink()
    if shell == "directory":
        (image / "bin/sh").mkdir()
    elif shell == "data":
        put(image / "bin/sh", "")
    elif shell == "link":
        (image / "bin/sh").symlink_to("/proc/self/exe")
    with pytest.raises(ImageRefused, match="no shell"):
        added()


def test_image_adaptation__endless_user_list_is_rejected(image, added):
    put(image / "etc/passwd", "x" * (2 << 20))
    with pytest.raises(ImageRefused, match="too large"):
        added()


def test_image_adaptation__certificates_are_added_to_all_trust_stores(image, added):
    stores = (TRUST_STORE, "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")
    for store in stores:
        put(image / store[1:], "theirs\n")
    (image / "etc/pki/ca-trust/source/anchors").mkdir(parents=True)
    tree = added(OURS)
    for store in stores:
        assert (tree / store[1:]).read_bytes() == b"theirs\n\n" + OURS.pem
    for directory in ("usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors"):
        assert (tree / directory / "company.crt").read_bytes() == OURS.pem


def test_image_adaptation__image_without_a_trust_store_gets_one(added):
    store = (added(OURS) / TRUST_STORE[1:]).read_bytes()
    assert store.endswith(OURS.pem)
    if Path(TRUST_STORE).exists():
        assert store.startswith(Path(TRUST_STORE).read_bytes())


def test_image_adaptation__trust_is_unchanged_without_extra_certificates(added):
    tree = added()
    assert not (tree / "etc/ssl").exists()
    assert not (tree / "usr/local/share").exists()
