"""`python -m sandbox_client.workspace` as a person uses it: typed into through a real terminal."""

import json

import pytest

from sandbox_client.workspace.command import main
from sandbox_client.workspace.config import AGENT_KEYS, FILE, WorkspaceConfig
from sandbox_client.workspace.workspace import session_of
from tests.client.terminal_user import TerminalUser
from tests.client.workspace.conftest import COMMAND

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def start(run, project):
    """Start it in a terminal."""
    return lambda *words: TerminalUser([*COMMAND, "start", *words], cwd=project)


def describe(project, **described):
    (project / FILE).write_text(json.dumps(described))


async def test_workspace_start__opens_a_shell_in_the_sandbox(start, project):
    describe(project, environment=["NOT_HERE", "MODE=test"], setup=["echo step >>made.txt"])
    with start() as person:
        seen = person.see("$ echo step")
        assert "environment: MODE" in seen
        assert "not set locally, skipped: NOT_HERE" in seen
        assert "git history: copied to the sandbox" in seen
        person.type("echo $MODE in $PWD; stty size\r")
        person.see("test in /workspace")
        person.see("24 80")
        person.resize(100, 30)
        person.type("stty size\r")
        person.see("30 100")
        person.type("sleep 100\r\x03")
        person.type("echo theirs >app.py; exit 3\r")
        left = person.see("`delete` deletes it")
        assert "changed in the sandbox only: app.py, made.txt" in left
        assert person.end() == 3


async def test_workspace_pull__copies_changes_from_the_sandbox(start, run, project):
    with start("--no-shell") as person:
        assert person.end() == 0
    with start() as person:
        person.type("echo theirs >app.py; echo $?-done; git commit -qam Inside; exit\r")
        person.see("git merge sandbox/main")
        assert person.end() == 0
    assert "changed in the sandbox only: app.py" in run("status").stderr
    pulled = run("pull")
    assert (pulled.returncode, pulled.stderr) == (0, "copied from the sandbox: app.py\n")
    assert (project / "app.py").read_text() == "theirs\n"


async def test_workspace_start__passes_keys_of_agents_without_a_configuration_file(
    start, client, project, monkeypatch
):
    for name in AGENT_KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", "secret-one")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-two")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    with start("--no-shell") as person:
        seen = person.see("to the sandbox: app.py")
        assert person.end() == 0
    assert "environment: GITHUB_TOKEN, ANTHROPIC_API_KEY\r\n" in seen
    assert "secret" not in seen
    sandbox = await client.session_sandbox(session_of(project))
    printed = await sandbox.run("printenv GITHUB_TOKEN ANTHROPIC_API_KEY OPENAI_API_KEY")
    assert printed.stdout == "secret-one\nsecret-two\n"


def test_workspace_config__an_empty_file_passes_no_keys(project, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    assert WorkspaceConfig.read(project).variables()[0] == {"GITHUB_TOKEN": "secret"}
    describe(project)
    assert WorkspaceConfig.read(project).variables() == ({}, [])


@pytest.mark.slow  # `test_workspace` has it without the command
async def test_workspace_start__watch_synchronizes_both_directions(start, project):
    with start("--watch") as person:
        person.see("$ ")
        (project / "here.txt").write_text("from here\n")
        person.type(
            "until cat here.txt; do sleep 0.2; done 2>/dev/null; echo there >there.txt; exit\r"
        )
        person.see("from here")
        assert person.end() == 0
    assert (project / "there.txt").read_text() == "there\n"


async def test_workspace_start__detached_shell_keeps_running(start, project):
    with start() as person:
        person.see("$ ")
        person.type("\r~.")
        person.see("the sandbox keeps running")
        assert person.end() == 0


async def test_workspace_command__start_is_the_default_action(run, project, tmp_path):
    assert run(str(project), "--no-shell").returncode == 0
    assert "sandbox" in run("status").stderr
    missing = run(str(tmp_path / "missing"))
    assert missing.stderr.endswith("missing is not a directory.\n")


async def test_workspace_start__shell_requires_a_terminal(run):
    done = run("start")
    assert done.returncode == 1
    assert done.stderr.endswith(
        "The shell needs a terminal. Use --no-shell to start without one.\n"
    )


@pytest.mark.parametrize("act", ["pull", "push", "sync", "status"])
async def test_workspace_status__directory_without_a_sandbox(run, act):
    done = run(act)
    assert done.returncode == 1
    assert "has no sandbox. Create one with `start`." in done.stderr


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ("{", "Invalid JSON"),
        ('{"enviroment": []}', "enviroment: Extra inputs are not permitted"),
        ('{"timeout_s": "long"}', "timeout_s: Input should be a valid number"),
        ('{"environment": ["1X=1"]}', "environment"),
    ],
)
async def test_workspace_config__invalid_file_is_rejected_with_the_field(
    run, project, written, complaint
):
    (project / FILE).write_text(written)
    done = run("start")
    assert done.returncode == 1
    assert FILE in done.stderr
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["start", "--no-shell", "DIR"],
        ["--no-shell", "DIR"],
        ["--no-shell", "start", "DIR"],
        ["DIR", "--no-shell"],
    ],
)
def test_workspace_command__options_may_precede_the_directory(words, capsys, tmp_path):
    missing = str(tmp_path / "missing")
    assert main([missing if word == "DIR" else word for word in words]) == 1
    assert capsys.readouterr().err == f"start-e2b-sandbox: {missing} is not a directory.\n"
