import stat

import pytest

from sandbox_tools.gateway.config_files import InvalidConfigFile
from sandbox_tools.gateway.server_config import ConfigSource


def test_config_files__later_sources_override_earlier_ones(files):
    sources = files.sources()
    files.say(files.shipped, {"a": {"command": "1"}, "b": {"command": "1"}, "c": {"command": "1"}})
    files.say(files.user, {"b": {"command": "2"}, "c": {"command": "2"}})
    files.set({"c": {"command": "3"}})
    entries = sources.configs()
    assert {name: entries[name].document["command"] for name in "abc"} == {
        "a": "1",
        "b": "2",
        "c": "3",
    }
    assert [entries[name].source for name in ("claude", *"abc")] == list(ConfigSource)


def test_config_files__built_in_servers_are_disabled_by_default(files):
    entries = files.sources().configs()
    assert {name for name, entry in entries.items() if entry.disabled} == {"claude", "codex"}


def test_config_files__the_users_switch_overrides_every_source(files):
    files.say(files.shipped, {"a": {"command": "1", "disabled": True}})
    files.set({"c": {"command": "3"}})
    files.say(files.user, {}, switched={"a": True, "c": False, "claude": True})
    entries = files.sources().configs()
    assert [entries[name].disabled for name in ("a", "c", "claude")] == [False, True, False]


def test_config_files__a_replaced_file_is_read_again(files):
    sources = files.sources()
    files.say(files.shipped, {"a": {"command": "1"}})
    assert "a" in sources.configs()
    files.say(files.shipped, {"b": {"command": "1"}})
    assert "b" in sources.configs()
    assert "a" not in sources.configs()
    files.shipped.unlink()
    assert "b" not in sources.configs()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"mcpServers": []}'])
def test_config_files__an_invalid_file_keeps_its_last_valid_content_and_is_reported(files, content):
    sources = files.sources()
    files.say(files.user, {"a": {"command": "1"}})
    sources.configs()
    files.user.write_text(content)
    assert "a" in sources.configs()
    assert [str(files.user) in problem for problem in sources.problems()] == [True]
    with pytest.raises(InvalidConfigFile):
        sources.user.load()


def test_config_files__an_invalid_entry_does_not_affect_others(files):
    files.say(files.user, {"a": 3, "b": {"command": "1"}})
    assert {"a", "b"} <= files.sources().configs().keys()


def test_config_files__the_users_file_is_private(files):
    sources = files.sources()
    sources.user.replace({"mcpServers": {"a": {"command": "1"}}})
    assert stat.S_IMODE(files.user.stat().st_mode) == 0o600
    assert [path.name for path in files.user.parent.iterdir()] == ["mcp.json"]
