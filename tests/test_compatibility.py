"""The document of what works, held to the SDK that is installed."""

import importlib
import re
import sys

import e2b
import pytest
from compatibility import versions
from compatibility.document import Finding, render

from tests.engine.process import REPOSITORY

PROBES = REPOSITORY / "compatibility" / "python"
DOCUMENT = REPOSITORY / "docs" / "e2b-compatibility.md"


@pytest.fixture
def public(monkeypatch):
    """Find every public method of the SDK, as the probes do."""
    monkeypatch.syspath_prepend(PROBES)
    find = importlib.import_module("methods").public_methods
    yield find(e2b, is_async=False) | find(e2b, is_async=True)
    del sys.modules["methods"]


def rows():
    """Read what the document says of each method in the installed version."""
    python = DOCUMENT.read_text().partition("## Python")[2].partition("## JavaScript")[0]
    cells = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", python, re.MULTILINE)
    return {method: mark.strip() for method, mark in cells}


def test_the_document_speaks_of_every_public_method(public):
    assert public == {method for method, mark in rows().items() if mark != "·"}


def test_the_document_is_of_the_installed_version():
    header = DOCUMENT.read_text().partition("## Python")[2].splitlines()[2]
    assert header.split(" | ")[1] == versions.PYTHON[0]


def test_nothing_in_the_document_fails():
    assert {"FAILS", "?"}.isdisjoint(DOCUMENT.read_text().split())


def test_the_worse_of_two_findings_is_shown():
    findings = [
        Finding("Python 1", "a.b", "works"),
        Finding("Python 1", "a.b", "not implemented", "B is not implemented."),
        Finding("Python 2", "a.b", "works"),
    ]
    document = render(findings, languages=[("Python", ("2", "1"))])
    assert "| `a.b` | yes | no |" in document
    assert "- `a.b`: B is not implemented." in document
