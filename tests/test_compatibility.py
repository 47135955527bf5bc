"""The document of what works, held to the SDK that is installed."""

import asyncio
import importlib
import json
import os
import re
import subprocess
import sys

import e2b
import pytest
from compatibility import clients, versions
from compatibility.document import Finding, render

from tests.engine.engine_process import REPOSITORY

PROBES = REPOSITORY / "compatibility" / "python"
JAVASCRIPT = REPOSITORY / "compatibility" / "javascript"
DOCUMENT = REPOSITORY / "docs" / "e2b-compatibility.md"


@pytest.fixture
def probes(monkeypatch):
    """Import modules of the probes, which are no package."""
    monkeypatch.syspath_prepend(PROBES)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if (PROBES / f"{name}.py").exists():
            del sys.modules[name]


@pytest.fixture
def public(probes):
    """Find every public method of the SDK, as the probes do."""
    find = probes("methods").public_methods
    return find(e2b, is_async=False) | find(e2b, is_async=True)


def rows():
    """Read what the document says of each method in the installed version."""
    python = DOCUMENT.read_text().partition("## Python")[2].partition("## JavaScript")[0]
    cells = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", python, re.MULTILINE)
    return {method: mark.strip() for method, mark in cells}


def test_compatibility__the_document_lists_every_public_method(public):
    assert public == {method for method, mark in rows().items() if mark != "·"}


def test_compatibility__the_document_is_of_the_installed_version():
    header = DOCUMENT.read_text().partition("## Python")[2].splitlines()[2]
    assert header.split(" | ")[1] == versions.PYTHON[0]


def test_compatibility__the_document_contains_no_failure():
    assert {"FAILS", "?"}.isdisjoint(DOCUMENT.read_text().split())


def test_compatibility__the_worse_of_two_findings_is_shown():
    findings = [
        Finding("Python 1", "a.b", "works"),
        Finding("Python 1", "a.b", "not implemented", "B is not implemented."),
        Finding("Python 2", "a.b", "works"),
    ]
    document = render(findings, languages=[("Python", ("2", "1"))])
    assert "| `a.b` | yes | no |" in document
    assert "- `a.b`: B is not implemented." in document


UNREACHABLE = "step 1: docker.io: pinging container registry: dial tcp: no such host"
NO_BUN = "failed to run command 'bun install': exit status 127: bun: command not found"
REFUSALS = [
    ("Template.from_alpine_image", UNREACHABLE, "unreachable"),
    ("Template.from_alpine_image", "failed to keep the files of the image", "fails"),
    ("Template.from_gcp_registry", UNREACHABLE, "fails"),
    ("TemplateBuilder.bun_install", NO_BUN, "unreachable"),
    ("TemplateBuilder.bun_install", "the engine has no memory", "fails"),
]


@pytest.mark.parametrize(("method", "reason", "verdict"), REFUSALS)
def test_compatibility__a_refused_build_counts_only_with_the_expected_reason(
    probes, monkeypatch, method, reason, verdict
):
    harness, templates = probes("harness"), probes("probe_templates")

    async def build(kit, template):
        raise e2b.BuildException(reason)

    monkeypatch.setattr(templates, "build", build)
    assert asyncio.run(found(harness, method))[0] == verdict


@pytest.mark.parametrize(
    "method", ["add_mcp_server", "beta_dev_container_prebuild", "beta_set_dev_container_start"]
)
def test_compatibility__a_refusal_by_the_sdk_does_not_count_for_the_engine(probes, method):
    harness = probes("harness")
    probes("probe_templates")
    verdict, detail = asyncio.run(found(harness, f"TemplateBuilder.{method}"))
    assert (verdict, "template" in detail) == ("refused by the SDK", True)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("501: Secrets is not implemented by this engine."),
        AssertionError("unauthorized access, please provide a valid access token"),
        e2b.SandboxException("500: Secrets is not implemented by this engine."),
        e2b.NotFoundException("404: no such route"),
    ],
)
def test_compatibility__other_errors_are_failures(probes, error):
    assert probes("harness").verdict_of(error)[0] == "fails"


def test_compatibility__a_501_of_the_engine_is_not_implemented(probes):
    error = e2b.SandboxException("501: Workload identity is not implemented by this engine.")
    assert probes("harness").verdict_of(error)[0] == "not implemented"


async def found(harness, method):
    return await harness._run(harness.Kit(e2b, is_async=False), harness.PROBES[method])


JUDGING = """
const { BuildError, SandboxError } = require("e2b");
const { Unreachable, expectedRefusal, verdictOf } = require(process.argv[1] + "/harness.cjs");
const refused = (error) => expectedRefusal(/bun: not found/, Unreachable, async () => { throw error; })
  .catch(verdictOf);
(async () => {
  const verdicts = [
    await refused(new BuildError("bun: not found")),
    await refused(new BuildError("no memory")),
    await refused(new Error("bun: not found")),
    verdictOf(new SandboxError("501: X is not implemented by this engine.")),
    verdictOf(new TypeError("501: X is not implemented by this engine.")),
  ];
  console.log(JSON.stringify(verdicts.map(([verdict]) => verdict)));
})();
"""


def test_compatibility__javascript_is_judged_by_the_same_rule(tmp_path):
    sdk = tmp_path / "e2b"
    sdk.mkdir()
    names = ("SandboxError", "BuildError")
    classes = "".join(f"exports.{name} = class {name} extends Error {{}};\n" for name in names)
    (sdk / "index.js").write_text(classes)
    told = subprocess.run(
        [clients.NODE, "-e", JUDGING, str(JAVASCRIPT)],
        env={**os.environ, "NODE_PATH": str(tmp_path)},
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert json.loads(told.stdout) == [
        "unreachable",
        "fails",
        "fails",
        "not implemented",
        "fails",
    ]
