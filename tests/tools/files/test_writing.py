import asyncio
import os

import pytest


async def test_a_new_file_is_made_with_its_directories(directory, text_of):
    said = await text_of("write_file", path=directory / "src" / "new" / "a.txt", content="grün\n")
    assert said == f"Created {directory}/src/new/a.txt with 1 line."
    assert (directory / "src" / "new" / "a.txt").read_text("utf-8") == "grün\n"


async def test_a_file_that_is_overwritten_keeps_its_mode_and_what_leads_to_it(directory, text_of):
    (directory / "run.sh").write_text("old")
    (directory / "run.sh").chmod(0o750)
    (directory / "link").symlink_to("run.sh")
    assert "Overwrote" in await text_of("write_file", path=directory / "link", content="new")
    assert (directory / "link").is_symlink()
    assert (directory / "run.sh").read_text() == "new"
    assert (directory / "run.sh").stat().st_mode & 0o777 == 0o750


async def test_whoever_reads_a_file_meanwhile_has_all_of_the_old_one(directory, text_of):
    (directory / "a.txt").write_text("old")
    with (directory / "a.txt").open() as reader:
        await text_of("write_file", path=directory / "a.txt", content="new")
        assert reader.read() == "old"
    assert [entry.name for entry in directory.iterdir()] == ["a.txt"]


async def test_a_file_with_several_names_keeps_them(directory, text_of):
    (directory / "a.txt").write_text("old")
    (directory / "b.txt").hardlink_to(directory / "a.txt")
    await text_of("write_file", path=directory / "a.txt", content="new")
    assert (directory / "b.txt").read_text() == "new"


async def test_what_is_no_file_is_not_written(directory, refusal_of):
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


async def test_an_edit_replaces_exactly_what_is_there_once(directory, text_of):
    (directory / "a.py").write_text("def f():\n    return 1\n\ndef g():\n    return 2\n")
    said = await text_of(
        "edit_file", path=directory / "a.py", old_string="return 2", new_string="return 3"
    )
    assert said == f"Changed {directory}/a.py at line 5."
    assert (directory / "a.py").read_text() == "def f():\n    return 1\n\ndef g():\n    return 3\n"


async def test_text_that_is_there_several_times_is_replaced_only_on_request(
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
async def test_text_that_is_not_there_is_told_with_what_is_near(directory, refusal_of, old, hint):
    (directory / "a.py").write_text("x = 1\nif x:\n\tgo()\n")
    said = await refusal_of("edit_file", path=directory / "a.py", old_string=old, new_string="")
    assert "old_string was not found" in said
    assert hint in said


async def test_an_edit_without_a_meaning_is_refused(directory, refusal_of):
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
async def test_ends_of_lines_and_encodings_stay(directory, text_of, before, after):
    (directory / "a.txt").write_bytes(before)
    await text_of(
        "edit_file", path=directory / "a.txt", old_string="one\ntwo\n", new_string="1\n2\n"
    )
    assert (directory / "a.txt").read_bytes() == after


async def test_a_character_that_the_encoding_lacks_changes_nothing(directory, refusal_of):
    (directory / "a.txt").write_bytes(b"gr\xfcn")
    said = await refusal_of("edit_file", path=directory / "a.txt", old_string="gr", new_string="→")
    assert "latin-1 cannot represent '\\u2192'" in said
    assert (directory / "a.txt").read_bytes() == b"gr\xfcn"


async def test_what_is_no_text_is_not_edited(directory, refusal_of):
    edit = {"path": directory / "a", "old_string": "a", "new_string": "b"}
    (directory / "a").write_bytes(b"a\0")
    assert "is a binary file" in await refusal_of("edit_file", **edit)
    (directory / "a").write_bytes(b"a" * 100_000 + b"\xff")
    assert "is not valid utf-8 at byte 100,000" in await refusal_of("edit_file", **edit)
    with (directory / "a").open("ab") as file:
        file.truncate(2**33)
    assert "Edit it with run_command" in await refusal_of("edit_file", **edit)


async def test_many_edits_are_made_in_their_order_or_none_is(directory, text_of, refusal_of):
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


async def test_edits_of_one_file_at_once_are_all_made(directory, text_of):
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
