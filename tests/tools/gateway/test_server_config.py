import pytest

from sandbox_tools.gateway.server_config import (
    ConfigSource,
    InvalidServerConfig,
    ServerConfig,
    Transport,
)


def launch(document, *, name="one", **variables):
    return ServerConfig.of(name, document, ConfigSource.USER).launch(variables)


def test_server_config__variables_are_expanded_in_all_values():
    made = launch(
        {
            "command": "${RUNNER:-npx}",
            "args": ["--key=${KEY}", "${EMPTY:-full}"],
            "env": {"TOKEN": "a-${KEY}"},
        },
        KEY="k",
        EMPTY="",
    )
    assert (made.command, made.args) == ("npx", ("--key=k", "full"))
    assert made.env == {"KEY": "k", "EMPTY": "", "TOKEN": "a-k"}


def test_server_config__variables_are_expanded_in_url_and_headers():
    document = {"url": "https://${HOST}/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}
    made = launch(document, HOST="example.org", KEY="k")
    assert made.transport is Transport.HTTP
    assert (made.url, made.headers) == ("https://example.org/mcp", {"Authorization": "Bearer k"})
    assert made.env == {}


def test_server_config__an_unset_variable_is_named_in_the_error():
    with pytest.raises(
        InvalidServerConfig, match="headers uses the variable KEY, which is not set"
    ):
        launch({"url": "http://localhost/", "headers": {"X": "${KEY}"}})


@pytest.mark.parametrize("kind", ["sse", "http", "streamable-http"])
def test_server_config__type_selects_the_transport(kind):
    made = launch({"type": kind, "url": "http://localhost/"})
    assert made.transport is (Transport.SSE if kind == "sse" else Transport.HTTP)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"command": 3},
        {"command": "x", "args": "y"},
        {"command": "x", "args": [1]},
        {"command": "x", "env": {"A": 1}},
        {"command": "x\0y"},
        {"type": "pigeon", "url": "http://localhost/"},
        {"type": ["http"], "url": "http://localhost/"},
        {"type": "http", "command": "x"},
        {"url": "file:///etc/passwd"},
    ],
)
def test_server_config__invalid_configurations_are_rejected(document):
    with pytest.raises(InvalidServerConfig, match=r"^[a-z]+ .*\.$"):
        launch(document)


@pytest.mark.parametrize("name", ["", "a__b", "_a", "a_", "a b", "a/b", "ä", "a" * 41, "a\n"])
def test_server_config__ambiguous_names_are_rejected(name):
    with pytest.raises(InvalidServerConfig, match="name"):
        launch({"command": "x"}, name=name)


@pytest.mark.parametrize("name", ["a", "a-b", "a_b_c", "-a", "A1"])
def test_server_config__valid_names_are_accepted(name):
    assert launch({"command": "x"}, name=name).command == "x"


def test_server_config__repr_contains_no_secrets():
    made = launch({"command": "x", "env": {"A": "s3cret"}})
    assert "s3cret" not in repr(made)
    entry = ServerConfig.of("a", {"url": "http://s3cret/"}, ConfigSource.USER)
    assert "s3cret" not in repr(entry)
