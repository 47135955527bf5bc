import os
import socket
import subprocess
import sys

import pytest


def engine(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sandbox_engine", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_serve_says_in_one_screen_what_is_missing_and_what_to_do(tmp_path):
    refused = engine("serve", "--state-dir", str(tmp_path), PATH="/nowhere")
    assert refused.returncode == 78
    assert "cannot work on this machine yet" in refused.stdout
    assert "apt-get install runc" in refused.stdout
    assert len(refused.stdout.splitlines()) < 24
    assert refused.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_engine
def test_doctor_finds_everything_where_the_engine_works():
    told = engine("doctor")
    assert told.returncode == 0
    assert told.stdout.endswith("The engine can work here.\n")


@pytest.mark.needs_engine
def test_doctor_says_what_of_the_machine_is_short_and_which_setting_decides():
    much = str(1 << 40)
    told = engine("doctor", "--min-free-disk-mb", much, "--min-free-memory-mb", much)
    assert told.returncode == 0
    for name in ("memory", "disk"):
        assert f"low   free {name}: " in told.stdout
        assert f"--min-free-{name}-mb ({much})" in told.stdout


def test_doctor_fails_where_something_is_missing():
    told = engine("doctor", PATH="/nowhere")
    assert told.returncode == 78
    assert "MISS" in told.stdout


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--port", "70000"], "--port"),
        (["--state-dir", "/a:b"], "--state-dir"),
        (["--memory-mb", "1"], "--memory-mb"),
        (["--subnet-pool", "nonsense"], "--subnet-pool"),
    ],
)
def test_a_wrong_setting_is_named(flags, complaint):
    refused = engine("serve", *flags)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_settings_come_from_the_environment_too():
    refused = engine("serve", SANDBOX_ENGINE_PORT="70000")
    assert refused.returncode == 2
    assert "port" in refused.stderr


@pytest.mark.needs_engine
def test_a_taken_port_is_said_without_a_traceback(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = engine("serve", "--state-dir", f"{tmp_path}/state", "--port", port)
    assert refused.returncode == 78
    assert f"port {port} of 127.0.0.1 is taken" in refused.stdout
    assert refused.stderr == ""
