import gzip
import io
import os
import tarfile
from contextlib import nullcontext

import pytest

from sandbox_engine.rootfs.ownership import UID_BASE, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.rootfs.tree_writer import TreeWriter
from sandbox_engine.templates.building.archive import BadArchive, open_archive
from sandbox_engine.templates.building.copy_files import (
    CopyOrder,
    SourceMissing,
    copy_files,
    literal_part,
)

pytestmark = pytest.mark.needs_engine

_USER = Owner(1000, 1000)
_MIB = 1 << 20


@pytest.fixture
def tree(tmp_path):
    """Make a sandbox's tree, in a directory where an escape would be seen."""
    tree = tmp_path / "outside" / "root"
    (tree / "etc").mkdir(parents=True)
    (tree / "etc/passwd").write_text("the sandbox's own")
    for path in (tree, *tree.rglob("*")):
        os.chown(path, UID_BASE, UID_BASE)
    return tree


@pytest.fixture
def copy(tmp_path, tree):
    """Copy what an archive holds to /to in the tree."""

    def run(archive: bytes, source: str = "", most_bytes: int = 100 * _MIB, *, given_up=False):
        path = tmp_path / "archive"
        path.write_bytes(archive)
        order = CopyOrder(source, "/to", _USER)
        bounded = open_archive(path, most_bytes=most_bytes, is_given_up=lambda: given_up)
        with bounded as entries:
            copy_files(order, entries, TreeWriter(Root.at(str(tree))))

    return run


def _archive(*members, **headers):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", **headers) as archive:
        for name, kind, extra in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            contents = extra if isinstance(extra, bytes) else b""
            member.size = len(contents)
            for attribute, value in extra.items() if isinstance(extra, dict) else ():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(contents))
    return packed.getvalue()


def _file(name, contents=b"contents"):
    return name, tarfile.REGTYPE, contents


def _all(tree):
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


def test_build_archive__names_cannot_leave_the_destination(copy, tree):
    copy(_archive(_file("../../up"), _file("/absolute"), _file("a/../../../../b"), _file("./c")))
    assert _all(tree) == {"etc", "etc/passwd", "to", "to/up", "to/absolute", "to/b", "to/c"}
    assert [path.name for path in tree.parent.iterdir()] == ["root"]


@pytest.mark.parametrize("target", ["{outside}", "../../../..", "/etc"])
def test_build_archive__links_cannot_leave_the_sandbox(copy, tree, target):
    target = target.format(outside=tree.parent)
    link = ("link", tarfile.SYMTYPE, {"linkname": target})
    with pytest.raises(OSError, match="directory") if "outside" in target else nullcontext():
        copy(_archive(link, _file("link/passwd")))
    assert [path.name for path in tree.parent.iterdir()] == ["root"]
    assert not (tree.parent / "passwd").exists()


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_build_archive__devices_and_pipes_are_rejected(copy, tree, kind):
    device = ("device", kind, {"devmajor": 8, "devminor": 0})
    with pytest.raises(BadArchive, match="is not a file, directory or symlink"):
        copy(_archive(device))
    assert _all(tree) == {"etc", "etc/passwd", "to"}


def test_build_archive__hard_links_reach_only_copied_files(copy, tree):
    with pytest.raises(BadArchive):
        copy(_archive(("in/link", tarfile.LNKTYPE, {"linkname": "etc/passwd"})), source="in")
    copy(_archive(_file("in/file"), ("in/link", tarfile.LNKTYPE, {"linkname": "in/file"})))
    assert (tree / "to/in/link").samefile(tree / "to/in/file")


def test_build_archive__owners_and_setuid_bits_are_ignored(copy, tree):
    copy(_archive(("file", tarfile.REGTYPE, {"mode": 0o6755, "uid": 0, "gid": 0})))
    status = (tree / "to/file").stat()
    assert (status.st_uid, status.st_gid) == (UID_BASE + 1000, UID_BASE + 1000)
    assert status.st_mode & 0o7777 == 0o755


def test_build_archive__bomb_is_rejected_early(copy, tree):
    bomb = _archive(_file("bomb", bytes(64 * _MIB)))
    assert len(bomb) < _MIB
    for source in ("", "elsewhere"):
        with pytest.raises(BadArchive, match="more than the sandbox's disk"):
            copy(bomb, source=source, most_bytes=8 * _MIB)
    assert not (tree / "to/bomb").exists()


def test_build_archive__huge_headers_are_rejected(copy):
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 512 * _MIB
    with pytest.raises(BadArchive, match="a name that is too long"):
        copy(gzip.compress(header.tobuf()), most_bytes=1 << 40)
    long_name = _archive(_file("n" * 2 * _MIB), format=tarfile.PAX_FORMAT)
    with pytest.raises(BadArchive, match="a name that is too long"):
        copy(long_name)


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"no archive at all" * 100,
        gzip.compress(b"no archive either" * 100),
        _archive(("file", tarfile.REGTYPE, os.urandom(100_000)))[:50_000],
        b"\x1f\x8b" + b"garbage",
    ],
    ids=["empty", "text", "compressed text", "half", "no compression"],
)
def test_build_archive__invalid_archive_is_reported(copy, archive):
    with pytest.raises(BadArchive, match="cannot be read"):
        copy(archive)


def test_build_archive__cancelled_build_stops(copy, tree):
    with pytest.raises(BadArchive, match="cancelled"):
        copy(_archive(_file("file", bytes(_MIB))), given_up=True)


def test_build_archive__missing_source_is_reported(copy):
    with pytest.raises(SourceMissing, match="does not exist: other"):
        copy(_archive(_file("file")), source="other")


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("src/**/*.py", "src"),
        ("*.txt", ""),
        (".", ""),
        ("./a/b/", "a/b"),
        ("a/[bc]/d", "a"),
        ("a/b?", "a"),
    ],
)
def test_build_archive__pattern_starts_at_the_merged_directory(pattern, literal):
    assert literal_part(pattern) == literal


@pytest.mark.parametrize("pattern", ["../a", "/etc", "a/../../b"])
def test_build_archive__source_outside_of_the_context_is_rejected(pattern):
    with pytest.raises(BadArchive):
        literal_part(pattern)
