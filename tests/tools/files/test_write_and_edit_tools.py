import asyncio
import os

import pytest


async def test_write_file__creates_parent_directories(directory, text_of):
    said = await text_of("write_file", path=directory / "src" / "new" / "a.txt", content="grün\n")
    assert said == f"Created {directory}/src/new/a.txt with 1 line."
    assert (directory / "src" / "new" / "a.txt").read_text("utf-8") == "grün\n"


async def test_write_file__keeps_mode_and_symlinks(directory, text_of):
    (directory / "run.sh").write_text("old")
    (directory / "run.sh").chmod(0o750)
    (directory / "link").symlink_to("run.sh")
    assert "Overwrote" in await text_of("write_file", path=directory / "link", content="new")
    assert (directory / "link").is_symlink()
    assert (directory / "run.sh").read_text() == "new"
    assert (directory / "run.sh").stat().st_mode & 0o777 == 0o750


async def test_write_file__is_atomic_for_readers(directory, text_of):
    (directory / "a.txt").write_text("old")
    with (directory / "a.txt").open() as reader:
        await text_of("write_file", path=directory / "a.txt", content="new")
        assert reader.read() == "old"
    assert [entry.name for entry in directory.iterdir()] == ["a.txt"]


async def test_write_file__keeps_hard_links(directory, text_of):
    (directory / "a.txt").write_text("old")
    (directory / "b.txt").hardlink_to(directory / "a.txt")
    await text_of("write_file", path=directory / "a.txt", content="new")
    assert (directory / "b.txt").read_text() == "new"


async def test_write_file__rejects_pipes_directories_and_loops(directory, refusal_of):
    os.mkfifo(directory / "pipe")
    assert "a pipe" in await refusal_of("write_file", path=directory / "pipe", content="")
    assert "is a directory" in await refusal_of("write_file", path=directory, content="")
    (directory / "a.txt").write_text("a")
    below = directory / "a.txt" / "b" / "c"
    assert "a parent in this path is a file" in await refusal_of(
        "write_file", path=below, content=""
    )
    (directory / "loop").symlink_to("loop")
    assert "symbolic links" in await refusal_of("write_file", path=directory / "loop", content="")


async def test_edit_file__replaces_a_unique_text(directory, text_of):
    (directory / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    said = await text_of(
        "edit_file", path=directory / "a.py", old_string="return 2", new_string="return 3"
    )
    assert said == f"Changed {directory}/a.py at line 5."
    assert (directory / "a.py").read_text() == "def f():\n    return 1\n\ndef g():\n    return 3\n"


async def test_edit_file__replaces_repeated_text_only_with_replace_all(
    directory, text_of, refusal_of
):
    (directory / "a.txt").write_text("x\ny\nx\n")
    change = {"path": directory / "a.txt", "old_string": "x", "new_string": "z"}
    assert "occurs 2 times, at lines 1, 3" in await refusal_of("edit_file", **change)
    assert (directory / "a.txt").read_text() == "x\ny\nx\n"
    await text_of("edit_file", **change, replace_all=True)
    assert (directory / "a.txt").read_text() == "z\ny\nz\n"


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("if x:\n  go()", "It occurs with different whitespace:\n2\tif x:\n3\t\tgo()"),
        ("2\tif x:\n3\t\tgo()", "remove them"),
        ("if x:\n\tgo_on()", "The nearest match is:\n2\tif x:\n3\t\tgo()"),
        ("something else", "read the file again"),
        (" \n", "only whitespace"),
    ],
)
async def test_edit_file__a_missing_text_shows_the_nearest_match(directory, refusal_of, old, hint):
    (directory / "a.py").write_text("x = 1\nif x:\n\tgo()\n")
    said = await refusal_of("edit_file", path=directory / "a.py", old_string=old, new_string="")
    assert "old_string was not found" in said
    assert hint in said


async def test_edit_file__rejects_empty_and_identical_strings(directory, refusal_of):
    (directory / "a.txt").write_text("a")
    for old, new, said in (("", "b", "is empty"), ("a", "a", "identical")):
        edit = {"old_string": old, "new_string": new}
        assert said in await refusal_of("edit_file", path=directory / "a.txt", **edit)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"one\r\ntwo\r\n", b"1\r\n2\r\n"),
        ("one\ntwo\ngrün\n".encode("utf-8-sig"), "1\n2\ngrün\n".encode("utf-8-sig")),
        (
            b"\xfe\xff" + "one\ntwo\n".encode("utf-16-be"),
            b"\xfe\xff" + "1\n2\n".encode("utf-16-be"),
        ),
        (b"one\ntwo\ngr\xfcn", b"1\n2\ngr\xfcn"),
        (b"one\ntwo\nmixed\r\n", b"1\n2\nmixed\r\n"),
    ],
)
async def test_edit_file__keeps_line_endings_and_encoding(directory, text_of, before, after):
    (directory / "a.txt").write_bytes(before)
    await text_of(
        "edit_file", path=directory / "a.txt", old_string="one\ntwo\n", new_string="1\n2\n"
    )
    assert (directory / "a.txt").read_bytes() == after


async def test_edit_file__rejects_characters_outside_the_files_encoding(directory, refusal_of):
    (directory / "a.txt").write_bytes(b"gr\xfcn")
    said = await refusal_of("edit_file", path=directory / "a.txt", old_string="gr", new_string="→")
    assert "latin-1 cannot represent '\\u2192'" in said
    assert (directory / "a.txt").read_bytes() == b"gr\xfcn"


async def test_edit_file__rejects_binary_and_large_files(directory, refusal_of):
    edit = {"path": directory / "a", "old_string": "a", "new_string": "b"}
    (directory / "a").write_bytes(b"a\0")
    assert "is a binary file" in await refusal_of("edit_file", **edit)
    (directory / "a").write_bytes(b"a" * 100_000 + b"\xff")
    assert "is not valid utf-8 at byte 100,000" in await refusal_of("edit_file", **edit)
    with (directory / "a").open("ab") as file:
        file.truncate(2**33)
    assert "Edit it with run_command" in await refusal_of("edit_file", **edit)


async def test_multi_edit__applies_all_edits_in_order_or_none(directory, text_of, refusal_of):
    (directory / "a.txt").write_text("one\ntwo\n")
    first, second = (
        {"old_string": a, "new_string": b} for a, b in (("one", "two"), ("two\ntwo", "2"))
    )
    third = {"old_string": "one", "new_string": ""}
    said = await refusal_of("multi_edit", path=directory / "a.txt", edits=[first, second, third])
    assert "is unchanged" in said
    assert "Edit 3 of 3: old_string was not found" in said
    assert (directory / "a.txt").read_text() == "one\ntwo\n"
    await text_of("multi_edit", path=directory / "a.txt", edits=[first, second])
    assert (directory / "a.txt").read_text() == "2\n"


async def test_edit_file__concurrent_edits_of_one_file_are_all_applied(directory, text_of):
    names = [f"name{number:03}" for number in range(40)]
    (directory / "a.txt").write_text("\n".join(names))
    (directory / "link").symlink_to("a.txt")
    await asyncio.gather(
        *(
            text_of("edit_file", path=directory / which, old_string=name, new_string=name.upper())
            for name, which in zip(names, ["a.txt", "link"] * 20, strict=True)
        )
    )
    assert (directory / "a.txt").read_text() == "\n".join(names).upper()
