"""The examples of docs/api.md against a real server."""

import os
import re
from collections import Counter

import pytest
from reference import document, snapshot
from reference.examples import read_answers, read_examples, record, shape_of

from sandbox_server.settings import Settings
from tests.server.reference.example_calls import Shell
from tests.server.support.server_process import server_process

_FORGE = "GitHub"
_FORGE_HOSTS = Settings.model_fields["forge_hosts"].default


@pytest.mark.needs_engine
def test_api_reference__every_example_gets_the_documented_response(tmp_path, forge_world):
    hosts = ",".join((*_FORGE_HOSTS, *forge_world.hosts))
    with server_process(variables={"SANDBOX_SERVER_FORGE_HOSTS": hosts}) as server:
        server.start()
        forge = {
            "FORGE": forge_world.github.url,
            "FORGE_GIT": forge_world.git.url,
            "FORGE_TOKEN": forge_world.github.owner_token,
        }
        shell = Shell(tmp_path, forge, server=server.url, key=server.admin_key)
        answers = {example.operation: shell.call(example) for example in read_examples()}
    if "RECORD_EXAMPLES" in os.environ:
        record(answers, server=server.url, forges=forge_world.hosts)
    shown = read_answers()
    show = {example.operation: example.show for example in read_examples()}
    assert {name: shape_of(told, show=show[name]) for name, told in answers.items()} == {
        name: shape_of(told) for name, told in shown.items()
    }


def test_api_reference__every_operation_has_an_example_that_matches_its_schema():
    examples = {example.operation: example for example in read_examples()}
    assert max(Counter(example.operation for example in read_examples()).values()) == 1
    operations = {
        operation["operationId"]: operation
        for item in snapshot.read()["paths"].values()
        for operation in item.values()
    }
    assert set(operations) == set(examples), "add what is missing to reference/examples.toml"
    for name, example in examples.items():
        assert str(example.status) in operations[name]["responses"]


def test_api_reference__every_simulated_response_is_marked():
    paths = {
        operation["operationId"]: path
        for path, item in snapshot.read()["paths"].items()
        for operation in item.values()
    }
    examples = read_examples()
    answered = {
        example.operation
        for example in examples
        if re.search("/(agent|mcp|code|contexts|desktop)/", f"{paths[example.operation]}/")
    }
    installed = {example.operation for example in examples if "$STAND_INS" in example.before}
    marked = {example.operation for example in examples if example.stand_in_for}
    at_forge = {example.operation for example in examples if example.stand_in_for == _FORGE}
    assert marked == answered | installed | at_forge
    text = document.FILE.read_text()
    for name in marked:
        assert "stand-in" in text.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_api_reference__is_up_to_date():
    if document.FILE.read_text() != document.written():
        pytest.fail("docs/api.md is not what the API is now: run `make openapi`.", pytrace=False)
