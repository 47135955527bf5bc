import json

import pytest

from sandbox_tools.toolkit.settings_file import SandboxSettings, SettingsFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tools.json"


def replace(path, content):
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def test_without_a_file_nothing_is_set(path):
    assert SettingsFile(path).read() == SandboxSettings()


def test_a_file_that_is_replaced_is_read_again(path):
    replace(path, json.dumps({"token": "one"}))
    file = SettingsFile(path)
    assert file.read().token == "one"
    replace(path, json.dumps({"token": "two"}))
    assert file.read().token == "two"


def test_a_file_that_is_gone_sets_nothing_any_more(path):
    replace(path, json.dumps({"token": "one"}))
    file = SettingsFile(path)
    file.read()
    path.unlink()
    assert file.read().token is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_object_sets_nothing(path, content):
    replace(path, content)
    assert SettingsFile(path).read() == SandboxSettings()


def test_what_only_newer_readers_know_is_left_to_them(path):
    replace(path, json.dumps({"token": "one", "colour": "blue"}))
    assert SettingsFile(path).read().token == "one"


def test_what_is_not_of_its_type_is_not_set(path):
    written = {"token": 5, "password": ["x"], "envs": {"A": "a", "B": 1}, "mcp_servers": [1]}
    replace(path, json.dumps(written))
    assert SettingsFile(path).read() == SandboxSettings(envs={"A": "a"})
