"""Both sides on this machine."""

import os
import random
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_client.workspace.endpoint import applier, changeset, scanner
from sandbox_client.workspace.endpoint.entries import Change, Entry
from sandbox_client.workspace.endpoint.ignore import Rules
from sandbox_client.workspace.plan import Direction
from tests.client.workspace.endpoint_pair import EndpointPair, ProgramPair


@pytest.fixture
def sides(tmp_path):
    return EndpointPair(tmp_path)


def contents(root):
    return {
        path: replace(entry, stamp="")
        for path, entry in scanner.scan(str(root), Rules([]), {}).items()
    }


@pytest.mark.parametrize("kind", [EndpointPair, ProgramPair])
def test_sync__makes_both_sides_equal(kind, tmp_path):
    sides = kind(tmp_path)
    near = sides.near
    (near / "src/deep").mkdir(parents=True)
    (near / "src/deep/a.py").write_text("print()")
    (near / "run").write_text("#!/bin/sh")
    (near / "run").chmod(0o755)
    (near / "empty").mkdir()
    (near / "link").symlink_to("src/deep/a.py")
    (near / "naïve file\n").write_bytes(b"\0\xff")
    (near / os.fsdecode(b"not-utf-8-\xff")).write_text("x")
    assert sides.synchronize() == {}
    assert contents(near) == contents(sides.far)
    assert (sides.far / "run").stat().st_mode & 0o111
    assert (sides.far / "link").readlink() == Path("src/deep/a.py")


def test_sync__ignored_files_and_the_git_directory_are_not_copied(sides):
    for path in (
        "node_modules/x",
        "sub/build/y",
        "sub/kept/z",
        ".git/config",
        "sub/.GIT/hooks/h",
        "a.log",
        "keep.log",
    ):
        file = sides.near / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(path)
    (sides.near / ".gitignore").write_text("node_modules/\n*.log\n!keep.log\n")
    (sides.near / "sub/.gitignore").write_text("/build\n")
    sides.synchronize()
    files = {path for path, entry in contents(sides.far).items() if entry.kind == "file"}
    assert files == {".gitignore", "keep.log", "sub/.gitignore", "sub/kept/z"}


def test_sync__random_changes_converge_without_loss(sides):
    chance = random.Random(7)
    written: set[str] = set()
    for round_ in range(12):
        for side in (sides.near, sides.far):
            for _ in range(6):
                change_something(side, chance, written, f"{round_}-{side.name}-{len(written)}")
        for _ in range(3):  # what was in the way of something else is done next time
            sides.synchronize()
        assert contents(sides.near) == contents(sides.far)
    assert sides.plan().push == sides.plan().pull == []


def change_something(side, chance, written, text):
    name = chance.choice(["a", "b", "d/a", "d/b", "d/e/f", "g"])
    file = side / name
    if chance.random() < 0.25 and file.is_file():
        file.unlink()
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    written.add(text)


def test_sync__conflict_keeps_both_versions(sides):
    (sides.near / "a.txt").write_text("first")
    sides.synchronize()
    (sides.near / "a.txt").write_text("ours")
    (sides.far / "a.txt").write_text("theirs")
    sides.synchronize()
    sides.synchronize()
    for side in (sides.near, sides.far):
        assert (side / "a.txt").read_text() == "ours"
        assert (side / "a.from-sandbox.txt").read_text() == "theirs"
    assert sides.plan().conflicts == {}


def test_sync__file_changed_after_the_scan_is_not_overwritten(sides):
    (sides.near / "a").write_text("first")
    sides.synchronize()
    (sides.near / "a").write_text("ours")
    plan = sides.plan()
    (sides.far / "a").write_text("theirs, a moment later")
    assert sides.carry(plan.push, sides.near, sides.far) == {"a": "It was changed in the meantime."}
    assert (sides.far / "a").read_text() == "theirs, a moment later"


def test_sync__file_changed_while_packing_is_recorded_as_sent(sides):
    (sides.near / "a").write_text("first")
    plan = sides.plan()
    (sides.near / "a").write_text("second")
    sides.carry(plan.push, sides.near, sides.far)
    assert contents(sides.near) == contents(sides.far)
    assert sides.plan().push == []


def test_sync__directory_replaced_by_a_file_and_back(sides):
    (sides.near / "x").mkdir()
    (sides.near / "x/inside").write_text("1")
    sides.synchronize()
    (sides.near / "x/inside").unlink()
    (sides.near / "x").rmdir()
    (sides.near / "x").write_text("a file now")
    assert sides.synchronize() == {}
    assert (sides.far / "x").read_text() == "a file now"
    (sides.far / "x").unlink()
    (sides.far / "x").mkdir()
    assert sides.synchronize() == {}
    assert (sides.near / "x").is_dir()


def test_sync_scan__unchanged_files_are_not_read_again(sides):
    file = sides.near / "a"
    file.write_text("first")
    os.utime(file, ns=(1, 1))
    old = Entry("file", "as it was known", stamp=scanner.stamp_of(file.stat()))
    fresh = scanner.scan(str(sides.near), Rules([]), {"a": old})["a"]
    assert fresh.content != "as it was known"  # so soon after a change its stamp tells nothing
    assert fresh.stamp == ""


HOSTILE = [
    "../outside",
    "/etc/x",
    "a/../../outside",
    "way-out/x",
    "",
    "a//b",
    "./a",
    "x" * 300,
    "a\0b",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_changeset__paths_outside_the_directory_are_refused(sides, tmp_path, path):
    (sides.near / "way-out").symlink_to(tmp_path)
    (sides.far / "evil").write_text("evil")
    before = sorted(tmp_path.rglob("*"))
    change = Change(path, before=None, after=Entry("file"), source="evil")
    changeset_file = tmp_path / "far" / "parcel"
    with changeset_file.open("wb") as file:
        changeset.pack(str(sides.far), [change], file)
    with changeset_file.open("rb") as file:
        outcome = applier.apply(str(sides.near), file)
    assert outcome.done == []
    changeset_file.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_changeset__unexpected_changes_are_ignored(sides, tmp_path):
    (sides.far / "hook").write_text("evil")
    asked = Change("hook", before=None, after=Entry("file", "?"))
    others = [
        Change(".git/hooks/pre-commit", before=None, after=Entry("file"), source="hook"),
        Change("link", before=None, after=Entry("link", "/etc")),
        asked,
    ]
    changeset_file = tmp_path / "scratch/parcel"
    with changeset_file.open("wb") as file:
        changeset.pack(str(sides.far), others, file)
    with changeset_file.open("rb") as file:
        outcome = applier.apply(str(sides.near), file, {"hook": asked})
    assert [change.path for change in outcome.done] == ["hook"]
    assert sorted(path.name for path in sides.near.iterdir()) == ["hook"]


def test_changeset__members_other_than_files_are_rejected(sides, tmp_path):
    changeset_file = tmp_path / "scratch/parcel"
    with tarfile.open(changeset_file, "w") as tar:
        link = tarfile.TarInfo("0")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with changeset_file.open("rb") as file, pytest.raises(ValueError, match="other than files"):
        applier.apply(str(sides.near), file)


def test_changeset__truncated_archive_changes_nothing(sides, tmp_path):
    (sides.far / "a").write_text("x" * 100_000)
    changeset_file = tmp_path / "scratch/parcel"
    change = Change("a", before=None, after=Entry("file"))
    with changeset_file.open("wb") as file:
        changeset.pack(str(sides.far), [change], file)
    os.truncate(changeset_file, 50_000)
    with changeset_file.open("rb") as file, pytest.raises(tarfile.TarError):
        applier.apply(str(sides.near), file)
    assert list(sides.near.iterdir()) == []


def test_sync_scan__pipes_and_sockets_are_skipped(sides):
    os.mkfifo(sides.near / "pipe")
    assert contents(sides.near) == {}
    assert sides.plan(Direction.PUSH).push == []


def test_changeset__replaced_file_keeps_its_mode(sides):
    (sides.near / "secret").write_text("1")
    sides.synchronize()
    (sides.far / "secret").chmod(0o600)
    (sides.near / "secret").write_text("2")
    sides.synchronize()
    assert (sides.far / "secret").stat().st_mode & 0o777 == 0o600
