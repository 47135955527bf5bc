import json

import pytest

from sandbox_server.browsers.allowed_domains import egress_rules, forwarder_config, read_domains
from sandbox_server.domain.errors import InvalidRequest


def test_domains__are_normalized():
    assert read_domains([" Example.COM. ", "*.a.example"]) == ("example.com", "*.a.example")


@pytest.mark.parametrize(
    "name", ["", "*", "https://a.example", "a.example/x", "a b", "*.*.example"]
)
def test_domains__that_are_none_are_refused(name):
    with pytest.raises(InvalidRequest):
        read_domains([name])


def test_egress__is_open_without_domains():
    assert egress_rules((), [{"server": "http://proxy.example:1"}]) == {}


def test_egress__is_limited_to_the_domains_and_the_proxies_of_the_session():
    proxies = [
        {"server": "https://u:p@Proxy.example:8080"},
        {"server": "10.0.0.7:1"},
        {"type": "none"},
    ]
    rules = egress_rules(("a.example", "*.b.example", "192.0.2.7"), proxies)
    assert rules["deny_out"] == ["0.0.0.0/0"]
    assert set(rules["allow_out"]) == {
        "a.example",
        "*.a.example",
        "*.b.example",
        "192.0.2.7",
        "proxy.example",
        "10.0.0.7",
    }


def test_forwarder__gets_the_domains_beside_the_proxies():
    stored = json.dumps({"upstreams": [{"type": "none"}]}).encode()
    assert json.loads(forwarder_config(stored, ("a.example",))) == {
        "upstreams": [{"type": "none"}],
        "allowed_domains": ["a.example"],
    }
    assert json.loads(forwarder_config(None, ())) == {}
