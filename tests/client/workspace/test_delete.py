"""`delete` refuses to delete a sandbox with unsaved work."""

import shutil

import pytest

from sandbox_client.workspace.config import FILE
from sandbox_client.workspace.workspace import find_latest_sandbox, find_sandbox
from tests.client.workspace.conftest import git

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def started(run, project):
    """Start the project's sandbox, with the history and the files that are here."""
    started = run("start", "--no-shell")
    assert started.returncode == 0, started.stderr
    return project


@pytest.fixture
async def inside(client, started):
    """Run a command line in the project's sandbox."""

    async def inside(script):
        sandbox = await find_sandbox(client, started)
        done = await sandbox.run(script, cwd="/workspace", check=True)
        return done.stdout

    return inside


@pytest.fixture
def state(client, started):
    """Ask for the state of the project's sandbox."""

    async def state():
        found = await find_latest_sandbox(client, started)
        assert found is not None
        return found.record.state

    return state


async def test_workspace_delete__refuses_and_lists_unpulled_changes(run, inside, state):
    await inside("echo important >result.txt; echo theirs >app.py")
    kept = run("delete")
    assert kept.returncode == 1
    listed, refusal = kept.stderr.splitlines()
    assert listed == "changed in the sandbox and not pulled: app.py, result.txt"
    assert refusal.endswith(
        "was not deleted because this work would be lost. Run `pull` first, or discard it with `delete --force`."
    )
    assert await state() == "running"


async def test_workspace_delete__deletes_after_a_pull(run, inside, state, project):
    await inside("echo important >result.txt; git add .; git commit -qm Inside")
    assert run("pull").returncode == 0
    deleted = run("delete")
    assert (deleted.returncode, deleted.stderr.endswith(" deleted\n")) == (0, True)
    assert await state() == "stopped"
    assert (project / "result.txt").read_text() == "important\n"


async def test_workspace_delete__force_discards_changes(run, inside, state):
    await inside("echo important >result.txt")
    assert run("delete", "--force").returncode == 0
    assert await state() == "stopped"


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__long_lists_are_shortened(run, inside):
    await inside("for i in $(seq 10 40); do echo $i >$i.txt; done")
    assert "10.txt, 11.txt" in (told := run("delete").stderr)
    assert "19.txt and 21 more\n" in told


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__file_names_are_escaped(run, inside):
    await inside("touch \"$(printf 'a\\033[2Jb')\"")
    told = run("delete").stderr
    assert "\033" not in told
    assert r"a\x1b[2Jb" in told


async def test_workspace_delete__refuses_with_unfetched_commits(run, inside, project):
    await inside("git commit -q --allow-empty -m Inside; git switch -qc other; git switch -q main")
    kept = run("delete")
    assert kept.returncode == 1
    assert "commits not fetched yet, on: main" in kept.stderr
    assert run("pull").returncode == 0
    assert git(project, "log", "-1", "--format=%s", "sandbox/main") == "Inside"
    assert run("delete").returncode == 0


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__refuses_with_commits_no_local_ref_reaches(run, inside, project):
    await inside("git commit -q --allow-empty -m Inside")
    assert run("pull").returncode == 0
    git(project, "update-ref", "-d", "refs/remotes/sandbox/main")
    assert "commits not fetched yet, on: main" in run("delete").stderr


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__refuses_with_commits_that_pull_cannot_fetch(run, inside):
    await inside("echo stashed >app.py; git stash --quiet")
    await inside("git switch -q --detach; git commit -q --allow-empty -m Lost")
    await inside("git commit -q --allow-empty -m Tagged; git tag -a -m v1 v1; git switch -q main")
    await inside("git switch -q --detach; git commit -q --allow-empty -m Lonely")
    kept = run("delete")
    assert kept.returncode == 1
    assert "commits that `pull` cannot fetch, on: refs/tags/v1, stash@{0}, HEAD\n" in kept.stderr
    assert "Copy it out of the sandbox first, or discard it with `delete --force`." in kept.stderr
    assert run("pull").returncode == 0
    assert run("delete").returncode == 1


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__refuses_with_a_repository_only_in_the_sandbox(
    run, tmp_path, home, client
):
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "x").write_text("x")
    assert run("start", str(plain), "--no-shell").returncode == 0
    sandbox = await find_sandbox(client, plain)
    await sandbox.run(
        "git init -qb main && git -c user.name=A -c user.email=a@example.org commit -qm I --allow-empty",
        cwd="/workspace",
        check=True,
    )
    kept = run("delete", str(plain))
    assert kept.returncode == 1
    assert "commits that `pull` cannot fetch, on: main\n" in kept.stderr
    assert run("delete", str(plain), "--force").returncode == 0


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__failing_logout_script_is_ignored(run, inside):
    await inside("rm -rf .git; echo false >~/.bash_logout")
    deleted = run("delete")
    assert deleted.returncode == 0, deleted.stderr


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__refuses_with_unreadable_files(run, inside, project):
    (project / "closed").mkdir()
    (project / "closed" / "x").write_text("x")
    assert run("push").returncode == 0
    await inside("sudo chown root app.py closed; sudo chmod 600 app.py; sudo chmod 700 closed")
    assert run("pull").returncode == 0
    assert (project / "app.py").exists()
    assert (project / "closed" / "x").read_text() == "x"
    kept = run("delete")
    assert kept.returncode == 1
    assert "not readable in the sandbox, so `pull` skips them: app.py, closed" in kept.stderr


@pytest.mark.slow  # three pauses
async def test_workspace_delete__resumes_a_paused_sandbox_to_check_it(run, inside, client, started):
    await inside("echo important >result.txt")
    await (await find_sandbox(client, started)).pause()
    assert "result.txt" in run("delete").stderr
    await (await find_sandbox(client, started)).pause()
    assert run("pull").returncode == 0
    await (await find_sandbox(client, started)).pause()
    assert run("delete").returncode == 0


@pytest.mark.slow  # one more kind of unsaved work
async def test_workspace_delete__missing_directory_requires_force(
    run, inside, project, tmp_path, state
):
    (project / "app.py").rename(tmp_path / "app.py")
    shutil.rmtree(project / ".git")
    for gone in (False, True):
        kept = run("delete", str(project), cwd=tmp_path)
        assert kept.returncode == 1
        assert f"{project} is missing or empty, so there is nothing to compare with" in kept.stderr
        assert "`delete --force`" in kept.stderr
        if not gone:
            project.rmdir()
    assert await state() == "running"
    assert run("delete", str(project), "--force", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("sudo mv /usr/bin/python3 /usr/bin/python3.away", "The sandbox has no python3"),
        pytest.param(
            "mv .git/HEAD .git/away", "fatal: not a git repository", marks=pytest.mark.slow
        ),
        pytest.param(
            "sudo mv /usr/bin/git /usr/bin/git.away",
            "git: command not found",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_workspace_delete__failed_check_requires_force(run, inside, state, broken, reason):
    await inside(broken)
    kept = run("delete")
    assert kept.returncode == 1
    assert "cannot be checked for unsaved work: " in kept.stderr
    assert reason in kept.stderr
    assert await state() == "running"
    assert run("delete", "--force").returncode == 0


@pytest.mark.slow  # the client tries for 20 s
async def test_workspace_delete__unreachable_server_is_an_error(run, started, monkeypatch):
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("SANDBOX_SERVER_URL", "http://127.0.0.1:9")
        down = run("delete")
    assert down.returncode == 1
    assert "127.0.0.1:9" in down.stderr


async def test_workspace_delete__deleted_sandbox_needs_no_force(run, inside, client, started):
    await inside("echo important >result.txt")
    await (await find_sandbox(client, started)).delete()
    for _ in range(2):
        gone = run("delete")
        assert (gone.returncode, gone.stderr) == (
            0,
            f"{started} has no sandbox; nothing to delete\n",
        )


async def test_workspace_delete__directory_without_a_sandbox_needs_no_force(run, project):
    assert run("delete").returncode == 0


async def test_workspace_delete__failed_sandbox_requires_force(run, project):
    (project / FILE).write_text('{"template": "base:no-such-tag"}')
    assert run("start", "--no-shell").returncode == 1
    kept = run("delete")
    assert kept.returncode == 1
    assert "cannot be checked for unsaved work: the sandbox has failed (" in kept.stderr
    assert run("delete", "--force").returncode == 0
