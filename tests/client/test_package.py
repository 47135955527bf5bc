import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox_client
from sandbox_client import models
from sandbox_client.models import templates
from sandbox_client.protocol import options

HERE = Path(__file__).parents[2]
PAIRS = [name for name in sandbox_client.__all__ if not name.startswith("Async")]


def test_package__models_import_no_http_library():
    code = (
        "import sys, sandbox_client.models\n"
        "print([name for name in ('asyncio', 'httpx', 'websockets', 'ssl') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


@pytest.mark.parametrize("package", [sandbox_client, models])
def test_package__type_checkers_and_programs_see_the_same_names(package):
    declared = {
        alias.name: node.module.rpartition(f"{package.__name__}.")[2]
        for node in ast.walk(ast.parse(inspect.getsource(package)))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("sandbox")
        for alias in node.names
    }
    assert declared == package._WHERE
    assert all(getattr(package, name) is not None for name in package.__all__)


def test_sbx__a_verb_loads_few_models():
    code = (
        "import sys; from sandbox_client.cli.main import main; main(['ls'])\n"
        "print([name for name in ('tasks', 'forges', 'templates') if f'sandbox_client.models.{name}' in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env={})
    assert said.stdout == "[]\n"


def test_package__sync_variant_is_generated_from_async():
    done = subprocess.run(
        [sys.executable, HERE / "scripts" / "unasync", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", PAIRS)
def test_package__both_variants_have_the_same_names(name):
    ours, theirs = (getattr(sandbox_client, f"{kind}{name}") for kind in ("Async", ""))
    assert _public(ours) == _public(theirs)


def _public(kind):
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


def test_package__unknown_attribute_raises():
    with pytest.raises(AttributeError, match="Nothing"):
        _ = sandbox_client.Nothing


@pytest.mark.parametrize(
    ("said", "sent", "besides"),
    [
        (options.SandboxOptions, models.SandboxCreate, set()),
        (options.SessionSandboxOptions, models.SessionSandbox, set()),
        (options.SandboxChanges, models.SandboxUpdate, set()),
        (options.ForkOptions, models.SandboxFork, set()),
        (options.CommandOptions, models.CommandCreate, {"cmd", "background", "stdin"}),
        (options.TerminalOptions, models.TerminalCreate, set()),
        (options.AgentRunOptions, models.AgentRunCreate, {"agent", "prompt"}),
        (options.TemplateOptions, templates.TemplateCreate, {"name"}),
        (options.TemplateOptions, templates.TemplateRebuild, set()),
        (options.KeyOptions, models.KeyCreate, set()),
        (options.TenantOptions, models.TenantWrite, set()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_options__cover_all_fields_of_the_request_models(said, sent, besides):
    assert said.__annotations__.keys() | besides == sent.model_fields.keys()
