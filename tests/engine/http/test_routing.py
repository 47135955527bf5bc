import pytest

from sandbox_engine.http.routing import (
    BadRoute,
    ControlApi,
    SandboxTraffic,
    route,
)

TRAFFIC = SandboxTraffic("abc123", 8080)
BY_HEADERS = SandboxTraffic("abc123", 8080, by_headers=True)


def headers(host=None, sandbox_id=None, port=None):
    named = {"host": host, "e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": port}
    return [(name.encode(), value.encode()) for name, value in named.items() if value is not None]


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("8080-abc123.box.example", "box.example"),
        ("8080-abc123.box.example:3400", "box.example"),
        ("8080-abc123.box.example", "box.example:3400"),
        ("8080-ABC123.Box.Example", "box.EXAMPLE"),
        ("8080-abc123.box.example.", "box.example"),
        ("8080-abc123-client1.box.example", "box.example"),
        ("8080-abc123.localhost:3400", "box.example"),
        ("8080-abc123.localhost:3400", "localhost"),
    ],
)
def test_routing__host_below_the_domain_names_port_and_sandbox(host, domain):
    assert route(headers(host), domain=domain) == TRAFFIC


@pytest.mark.parametrize(
    "host", ["127.0.0.1:3400", "[::1]:3400", "localhost", "sandbox.box.example", "proxy.internal"]
)
def test_routing__headers_name_port_and_sandbox_on_other_hosts(host):
    assert route(headers(host, "abc123", "8080"), domain="box.example") == BY_HEADERS


def test_routing__headers_suffice_without_a_host():
    assert route(headers(None, "abc123", "8080"), domain="box.example") == BY_HEADERS


def test_routing__page_of_a_sandbox_cannot_choose_another():
    asked = headers("8080-abc123.box.example", "other9", "49983")
    assert route(asked, domain="box.example") == TRAFFIC


@pytest.mark.parametrize(
    "host",
    ["api.box.example", "API.box.example:3400", "box.example", "127.0.0.1:3400", "[::1]", None],
)
def test_routing__other_requests_are_for_the_control_api(host):
    assert route(headers(host), domain="box.example") == ControlApi()


def test_routing__api_host_overrides_headers():
    assert route(headers("api.box.example", "abc123", "80"), domain="box.example") == ControlApi()


def test_routing__domain_suffix_alone_is_not_below_it():
    assert route(headers("8080-abc123.notbox.example"), domain="box.example") == ControlApi()
    assert route(headers("8080-abc123.a.box.example"), domain="box.example") == ControlApi()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (headers("nodash.box.example"), "Invalid host"),
        (headers("http-abc123.box.example"), "Invalid sandbox port"),
        (headers("0-abc123.box.example"), "Invalid sandbox port"),
        (headers("65536-abc123.box.example"), "Invalid sandbox port"),
        (headers(f"{'9' * 5000}-abc123.box.example"), "Invalid sandbox port"),
        (headers("²-abc123.box.example"), "Invalid sandbox port"),
        (headers("80-.box.example"), "Invalid sandbox ID"),
        (headers("80-abc_123.box.example"), "Invalid sandbox ID"),
        (headers("127.0.0.1", "../abc", "80"), "Invalid sandbox ID"),
        (headers("127.0.0.1", "abc123\n", "80"), "Invalid sandbox ID"),
        (headers("127.0.0.1", "abc123", "-1"), "Invalid sandbox port"),
        (headers("127.0.0.1", "abc123"), "missing header"),
        (headers("127.0.0.1", None, "80"), "missing header"),
        (headers("sandbox.box.example"), "missing header"),
        (headers("a.box.example") * 2, "Invalid host"),
    ],
)
def test_routing__invalid_targets_are_rejected_with_a_reason(asked, message):
    with pytest.raises(BadRoute, match=f"^{message}$"):
        route(asked, domain="box.example")
