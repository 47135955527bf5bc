import pytest

from sandbox_tools.forwarder.routes import (
    DIRECT,
    Address,
    InvalidConfig,
    parse_address,
    parse_routes,
)


def external(**fields):
    return {"type": "external", "server": "http://proxy.example:8080", **fields}


def test_routes__without_upstreams_the_way_is_direct():
    assert parse_routes({}).find("a.example") is DIRECT


def test_routes__the_first_upstream_that_covers_the_host_is_used():
    routes = parse_routes(
        {
            "upstreams": [
                external(server="one.example:1", domain_pattern=r"wiki(pedia|data)\.org"),
                {"type": "none", "domain_pattern": "*.internal.example"},
                external(server="https://two.example"),
            ]
        }
    )
    servers = [
        (found.server, found.is_tls)
        for host in ("en.WIKIPEDIA.org", "a.internal.example", "internal.example.com")
        if (found := routes.find(host)) is not None
    ]
    assert servers == [
        (Address("one.example", 1), False),
        (None, False),
        (Address("two.example", 443), True),
    ]


def test_routes__a_host_that_no_upstream_covers_has_no_way():
    routes = parse_routes({"upstreams": [external(domain_pattern="a.example$")]})
    assert routes.find("b.example") is None


def test_routes__hosts_are_mapped_with_or_without_a_port():
    routes = parse_routes({"hosts": {"A.example": "10.0.0.1", "b.example": "[::1]:81"}})
    assert routes.resolve(Address("a.example", 80)) == Address("10.0.0.1", 80)
    assert routes.resolve(Address("B.example", 80)) == Address("::1", 81)
    assert routes.resolve(Address("c.example", 80)) == Address("c.example", 80)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "must be an object"),
        ({"upstreams": {}}, "must be a list"),
        ({"upstreams": [external()] * 101}, "at most 100"),
        ({"upstreams": ["x"]}, "must be an object"),
        ({"upstreams": [{"type": "browserbase"}]}, "Unknown type of upstream: 'browserbase'"),
        ({"upstreams": [{"type": "external"}]}, "needs a `server`"),
        ({"upstreams": [external(server="socks5://a:1")]}, "socks5://… is not supported"),
        ({"upstreams": [external(server="http://a:99999")]}, "port of the proxy 'a' is invalid"),
        ({"upstreams": [external(server="http://:1")]}, "has no host"),
        ({"upstreams": [external(domain_pattern="(")]}, "no regular expression"),
        ({"upstreams": [external(domain_pattern=7)]}, "must be a string"),
        ({"hosts": {"a": 7}}, "must be a string"),
        ({"hosts": {"a": "b:c:d"}}, "Invalid address"),
    ],
)
def test_routes__what_cannot_be_used_is_refused_with_the_reason(document, reason):
    with pytest.raises(InvalidConfig) as refused:
        parse_routes(document)
    assert reason in str(refused.value)


@pytest.mark.parametrize("text", ["", "a", "a:0", "a:65536", "a:b", "http://a:1", "u@a:1", "[x]:1"])
def test_address__other_text_is_refused(text):
    with pytest.raises(InvalidConfig):
        parse_address(text)


@pytest.mark.parametrize(
    ("host", "is_permitted"),
    [
        ("example.com", True),
        ("EXAMPLE.com.", True),
        ("a.b.example.com", True),
        ("badexample.com", False),
        ("example.com.evil.example", False),
        ("com", False),
        ("example.org", False),
        ("a.example.org", True),
        ("10.0.0.1", False),
        ("192.0.2.7", True),
        ("", False),
    ],
)
def test_routes__only_allowed_domains_are_permitted(host, is_permitted):
    routes = parse_routes({"allowed_domains": ["Example.com", "*.example.org", "192.0.2.7"]})
    assert routes.permits(host) is is_permitted


def test_routes__without_a_list_every_domain_is_permitted_and_with_an_empty_one_none():
    assert parse_routes({}).permits("a.example")
    assert not parse_routes({"allowed_domains": []}).permits("a.example")


@pytest.mark.parametrize("domains", ["a.example", [1], ["*"], ["https://a.example"], ["a b"], [""]])
def test_routes__invalid_domains_are_refused(domains):
    with pytest.raises(InvalidConfig):
        parse_routes({"allowed_domains": domains})
