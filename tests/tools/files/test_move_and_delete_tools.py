from pathlib import Path


async def test_move__to_a_path_or_into_a_directory(directory, text_of):
    (directory / "a").write_text("a")
    said = await text_of("move", source=directory / "a", destination=directory / "new" / "b")
    assert said == f"Moved {directory}/a to {directory}/new/b."
    await text_of("move", source=directory / "new" / "b", destination=directory)
    await text_of("move", source=directory / "b", destination=f"{directory}/other/")
    assert (directory / "other" / "b").read_text() == "a"


async def test_move__replaces_files_only_with_overwrite(directory, text_of, refusal_of):
    (directory / "a").write_text("a")
    (directory / "b").write_text("b")
    move = {"source": directory / "a", "destination": directory / "b"}
    assert "Set overwrite" in await refusal_of("move", **move)
    assert (directory / "b").read_text() == "b"
    await text_of("move", **move, overwrite=True)
    assert (directory / "b").read_text() == "a"


async def test_move__explains_why_a_move_is_impossible(directory, refusal_of):
    (directory / "in" / "a").mkdir(parents=True)
    (directory / "a").mkdir()
    (directory / "file").touch()
    said = await refusal_of(
        "move", source=directory / "in", destination=directory / "in" / "a" / "b"
    )
    assert "cannot be moved into itself" in said
    for source, destination in (("a", "in"), ("a", "file")):
        move = {"source": directory / source, "destination": directory / destination}
        assert "already exists" in await refusal_of("move", **move, overwrite=True)
    assert "x does not exist" in await refusal_of("move", source=directory / "x", destination="y")
    (directory / "loop").symlink_to("loop")
    for source, destination, why in (
        ("a", "loop/x", "a parent in this path"),
        ("a", "file/x", "a parent in this path"),
        ("file", "file/", "a parent in this path"),
        ("loop/x", "y", "Too many levels of symbolic links"),
    ):
        move = {"source": directory / source, "destination": f"{directory}/{destination}"}
        assert why in await refusal_of("move", **move)


async def test_move__works_across_file_systems(directory, text_of):
    (directory / "tree").mkdir()
    (directory / "tree" / "a").write_text("a")
    there = Path(f"/dev/shm/{directory.parent.parent.name}-{directory.name}")
    assert there.parent.stat().st_dev != directory.stat().st_dev
    await text_of("move", source=directory / "tree", destination=there)
    await text_of("move", source=there, destination=directory / "back")
    assert not there.exists()
    assert (directory / "back" / "a").read_text() == "a"


async def test_delete__non_empty_directories_need_recursive(directory, text_of, refusal_of):
    (directory / "tree" / "empty").mkdir(parents=True)
    (directory / "tree" / "-rf").touch()
    await text_of("delete", path=directory / "tree" / "empty")
    assert "Set recursive" in await refusal_of("delete", path=directory / "tree")
    assert (
        await text_of("delete", path=directory / "tree", recursive=True)
        == f"Deleted {directory}/tree."
    )
    assert "tree does not exist" in await refusal_of("delete", path=directory / "tree")


async def test_delete__removes_only_the_link_of_a_symlink(tool_server, directory, text_of):
    (directory / "workspace").symlink_to(tool_server.workspace)
    await text_of("delete", path=directory / "workspace")
    (directory / "kept").mkdir()
    (directory / "kept" / "a").touch()
    (directory / "link").symlink_to("kept")
    await text_of("delete", path=directory / "link", recursive=True)
    assert [entry.name for entry in directory.iterdir()] == ["kept"]
    assert (directory / "kept" / "a").exists()


async def test_delete__reports_symlink_loops(directory, refusal_of):
    (directory / "loop").symlink_to("loop")
    said = await refusal_of("delete", path=directory / "loop" / "x")
    assert "Too many levels of symbolic links" in said


async def test_delete__refuses_the_working_and_home_directories(tool_server, refusal_of):
    for path in (
        ".",
        "/",
        "~",
        tool_server.workspace.parent,
        f"{tool_server.workspace}/../workspace",
    ):
        assert "which the sandbox needs" in await refusal_of("delete", path=path, recursive=True)
