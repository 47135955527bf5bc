import base64
import os
import socket

import pytest

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_read_file__returns_numbered_lines(directory, text_of):
    (directory / "a.txt").write_text("one\n\n  three")
    assert await text_of("read_file", path=directory / "a.txt") == "1\tone\n2\t\n3\t  three"


async def test_read_file__resolves_relative_and_home_paths(tool_server, directory, text_of):
    (directory / "a.txt").write_text("here")
    (tool_server.workspace.parent / "home" / "b.txt").write_text("home")
    assert await text_of("read_file", path=f"{directory.name}/a.txt") == "1\there"
    assert await text_of("read_file", path="~/b.txt") == "1\thome"


async def test_read_file__a_partial_result_gives_the_next_offset(directory, text_of):
    (directory / "a.txt").write_text("".join(f"line {number}\n" for number in range(1, 101)))
    got = await text_of("read_file", path=directory / "a.txt", offset=40, limit=2)
    assert got == "40\tline 40\n41\tline 41\n[Lines 40 to 41 of 100. Continue with offset=42.]"
    assert await text_of("read_file", path=directory / "a.txt", offset=100) == "100\tline 100"


async def test_read_file__offsets_cover_a_long_file_completely(directory, text_of):
    lines = [f"{number} {'x' * 90}" for number in range(1500)]
    (directory / "a.txt").write_text("\n".join(lines))
    got, offset = [], 1
    while True:
        *told, last = (
            await text_of("read_file", path=directory / "a.txt", offset=offset)
        ).splitlines()
        assert len("".join(told)) < 60_000
        if not last.startswith("["):
            got += [*told, last]
            break
        got += told
        offset = int(last.rpartition("=")[2].rstrip(".]"))
    assert [line.partition("\t")[2] for line in got] == lines


async def test_read_file__long_lines_are_truncated(directory, text_of):
    for length in (2_000, 2_001, 65_536, 65_537, 300_000):
        (directory / "a.txt").write_text(f"{'x' * length}\nnext\n")
        first, second = (await text_of("read_file", path=directory / "a.txt")).splitlines()
        cut = f" [… {length - 2_000} characters truncated]" if length > 2_000 else ""
        assert first == f"1\t{'x' * 2_000}{cut}"
        assert second == "2\tnext"


async def test_read_file__reports_empty_files_and_offsets_beyond_the_end(
    directory, text_of, refusal_of
):
    (directory / "a.txt").write_text("")
    assert "is empty" in await text_of("read_file", path=directory / "a.txt")
    (directory / "a.txt").write_text("one\ntwo\n")
    assert "has only 2 lines" in await refusal_of("read_file", path=directory / "a.txt", offset=3)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("grün\r\nzwei\r\n".encode(), "1\tgrün\n2\tzwei"),
        ("grün\n".encode("utf-8-sig"), "1\tgrün"),
        (
            "grün\nzwei\n".encode("utf-16"),
            "1\tgrün\n2\tzwei\n[The file is not UTF-8; it was read as utf-16-le.]",
        ),
        (b"gr\xfcn\n", "1\tgrün\n[The file is not UTF-8; it was read as latin-1.]"),
    ],
)
async def test_read_file__decodes_other_encodings(directory, text_of, content, told):
    (directory / "a.txt").write_bytes(content)
    assert await text_of("read_file", path=directory / "a.txt") == told


async def test_read_file__returns_images(directory, tools):
    (directory / "a").write_bytes(PNG)
    [image] = (await tools.call_tool("read_file", {"path": str(directory / "a")})).content
    assert image.mime_type == "image/png"
    assert base64.b64decode(image.data) == PNG


async def test_read_file__rejects_large_images(directory, refusal_of):
    with (directory / "a.png").open("wb") as file:
        file.write(PNG)
        file.truncate(750_001)
    assert "smaller copy" in await refusal_of("read_file", path=directory / "a.png")


async def test_read_file__rejects_binary_files(directory, refusal_of):
    (directory / "a").write_bytes(b"\x7fELF\0" * 300)
    assert "a binary file of 1,500 bytes" in await refusal_of("read_file", path=directory / "a")


async def test_read_file__rejects_pipes_devices_and_directories(directory, refusal_of):
    os.mkfifo(directory / "pipe")
    assert "a pipe, not a regular file" in await refusal_of("read_file", path=directory / "pipe")
    assert "a device, not a regular file" in await refusal_of("read_file", path="/dev/zero")
    assert "list_directory" in await refusal_of("read_file", path=directory)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(directory / "socket"))
        assert "socket" in await refusal_of("read_file", path=directory / "socket")


async def test_read_file__a_missing_file_suggests_similar_names(directory, refusal_of):
    (directory / "settings.py").write_text("")
    said = await refusal_of("read_file", path=directory / "setings.py")
    assert said == f"setings.py does not exist in {directory}. Did you mean settings.py?"
    said = await refusal_of("read_file", path=directory / "src" / "a.py")
    assert said.endswith(f"The deepest existing directory is {directory}.")
    (directory / "link").symlink_to("nowhere")
    assert "a symlink to nowhere" in await refusal_of("read_file", path=directory / "link")
