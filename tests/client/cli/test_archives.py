"""Archives of sandboxes that mean harm."""

import io
import os
import tarfile

import pytest

from sandbox_client.cli.files.archives import pack_directory, unpack_directory


def archive_of(*members):
    """Make an archive of (name, type, target of the link or content)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, kind, said in members:
            member = tarfile.TarInfo(name)
            member.type = kind
            content = said.encode() if kind == tarfile.REGTYPE else b""
            member.linkname = "" if kind == tarfile.REGTYPE else said
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed.seek(0)
    return packed


@pytest.fixture
def into(tmp_path):
    return tmp_path / "into"


def test_archive__round_trip_preserves_files_modes_and_links(tmp_path, into):
    made = tmp_path / "made"
    (made / "sub").mkdir(parents=True)
    (made / "sub" / "run.sh").write_text("#!/bin/sh\n")
    (made / "sub" / "run.sh").chmod(0o755)
    (made / "link").symlink_to("sub/run.sh")
    os.mkfifo(made / "pipe")
    packed = io.BytesIO()
    pack_directory(made, packed)
    packed.seek(0)
    assert unpack_directory(packed, into) == []
    assert (into / "link").read_text() == "#!/bin/sh\n"
    assert (into / "link").is_symlink()
    assert os.access(into / "sub" / "run.sh", os.X_OK)
    assert not (into / "pipe").exists()


@pytest.mark.parametrize(
    "member",
    [
        ("../escaped", tarfile.REGTYPE, "x"),
        ("a/../../escaped", tarfile.REGTYPE, "x"),
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
        ("link", tarfile.SYMTYPE, "../secret"),
        ("link", tarfile.LNKTYPE, "../secret"),
        ("device", tarfile.CHRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
    ],
)
def test_archive__escaping_paths_and_special_files_are_skipped(tmp_path, into, member):
    (tmp_path / "secret").write_text("secret")
    packed = archive_of(member, ("fine", tarfile.REGTYPE, "fine"))
    assert unpack_directory(packed, into) == [member[0]]
    assert [file.name for file in into.iterdir()] == ["fine"]
    assert not (tmp_path / "escaped").exists()


def test_archive__nothing_is_written_through_a_symlink(tmp_path, into):
    outside = tmp_path / "outside"
    outside.mkdir()
    packed = archive_of(
        ("door", tarfile.SYMTYPE, "."),
        ("door/file", tarfile.REGTYPE, "x"),
        ("./door/other", tarfile.SYMTYPE, "file"),
    )
    assert unpack_directory(packed, into) == ["door/file", "./door/other"]
    (into / "here").symlink_to(outside)
    assert unpack_directory(archive_of(("here/file", tarfile.REGTYPE, "x")), into) == ["here/file"]
    assert list(outside.iterdir()) == []


def test_archive__absolute_paths_are_unpacked_below_the_directory(into):
    assert unpack_directory(archive_of(("/etc/name", tarfile.REGTYPE, "x")), into) == []
    assert (into / "etc" / "name").read_text() == "x"
