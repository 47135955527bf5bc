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


def test_settings_file__a_missing_file_means_no_settings(path):
    assert SettingsFile(path).read() == SandboxSettings()


def test_settings_file__a_replaced_file_is_read_again(path):
    replace(path, json.dumps({"token": "one"}))
    file = SettingsFile(path)
    assert file.read().token == "one"
    replace(path, json.dumps({"token": "two"}))
    assert file.read().token == "two"


def test_settings_file__a_deleted_file_resets_the_settings(path):
    replace(path, json.dumps({"token": "one"}))
    file = SettingsFile(path)
    file.read()
    path.unlink()
    assert file.read().token is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "[" * 100_000])
def test_settings_file__invalid_json_means_no_settings(path, content):
    replace(path, content)
    assert SettingsFile(path).read() == SandboxSettings()


def test_settings_file__unknown_fields_are_ignored(path):
    replace(path, json.dumps({"token": "one", "colour": "blue"}))
    assert SettingsFile(path).read().token == "one"


def test_settings_file__values_of_a_wrong_type_are_ignored(path):
    written = {"token": 5, "password": ["x"], "envs": {"A": "a", "B": 1}, "mcp_servers": [1]}
    replace(path, json.dumps(written))
    assert SettingsFile(path).read() == SandboxSettings(envs={"A": "a"})
