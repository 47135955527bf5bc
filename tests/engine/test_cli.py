import os
import socket
import subprocess
import sys

import pytest

# As ProtectHostname= of systemd does: sethostname (x86_64, aarch64) answers EPERM.
UNDER_A_SECCOMP_FILTER = """
import ctypes, os, platform, struct, sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ERRNO, ALLOW, EPERM = 22, 2, 0x50000, 0x7FFF0000, 1
sethostname = {"x86_64": 170, "aarch64": 161}[platform.machine()]
code = (
    struct.pack("HBBI", 0x20, 0, 0, 0)  # load the call's number
    + struct.pack("HBBI", 0x15, 0, 1, sethostname)
    + struct.pack("HBBI", 0x06, 0, 0, ERRNO | EPERM)
    + struct.pack("HBBI", 0x06, 0, 0, ALLOW)
)
text = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(text))
assert ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""
RESTRICTIONS = {
    "host name of sandboxes: cannot be set": [sys.executable, "-c", UNDER_A_SECCOMP_FILTER],
    "new privileges: denied (no_new_privs)": ["setpriv", "--no-new-privs"],
    "capabilities: not in the bounding set: CAP_KILL, CAP_SYS_PTRACE": [
        "setpriv",
        "--bounding-set=-kill,-sys_ptrace",
    ],
}


def engine(*arguments, under=(), **environment):
    return subprocess.run(
        [*under, sys.executable, "-m", "sandbox_engine", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_cli__serve_lists_missing_requirements(tmp_path):
    refused = engine("serve", "--state-dir", str(tmp_path), PATH="/nowhere")
    assert refused.returncode == 78
    assert "does not meet the engine's requirements" in refused.stdout
    assert "apt-get install runc" in refused.stdout
    assert len(refused.stdout.splitlines()) < 24
    assert refused.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_engine
def test_cli__doctor_passes_on_a_ready_machine():
    told = engine("doctor")
    assert told.returncode == 0
    assert told.stdout.endswith("This machine meets all requirements.\n")


@pytest.mark.needs_engine
def test_cli__doctor_reports_shortages_with_the_setting():
    much = str(1 << 40)
    told = engine("doctor", "--min-free-disk-mb", much, "--min-free-memory-mb", much)
    assert told.returncode == 0
    for name in ("memory", "disk"):
        assert f"low   free {name}: " in told.stdout
        assert f"--min-free-{name}-mb ({much})" in told.stdout


def test_cli__doctor_fails_on_missing_requirements():
    told = engine("doctor", PATH="/nowhere")
    assert told.returncode == 78
    assert "MISS" in told.stdout


@pytest.mark.needs_engine
@pytest.mark.parametrize(("finding", "under"), RESTRICTIONS.items(), ids=RESTRICTIONS)
def test_cli__inherited_restrictions_prevent_the_start(tmp_path, finding, under):
    for command in ("doctor", "serve"):
        told = engine(command, "--state-dir", str(tmp_path), under=under)
        assert told.returncode == 78
        assert f"MISS  {finding}" in told.stdout
        assert "systemd unit remove" in told.stdout


@pytest.mark.needs_engine
def test_cli__doctor_warns_of_inherited_seccomp_filters(tmp_path):
    under = [sys.executable, "-c", UNDER_A_SECCOMP_FILTER]
    told = engine("doctor", "--state-dir", str(tmp_path), under=under)
    assert "low   seccomp filters: 1 inherited" in told.stdout
    assert "remove SystemCallFilter" in told.stdout


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--port", "70000"], "--port"),
        (["--state-dir", "/a:b"], "--state-dir"),
        (["--memory-mb", "1"], "--memory-mb"),
        (["--subnet-pool", "nonsense"], "--subnet-pool"),
    ],
)
def test_cli__invalid_setting_is_named(flags, complaint):
    refused = engine("serve", *flags)
    assert refused.returncode == 2
    assert complaint in refused.stderr


def test_cli__settings_come_from_the_environment():
    refused = engine("serve", SANDBOX_ENGINE_PORT="70000")
    assert refused.returncode == 2
    assert "port" in refused.stderr


@pytest.mark.needs_engine
def test_cli__used_port_is_reported_without_a_traceback(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = engine("serve", "--state-dir", f"{tmp_path}/state", "--port", port)
    assert refused.returncode == 78
    assert f"port {port} of 127.0.0.1 is taken" in refused.stdout
    assert refused.stderr == ""
