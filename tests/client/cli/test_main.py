"""What is the same for all verbs."""

import json
import os
import subprocess
import sys

import pytest

from tests.client.cli.conftest import SBX


def run(*words, **variables):
    known = {"SANDBOX_SERVER_API_KEY": "sbx_x", "SANDBOX_SERVER_URL": "http://127.0.0.1:1"}
    return subprocess.run(
        [SBX, *words],
        env={**os.environ, **known, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_sbx__unreachable_server_is_reported_at_once_with_advice():
    done = run("ls")
    assert done.returncode == 1
    assert "Cannot reach the server at http://127.0.0.1:1" in done.stderr
    assert "Start a server with `sandbox-server serve`" in done.stderr
    told = json.loads(run("--json", "ls").stderr)
    assert told["code"] == "unreachable"


@pytest.mark.parametrize(
    "words",
    [
        ("task", "run", "acme/widgets", "--command", "true", "Do it."),
        ("tail", "web", "-n", "3", "0hobr9qiqnkyqk2jbx45"),
        ("events", "--type", "sandbox.failed", "web", "-n", "1"),
    ],
)
def test_sbx__options_may_be_between_the_other_arguments(words):
    done = run(*words)
    assert done.returncode != 2
    assert "Cannot reach the server" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("nonsense",),
        ("ls", "--stat", "running"),
        ("create", "--timeout", "soon"),
        ("create", "--metadata", "x"),
        ("exec", "web", "ls", "-l"),
        ("rm", "web", "--", "x"),
        ("cp", "a", "b"),
        ("logs", "web", "-n", "-1"),
        ("task",),
        ("task", "run"),
        ("task", "run", "acme/widgets", "x", "--agent", "claude", "--command", "true"),
        ("task", "run", "acme/widgets", "x", "--detach", "--wait", "1s"),
        ("forge", "set", "github"),
    ],
)
def test_sbx__usage_errors_exit_with_2(words):
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


def test_sbx__options_of_the_command_need_two_dashes():
    assert "put -- before the command" in run("exec", "web", "ls", "-l").stderr


def test_sbx__help_does_not_import_the_client():
    heavy = ["asyncio", "httpx", "pydantic", "websockets", "sandbox_client.errors", "shtab"]
    program = (
        "import sys; from sandbox_client.cli.parser import build_parser; build_parser();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_completion__bash_completes_subcommands_and_sandbox_names(tmp_path):
    (tmp_path / "sbx").write_text("#!/bin/sh\necho website\necho other\n")
    (tmp_path / "sbx").chmod(0o755)
    script = run("completion", "bash").stdout + (
        'COMP_WORDS=(sbx pa); COMP_CWORD=1; _shtab_sbx; echo "${COMPREPLY[@]}"\n'
        'COMP_WORDS=(sbx show web); COMP_CWORD=2; _shtab_sbx; echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "pause\nwebsite\n"


@pytest.mark.parametrize(
    "shell", ["zsh", *(pytest.param(one, marks=pytest.mark.slow) for one in ("fish", "tcsh"))]
)
def test_completion__other_shells_complete_sandbox_names(shell):
    assert "sbx ls --names" in run("completion", shell).stdout


def test_sbx__workspace_has_its_own_parser():
    assert "usage: sbx workspace" in run("workspace", "--help").stdout


def test_sbx__broken_pipe_exits_quietly():
    done = subprocess.run(
        ["bash", "-c", f"{SBX} --help | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() in ("0", "141")
    assert done.stderr == ""
