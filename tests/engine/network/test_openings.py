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


@pytest.mark.parametrize(("life", "least"), [(0, 300), (60, 300), (3600, 3600)])
def test_an_address_holds_for_longer_than_its_answer(life, least):
    resolved_addresses = ResolvedAddresses()
    assert resolved_addresses.note(NAME, ADDRESS, life)
    found = resolved_addresses.find(ADDRESS, only(NAME))
    assert found is not None
    assert found.life > least


def test_an_answer_that_says_nothing_new_changes_nothing():
    resolved_addresses = ResolvedAddresses()
    resolved_addresses.note(NAME, ADDRESS, 60)
    assert not resolved_addresses.note(NAME, ADDRESS, 60)
    assert resolved_addresses.note(NAME, ADDRESS, 3600)
    assert resolved_addresses.note(OTHER, ADDRESS, 60)


def test_of_several_names_the_one_that_holds_longest_counts_if_it_is_allowed():
    resolved_addresses = ResolvedAddresses()
    resolved_addresses.note(NAME, ADDRESS, 60)
    resolved_addresses.note(OTHER, ADDRESS, 3600)
    for policy, name in ((only(NAME), NAME), (only(NAME, OTHER), OTHER)):
        (opening,) = resolved_addresses.current(policy)
        assert opening.name == name
    assert resolved_addresses.find(ADDRESS, only("unasked.example")) is None


def test_what_has_run_out_opens_nothing_more_and_is_not_forgotten():
    resolved_addresses = ResolvedAddresses([ResolvedAddress(ADDRESS, NAME, life=-60)])
    assert resolved_addresses.current(only(NAME)) == []
    assert resolved_addresses.find(ADDRESS, only(NAME)) is not None


def test_a_sandbox_cannot_have_more_remembered_than_there_is_room_for():
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
