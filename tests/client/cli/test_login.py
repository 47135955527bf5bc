import stat

import pytest

from sandbox_client.protocol.address import API_KEY, URL

pytestmark = pytest.mark.needs_engine
NOTHING = {URL: "", API_KEY: ""}


@pytest.fixture
def unknown(variables):
    """Take from sbx what it knows of the server."""
    for name in NOTHING:
        del variables[name]


def test_login__verifies_the_key_and_saves_it_in_a_private_file(unknown, sit, sbx, server, home):
    assert "sbx login" in sbx("ls").stderr
    with sit("login", server.url) as person:
        person.see("API key for")
        person.type(f"{server.admin_key}\r")
        assert server.admin_key not in person.see("Logged in")
        assert person.end() == 0
    file = home / "client.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert sbx("ls").returncode == 0


def test_login__invalid_key_is_not_saved(unknown, sbx, server, home):
    done = sbx("login", server.url, stdin=b"sbx_wrong\n")
    assert done.returncode == 1
    assert "Missing or invalid API key" in done.stderr
    assert not (home / "client.toml").exists()


def test_login__ctrl_c_ends_the_prompt(unknown, sit, server):
    with sit("login", server.url) as person:
        person.see("API key for")
        person.type("\x03")
        assert person.end() == 130
