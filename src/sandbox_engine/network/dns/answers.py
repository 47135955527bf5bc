"""Addresses in a DNS answer: those of the requested name and its aliases.

A record consists of a name, type, class, TTL in seconds, and data; a name ends in zero or in a
pointer.
"""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from sandbox_engine.network.dns.messages import HEADER, Malformed, read_label

_FIXED = struct.Struct("!HHIH")  # type, class, life, length of the data
_ADDRESS, _ALIAS, _INTERNET = 1, 5, 1
_TYPE_AND_CLASS_BYTES = 4
_ADDRESS_BYTES = 4
_MOST_ADDRESSES = 64
_MOST_LABELS = 128


@dataclass(frozen=True)
class Answer:
    """An address of a name, with its TTL in seconds."""

    address: IPv4Address
    ttl: int


@dataclass(frozen=True)
class _Record:
    owner: str
    kind: int
    ttl: int
    data: slice


def addresses(message: bytes) -> list[Answer]:
    """List the addresses of the name in the message's question; malformed messages have none."""
    try:
        name, records = _records(message)
        return _followed(message, name, records)[:_MOST_ADDRESSES]
    except (IndexError, struct.error, Malformed):
        return []


def _followed(message: bytes, name: str, records: list[_Record]) -> list[Answer]:
    names, ttl = {name}, None
    found = []
    for record in records:  # aliases come before their targets
        if record.owner not in names:
            continue
        sure = record.ttl if ttl is None else min(ttl, record.ttl)
        if record.kind == _ALIAS:
            target, _ = _name(message, record.data.start)
            names.add(target)
            ttl = sure
        elif record.kind == _ADDRESS and len(message[record.data]) == _ADDRESS_BYTES:
            found.append(Answer(IPv4Address(message[record.data]), sure))
    return found


def _records(message: bytes) -> tuple[str, list[_Record]]:
    _, _, questions, answers, *_ = HEADER.unpack_from(message)
    if questions != 1:
        raise Malformed("not one question")
    question, position = _name(message, HEADER.size)
    position += _TYPE_AND_CLASS_BYTES
    records = []
    for _ in range(answers):
        owner, position = _name(message, position)
        kind, family, ttl, length = _FIXED.unpack_from(message, position)
        position += _FIXED.size
        if family == _INTERNET:
            records.append(_Record(owner, kind, ttl, slice(position, position + length)))
        position += length
    return question, records


def _name(message: bytes, position: int) -> tuple[str, int]:
    """Read a name; also returns the offset behind it."""
    labels: list[str] = []
    following = None
    for _ in range(_MOST_LABELS):
        length = message[position]
        if length >= 0xC0:  # noqa: PLR2004 - a pointer to where the name goes on
            following = position + 2 if following is None else following
            position = (length & 0x3F) << 8 | message[position + 1]
        elif length:
            labels.append(read_label(message, position))
            position += 1 + length
        else:
            return ".".join(labels), position + 1 if following is None else following
    raise Malformed("a name without end")
