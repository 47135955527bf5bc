"""sbx forge and sbx repo."""

import json
import re

import pytest

pytestmark = pytest.mark.needs_engine


@pytest.fixture
def forge_set(sbx, world):
    """Set a forge at the emulated GitHub."""
    urls = ("--api-url", world.token["api_url"], "--git-url", world.token["git_url"])

    def set_(name, *words, **options):
        return sbx("forge", "set", name, "--kind", "github", *urls, *words, **options)

    return set_


@pytest.mark.parametrize("source", ["stdin", "file", "variable"])
def test_forge_set__takes_the_token_from_stdin_a_file_or_a_variable(
    forge_set, sbx, world, tmp_path, source
):
    token, name = world.token["token"], f"by-{source}"
    (tmp_path / "token").write_text(f"{token}\n")
    set_ = {
        "stdin": lambda: forge_set(name, "--token-file", "-", stdin=f"{token}\n".encode()),
        "file": lambda: forge_set(name, "--token-file", "token"),
        "variable": lambda: forge_set(name, "--token-env", "TOKEN", env={"TOKEN": token}),
    }[source]()
    assert (set_.returncode, set_.stdout) == (0, f"{name}\n"), set_.stderr
    checked = sbx("forge", "check", name, "--repository", world.repository)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert re.search(r"^ready +yes$", checked.stdout, re.MULTILINE)
    assert name in sbx("-q", "forge", "list").stdout.split()
    assert sbx("forge", "rm", name).stdout == f"{name}\n"
    assert sbx("forge", "rm", name).returncode == 1


def test_forge_set__asks_for_the_token_at_a_terminal_without_an_echo(sit, sbx, world):
    urls = ("--api-url", world.token["api_url"], "--git-url", world.token["git_url"])
    with sit("forge", "set", "asked", "--kind", "github", *urls) as person:
        person.see("Access token")
        person.type(f"{world.token['token']}\r")
        assert world.token["token"] not in person.see("Webhook address")
        assert person.end() == 0
    assert sbx("forge", "check", "asked", "--repository", world.repository).returncode == 0
    assert sbx("forge", "rm", "asked").returncode == 0


def test_forge_set__explains_missing_secrets(forge_set):
    unset = forge_set("f", "--token-env", "NO_SUCH_VARIABLE")
    assert unset.returncode == 1
    assert "NO_SUCH_VARIABLE is empty or not set" in unset.stderr
    assert "no-such-file" in forge_set("f", "--token-file", "no-such-file").stderr
    assert forge_set("f", "--token", "secret").returncode == 2
    both = forge_set("f", "--app-id", "1", "--token-env", "HOME")
    assert both.returncode == 2


def test_forge_check__a_refused_token_exits_with_1(forge_set, sbx, world):
    assert forge_set("bad", "--token-file", "-", stdin=b"wrong").returncode == 0
    checked = sbx("forge", "check", "bad", "--repository", world.repository)
    assert checked.returncode == 1
    assert "Traceback" not in checked.stderr
    sbx("forge", "rm", "bad")


def test_repo__settings_are_shown_and_changed(sbx, repository, tmp_path):
    shown = sbx("repo", "show", repository).stdout
    assert re.search(rf"^name +{repository}$", shown, re.MULTILINE)
    (tmp_path / "settings.json").write_text('{"labels": ["agent"], "model": "small"}')
    words = ("--settings", "settings.json", "--model", "large", "-e", "KEY=secret")
    changed = json.loads(sbx("--json", "repo", "set", repository, *words).stdout)
    assert changed["settings"]["labels"] == ["agent"]
    assert changed["settings"]["model"] == "large"
    assert changed["settings"]["template"] == "base"
    assert changed["env_names"] == ["KEY"]
    assert repository in sbx("-q", "repo", "list").stdout.split()
    (tmp_path / "reset.json").write_text('{"labels": [], "model": null}')
    assert sbx("repo", "set", repository, "--settings", "reset.json").returncode == 0
    assert sbx("repo", "set", repository).returncode == 2


def test_repo__unknown_repositories_and_several_forges_are_explained(
    sbx, forge_set, world, repository
):
    missing = sbx("repo", "show", "acme/nothing")
    assert "sbx repo add acme/nothing" in missing.stderr
    assert sbx("repo", "rm", "acme/nothing").returncode == 1
    forge_set("second", "--token-file", "-", stdin=world.token["token"].encode())
    several = sbx("repo", "add", "acme/gadgets")
    assert several.returncode == 2
    assert "--forge: github, second" in several.stderr
    unknown = sbx("repo", "add", "acme/no-such-thing", "--forge", "github")
    assert unknown.returncode == 1
    assert "acme/no-such-thing" in unknown.stderr
    sbx("forge", "rm", "second")
