"""Netlink requests for one nftables table of the family inet."""

import struct

from sandbox_engine.network.kernel.netlink import (
    ACK,
    CREATE,
    attribute,
    message,
    nested,
    text,
)

RULE_CHANGES = 0x40

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NFTABLES = 10
_GET_TABLE, GET_RULE, _NEW_ELEMENT, _GET_ELEMENT, _DELETE_ELEMENT = (
    _NFTABLES << 8 | kind for kind in (1, 7, 12, 13, 14)
)
_TABLE, _SET, _ELEMENTS, _ITEM = 1, 2, 3, 1
_RULE_TABLE, _RULE_CHAIN = 1, 2
_KEY, _DATA, _TIMEOUT, _NOTE = 1, 2, 4, 6
_VALUE, _VERDICT, _CODE, _CHAIN = 1, 2, 1, 2
_COMMENT = 0
_GOTO = struct.pack("!i", -4)
_MILLISECONDS = struct.Struct("!Q")

_HEAD = struct.Struct("!BBH")  # family, version, subsystem
_OF_BATCH = _HEAD.pack(0, 0, _NFTABLES)
_OF_INET = _HEAD.pack(1, 0, 0)


def transaction(*changes: bytes) -> tuple[bytes, ...]:
    """Apply all changes atomically."""
    begin, end = (message(kind, _OF_BATCH, flags=0) for kind in (_BATCH_BEGIN, _BATCH_END))
    return begin, *changes, end


def find_table(table: str) -> bytes:
    """Build a request for a table."""
    return message(_GET_TABLE, _OF_INET, text(_TABLE, table))


def rules_of(table: str, chain: str) -> bytes:
    """Build a request that lists rules."""
    return _OF_INET + text(_RULE_TABLE, table) + text(_RULE_CHAIN, chain)


def element(table: str, name: str, key: bytes, *parts: bytes) -> bytes:
    """Encode an element of a set or map."""
    item = nested(_ITEM, nested(_KEY, attribute(_VALUE, key)), *parts)
    return _OF_INET + text(_TABLE, table) + text(_SET, name) + nested(_ELEMENTS, item)


def goto(chain: str) -> bytes:
    """Encode the verdict of a map element."""
    return nested(_DATA, nested(_VERDICT, attribute(_CODE, _GOTO), text(_CHAIN, chain)))


def lasting(seconds: float) -> bytes:
    """Encode the timeout of an element."""
    return attribute(_TIMEOUT, _MILLISECONDS.pack(int(seconds * 1000)))


def commented(comment: str) -> bytes:
    """Encode the comment of an element."""
    shown = comment.encode() + b"\0"
    return attribute(_NOTE, bytes([_COMMENT, len(shown)]), shown)


def add(described: bytes) -> bytes:
    return message(_NEW_ELEMENT, described, flags=ACK | CREATE)


def find(described: bytes) -> bytes:
    return message(_GET_ELEMENT, described)


def delete(described: bytes) -> bytes:
    return message(_DELETE_ELEMENT, described)
