"""Encodes events with a maximum size: they are buffered, and each must fit into a line of `run-agent`."""

import json
from collections.abc import Mapping
from typing import Any

MAX_EVENT = 240 * 1024
_TEXT_LIMITS = (64 * 1024, 8 * 1024, 1024, 100)


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Encode an event; truncate its longest texts until it fits."""
    encoded = _encode(event)
    for longest in _TEXT_LIMITS:
        if len(encoded) <= MAX_EVENT:
            return encoded
        encoded = _encode(_cut(event, longest))
    if len(encoded) <= MAX_EVENT:
        return encoded
    plain = {name: value for name, value in event.items() if not isinstance(value, dict | list)}
    cut = f"event of {len(encoded)} bytes, truncated"
    return _encode(_cut(plain, _TEXT_LIMITS[-1]) | {"cut": cut})


def _encode(event: Mapping[str, Any]) -> bytes:
    # Lone surrogates, which many JSON parsers reject, become question marks.
    return json.dumps(event, ensure_ascii=False).encode(errors="replace")


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}\n[… {len(value) - longest} characters truncated]"
    if isinstance(value, Mapping):
        return {_cut(str(name), longest): _cut(each, longest) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(each, longest) for each in value]
    return value
