"""Directories and what is in them, through the unmodified SDK."""

from datetime import UTC, datetime, timedelta

import pytest
from e2b import FileNotFoundException, FileType, InvalidArgumentException, SandboxException

pytestmark = pytest.mark.needs_engine


async def test_directories__list_has_the_requested_depth_and_describes_entries(shared, directory):
    await shared.commands.run("mkdir -p b/c/d && touch a b/e b/c/f b/c/d/g z", cwd=directory)
    by_depth = [
        [one.path.removeprefix(f"{directory}/") for one in await shared.files.list(directory, d)]
        for d in (1, 2, 3, 50)
    ]
    assert by_depth == [
        ["a", "b", "z"],
        ["a", "b", "b/c", "b/e", "z"],
        ["a", "b", "b/c", "b/c/d", "b/c/f", "b/e", "z"],
        ["a", "b", "b/c", "b/c/d", "b/c/d/g", "b/c/f", "b/e", "z"],
    ]
    file, made, _ = await shared.files.list(directory)
    assert (file.type, made.type) == (FileType.FILE, FileType.DIR)
    assert (file.name, file.owner, file.permissions) == ("a", "user", "-rw-r--r--")


async def test_directories__list_of_thousands_is_complete(shared, directory):
    await shared.commands.run(f"cd {directory} && seq 5000 | xargs touch")
    listed = await shared.files.list(directory)
    assert sorted(int(entry.name) for entry in listed) == list(range(1, 5001))


async def test_directories__absurd_depth_is_an_error_or_harmless(shared, directory):
    await shared.files.make_dir(f"{directory}/a/b")
    with pytest.raises(InvalidArgumentException, match="at least 1"):
        await shared.files.list(directory, depth=0)
    assert len(await shared.files.list(directory, depth=4_294_967_295)) == 2


async def test_directories__file_info_has_type_and_owner(shared, directory):
    before = datetime.now(UTC) - timedelta(seconds=2)
    await shared.files.write(f"{directory}/file", "12345")
    await shared.commands.run(
        f"cd {directory} && chown root:sudo file && chmod 4751 file", user="root"
    )
    info = await shared.files.get_info(f"{directory}/file")
    assert (info.name, info.path) == ("file", f"{directory}/file")
    assert (info.type, info.size) == (FileType.FILE, 5)
    assert (info.owner, info.group) == ("root", "sudo")
    assert (info.mode, info.permissions) == (0o751, "urwxr-x--x")
    assert info.symlink_target is None
    assert before < info.modified_time.astimezone(UTC) < datetime.now(UTC) + timedelta(seconds=2)


async def test_directories__link_info_has_the_target(shared, directory):
    await shared.commands.run(
        "mkdir real && ln -s real/ link && ln -s none broken && ln -s link/../link again",
        cwd=directory,
    )
    link = await shared.files.get_info(f"{directory}/link")
    assert (link.type, link.symlink_target) == (FileType.SYMLINK, f"{directory}/real")
    assert link.permissions == "Lrwxrwxrwx"
    again = await shared.files.get_info(f"{directory}/again")
    assert again.symlink_target == f"{directory}/real"
    broken = await shared.files.get_info(f"{directory}/broken")
    assert (broken.type, broken.symlink_target) == (FileType.SYMLINK, f"{directory}/broken")


async def test_directories__directory_link_is_listed_but_not_entered(shared, directory):
    await shared.commands.run("mkdir -p real/sub && ln -s real link", cwd=directory)
    assert [one.path for one in await shared.files.list(f"{directory}/link")] == [
        f"{directory}/link/sub"
    ]
    assert f"{directory}/link/sub" not in [
        one.path for one in await shared.files.list(directory, depth=9)
    ]


async def test_directories__exists_covers_files_directories_and_links(shared, directory):
    await shared.commands.run("touch file && mkdir dir && ln -s none broken", cwd=directory)
    for name in ("file", "dir", "broken", ""):
        assert await shared.files.exists(f"{directory}/{name}")
    assert not await shared.files.exists(f"{directory}/none")
    assert not await shared.files.exists(f"{directory}/none/below")


async def test_directories__directory_is_created_once(shared, directory):
    assert await shared.files.make_dir(f"{directory}/one/two/three")
    assert not await shared.files.make_dir(f"{directory}/one/two/three")
    assert not await shared.files.make_dir(f"{directory}/one")
    info = await shared.files.get_info(f"{directory}/one/two")
    assert (info.owner, info.permissions) == ("user", "drwxr-xr-x")
    assert await shared.files.make_dir(f"{directory}/roots", user="root")
    assert (await shared.files.get_info(f"{directory}/roots")).owner == "root"


async def test_directories__rename_moves_trees_and_replaces_files(shared, directory):
    await shared.files.write(f"{directory}/old", "content")
    moved = await shared.files.rename(f"{directory}/old", f"{directory}/made/for/it/new")
    assert moved.path == f"{directory}/made/for/it/new"
    await shared.files.write(f"{directory}/other", "other")
    await shared.files.rename(f"{directory}/other", f"{directory}/made/for/it/new")
    await shared.files.rename(f"{directory}/made", f"{directory}/moved")
    assert await shared.files.read(f"{directory}/moved/for/it/new") == "other"
    assert [one.name for one in await shared.files.list(directory)] == ["moved"]


@pytest.mark.parametrize(
    ("source", "destination", "error"),
    [
        ("none", "new", FileNotFoundException),
        ("file", "full", SandboxException),
        ("full", "file", SandboxException),
        ("full", "full/into/itself", SandboxException),
        ("file", "file/below", SandboxException),
        ("full", "other", SandboxException),
    ],
)
async def test_directories__failed_rename_changes_nothing(
    shared, directory, source, destination, error
):
    await shared.commands.run("mkdir full other; touch file full/kept other/kept", cwd=directory)
    with pytest.raises(error):
        await shared.files.rename(f"{directory}/{source}", f"{directory}/{destination}")
    for path in ("file", "full/kept", "other/kept"):
        assert await shared.files.exists(f"{directory}/{path}")


async def test_directories__removal_is_recursive(shared, directory):
    await shared.commands.run(
        "mkdir -p tree/deep kept && touch tree/deep/file kept/file && ln -s $PWD/kept tree/link",
        cwd=directory,
    )
    await shared.files.remove(f"{directory}/tree")
    assert [one.name for one in await shared.files.list(directory)] == ["kept"]
    assert await shared.files.exists(f"{directory}/kept/file")
    await shared.files.remove(f"{directory}/tree")
    with pytest.raises(SandboxException):
        await shared.files.remove("/")
    assert await shared.files.exists(f"{directory}/kept/file")


async def test_directories__missing_path_is_not_found(shared, directory):
    for look in (shared.files.get_info, shared.files.list):
        with pytest.raises(FileNotFoundException):
            await look(f"{directory}/none")
