from ipaddress import IPv4Address

import pytest

from sandbox_engine.network.firewall.resolved_addresses import (
    MOST,
    ResolvedAddress,
    ResolvedAddresses,
)
from tests.engine.network.name_policies import NAME, only

OTHER = "other.example"
ADDRESS = IPv4Address("192.0.2.1")


@pytest.mark.parametrize(("ttl", "least"), [(0, 300), (60, 300), (3600, 3600)])
def test_resolved_addresses__address_outlives_its_ttl(ttl, least):
    resolved_addresses = ResolvedAddresses()
    assert resolved_addresses.note(NAME, ADDRESS, ttl)
    found = resolved_addresses.find(ADDRESS, only(NAME))
    assert found is not None
    assert found.ttl > least


def test_resolved_addresses__repeated_answer_changes_nothing():
    resolved_addresses = ResolvedAddresses()
    resolved_addresses.note(NAME, ADDRESS, 60)
    assert not resolved_addresses.note(NAME, ADDRESS, 60)
    assert resolved_addresses.note(NAME, ADDRESS, 3600)
    assert resolved_addresses.note(OTHER, ADDRESS, 60)


def test_resolved_addresses__longest_lasting_allowed_name_counts():
    resolved_addresses = ResolvedAddresses()
    resolved_addresses.note(NAME, ADDRESS, 60)
    resolved_addresses.note(OTHER, ADDRESS, 3600)
    for policy, name in ((only(NAME), NAME), (only(NAME, OTHER), OTHER)):
        (opening,) = resolved_addresses.current(policy)
        assert opening.name == name
    assert resolved_addresses.find(ADDRESS, only("unasked.example")) is None


def test_resolved_addresses__expired_address_is_closed_but_remembered():
    resolved_addresses = ResolvedAddresses([ResolvedAddress(ADDRESS, NAME, ttl=-60)])
    assert resolved_addresses.current(only(NAME)) == []
    assert resolved_addresses.find(ADDRESS, only(NAME)) is not None


def test_resolved_addresses__number_of_addresses_is_limited():
    resolved_addresses = ResolvedAddresses()
    dropped = []
    for number in range(MOST + 2):
        resolved_addresses.note(NAME, ADDRESS + number, 60)
        dropped.append(resolved_addresses.drop_surplus())
    assert dropped == [None] * MOST + [ADDRESS, ADDRESS + 1]
    for number in range(100):
        resolved_addresses.note(f"{number}.example", ADDRESS + 2, 60)
    assert resolved_addresses.find(ADDRESS + 2, only("99.example")) is not None
    assert resolved_addresses.find(ADDRESS + 2, only("0.example")) is None
