import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_engine.system.settings import Settings as EngineSettings
from sandbox_server.settings import Settings as ServerSettings
from sandbox_server.settings import variable_of

UNITS = sorted((Path(__file__).parent.parent / "systemd").glob("*.service"))
INSTALLED = "/opt/sandbox-server/bin/"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd here"
)


@pytest.fixture
def units(tmp_path):
    """Have the units start the programs of this environment, since those that are missing are refused."""
    copies = [tmp_path / unit.name for unit in UNITS]
    for unit, copy in zip(UNITS, copies, strict=True):
        here = f"{Path(sys.executable).parent}/"
        copy.write_text(unit.read_text().replace(INSTALLED, here))
    return copies


# Options of the engine's unit that sandboxes do not inherit. Any other may be a seccomp filter
# (ProtectHostname, LockPersonality, RestrictRealtime, ...), set no_new_privs or take capabilities,
# and reaches every sandbox: the keeper, the OCI runtime and what it starts are children of the engine.
NOT_INHERITED = {
    "ExecStart",
    "Environment",
    "EnvironmentFile",
    "StateDirectory",
    "StateDirectoryMode",
    "Restart",
    "RestartSec",
    "RestartPreventExitStatus",
    "KillMode",
    "Delegate",  # these two: sandboxes have control groups of their own
    "TasksMax",
    "LimitNOFILE",  # these two the engine sets for sandboxes itself
    "OOMScoreAdjust",
}


def test_systemd__the_engine_has_no_option_that_sandboxes_inherit():
    (unit,) = (unit for unit in UNITS if unit.name == "sandbox-engine.service")
    service = unit.read_text().partition("[Service]")[2].partition("[Install]")[0]
    assert set(re.findall(r"^(\w+)=", service, re.MULTILINE)) - NOT_INHERITED == set()


@needs_systemd
def test_systemd__the_units_are_valid(units):
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_systemd__the_server_is_confined(units):
    (server,) = (unit for unit in units if unit.name == "sandbox-server.service")
    most = 15  # of 100; what listens on the network and reads its own files has more than 10
    subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={most}", server], check=True
    )


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd__units_set_existing_options_only(unit):
    known = {variable_of(name) for name in ServerSettings.model_fields} | {
        f"SANDBOX_ENGINE_{name.upper()}" for name in EngineSettings.model_fields
    }
    for line in re.findall(r"^Environment=(.*)$", unit.read_text(), re.MULTILINE):
        for assignment in line.split():
            assert assignment.partition("=")[0].removesuffix("_FILE") in known
