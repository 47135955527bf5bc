import subprocess

from sandbox_tools.agent_server import changed_files


def write(place, *names):
    for name in names:
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)


def test_changed_files__lists_new_deleted_and_modified_files(tmp_path):
    write(tmp_path, "same", "other", "gone", "node_modules/x")
    before = changed_files.snapshot(tmp_path)
    write(tmp_path, "sub/new", "node_modules/y")
    (tmp_path / "other").write_text("something else")
    (tmp_path / "gone").unlink()
    assert changed_files.diff(before, changed_files.snapshot(tmp_path)) == [
        "gone",
        "other",
        "sub/new",
    ]


def test_changed_files__skips_ignored_files_and_includes_committed_ones(tmp_path):
    def git(*arguments):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init")
    write(tmp_path, "kept")
    (tmp_path / ".gitignore").write_text("build/\n")
    before = changed_files.snapshot(tmp_path)
    write(tmp_path, "build/out", "new")
    git("add", ".")
    git("commit", "-m", "one")
    assert changed_files.diff(before, changed_files.snapshot(tmp_path)) == ["new"]


def test_changed_files__is_unknown_for_unreadable_directories():
    assert changed_files.diff({}, None) is None
