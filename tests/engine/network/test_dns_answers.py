import struct
from ipaddress import IPv4Address

import pytest

from sandbox_engine.network.dns.answers import addresses
from tests.engine.dns_resolvers import question
from tests.engine.network.name_policies import NAME

A, ALIAS, AAAA = 1, 5, 28
TO_QUESTION = b"\xc0\x0c"


def wire(name):
    return question(name)[12:-4]


def record(owner, kind, data, *, ttl=60, family=1):
    return owner + struct.pack("!HHIH", kind, family, ttl, len(data)) + data


def message(*records, name=NAME):
    asked = question(name)
    return (
        asked[:2]
        + struct.pack("!5H", 0x8180, 1, len(records), 0, 0)
        + asked[12:]
        + b"".join(records)
    )


def found(*records):
    return [(str(one.address), one.ttl) for one in addresses(message(*records))]


def address(text):
    return IPv4Address(text).packed


def test_dns_answer__all_addresses_are_found_with_their_ttl():
    first = record(TO_QUESTION, A, address("192.0.2.1"), ttl=5)
    second = record(wire("API.example.COM"), A, address("192.0.2.2"), ttl=3600)
    assert found(first, second) == [("192.0.2.1", 5), ("192.0.2.2", 3600)]


def test_dns_answer__aliases_are_followed():
    alias = record(TO_QUESTION, ALIAS, wire("edge.cdn.example"), ttl=30)
    further = record(wire("edge.cdn.example"), ALIAS, wire("node.cdn.example"), ttl=300)
    last = record(wire("node.cdn.example"), A, address("192.0.2.7"), ttl=600)
    assert found(alias, further, last) == [("192.0.2.7", 30)]


def test_dns_answer__alias_may_be_a_compression_pointer():
    inside = TO_QUESTION[:1] + bytes([12 + 4])  # "example.com" within the question
    alias = record(TO_QUESTION, ALIAS, b"\x03www" + inside)
    last = record(wire("www.example.com"), A, address("192.0.2.8"))
    assert found(alias, last) == [("192.0.2.8", 60)]


def test_dns_answer__unrelated_names_are_ignored():
    smuggled = record(wire("internal.example"), A, address("192.0.2.9"))
    alias = record(TO_QUESTION, ALIAS, wire("edge.cdn.example"))
    assert found(smuggled) == found(alias, smuggled) == []


def test_dns_answer__other_record_types_are_ignored():
    assert found(
        record(TO_QUESTION, AAAA, bytes(16)),
        record(TO_QUESTION, A, address("192.0.2.1"), family=3),
        record(TO_QUESTION, A, bytes(5)),
        record(TO_QUESTION, A, address("192.0.2.2")),
    ) == [("192.0.2.2", 60)]


@pytest.mark.parametrize(
    "rubbish",
    [
        b"",
        b"\0" * 12,
        message(record(TO_QUESTION, A, address("192.0.2.1")))[:-2],
        message(record(b"\xc0\x0c" * 0 + b"\xc0\x1d", A, b"")),  # a pointer to itself
        message(record(b"\x3fshort", A, b"")),
        message(record(b"\x01a" * 200 + b"\0", A, b"")),
        question(NAME)[:6] + b"\xff\xff" + question(NAME)[8:],
    ],
)
def test_dns_answer__malformed_messages_are_ignored(rubbish):
    assert addresses(rubbish) == []
