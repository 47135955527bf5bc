from ipaddress import IPv4Address, IPv4Network

import pytest

from sandbox_engine.network.firewall.policy import Policy
from sandbox_engine.system.errors import InvalidRequest, NotImplementedHere
from tests.engine.network.name_policies import only

ALL = "0.0.0.0/0"


def permits(policy, address):
    return policy.permits(IPv4Address(address))


def test_network_policy__allow_takes_precedence_over_deny():
    policy = Policy.parse(allow_out=["8.8.0.0/16"], deny_out=["8.8.8.8", "9.0.0.0/8"])
    assert permits(policy, "8.8.8.8")
    assert not permits(policy, "9.9.9.9")
    assert permits(policy, "1.1.1.1")


def test_network_policy__is_open_closed_or_partial():
    for policy in (
        Policy.parse(),
        Policy.parse(allow_out=["8.8.8.8"]),
        Policy.parse(allow_out=[ALL], deny_out=[ALL]),
        Policy.parse(deny_out=["2001:db8::/32"]),
    ):
        assert (policy.is_open, policy.is_closed, policy.is_partial) == (True, False, False)
    for policy in (
        Policy.parse(internet=False),
        Policy.parse(deny_out=["1.0.0.0/0"]),
    ):
        assert (policy.is_open, policy.is_closed, policy.is_partial) == (False, True, False)
    for policy in (only("8.8.8.8"), only("example.com"), Policy.parse(deny_out=["8.8.8.8"])):
        assert (policy.is_open, policy.is_closed, policy.is_partial) == (False, False, True)


def test_network_policy__without_internet_only_allowed_addresses_are_open():
    policy = Policy.parse(allow_out=["8.8.8.8", "example.com"], internet=False)
    assert permits(policy, "8.8.8.8")
    assert not permits(policy, "8.8.4.4")
    assert policy.opens("example.com")


@pytest.mark.parametrize(
    ("pattern", "opened", "others"),
    [
        ("example.com", ["example.com"], ["www.example.com", "example.org", "com", ""]),
        ("Example.COM.", ["example.com"], ["www.example.com"]),
        (
            "*.example.com",
            ["www.example.com", "a.b.example.com"],
            ["example.com", "notexample.com", r"www\046example.com"],
        ),
        ("*", ["example.com", "com"], []),
        ("bücher.example", ["xn--bcher-kva.example"], ["bücher.example"]),
        ("_dmarc.example.com", ["_dmarc.example.com"], ["dmarc.example.com"]),
    ],
)
def test_network_policy__name_is_exact_and_wildcard_covers_subdomains(pattern, opened, others):
    policy = only(pattern)
    assert all(policy.opens(name) and policy.may_resolve(name) for name in opened)
    assert not any(policy.opens(name) or policy.may_resolve(name) for name in others)


def test_network_policy__names_resolve_unless_the_rest_is_denied():
    assert Policy.parse(deny_out=["8.8.8.8"]).may_resolve("example.com")
    assert not only("8.8.8.8").may_resolve("example.com")


@pytest.mark.parametrize(
    "entry",
    [
        *("", ".", "a..b", "**.a", "a*.b", "a b", "a\n", "a;b", "-a.example", "x" * 64),
        *(f"{'a.' * 127}aa", "a.example:80", "http://a.example"),
        *("8.8.8.8:53", "8.8.8.8/33", "1.2.3", "0.0.0.0", "0.0.0.0/8", "::/0", "2001:db8::1:1:"),
    ],
)
def test_network_policy__invalid_entries_are_rejected(entry):
    with pytest.raises(InvalidRequest, match="invalid allowed address"):
        only(entry)
    with pytest.raises(InvalidRequest, match="invalid denied CIDR"):
        Policy.parse(deny_out=[entry])


def test_network_policy__unreachable_allowed_address_is_rejected():
    with pytest.raises(NotImplementedHere, match="IPv6"):
        only("2001:db8::1")


def test_network_policy__dns_servers_are_open_only_with_allowed_names():
    server = IPv4Network("1.1.1.1")
    named = Policy.parse(allow_out=["a.example"], deny_out=[ALL], dns_servers=["1.1.1.1"])
    assert named.allow == (server,)
    assert Policy.parse(deny_out=[ALL], dns_servers=["1.1.1.1"]).is_closed
    for servers in (["dns.example"], ["1.1.1.0/24"], ["::1"], ["1.1.1.1"] * 11):
        with pytest.raises(InvalidRequest, match="DNS server"):
            Policy.parse(dns_servers=servers)
