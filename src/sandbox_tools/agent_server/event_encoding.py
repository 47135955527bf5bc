"""Events are bounded: whoever passes them on holds several, and none may be too long for a line of `run-agent`."""

import json
from collections.abc import Mapping
from typing import Any

MAX_EVENT = 240 * 1024
_TEXT_LIMITS = (64 * 1024, 8 * 1024, 1024, 100)


def encode_event(event: Mapping[str, Any]) -> bytes:
    """Encode an event, with its longest texts cut until it is short enough."""
    encoded = _encode(event)
    for longest in _TEXT_LIMITS:
        if len(encoded) <= MAX_EVENT:
            return encoded
        encoded = _encode(_cut(event, longest))
    if len(encoded) <= MAX_EVENT:
        return encoded
    plain = {name: value for name, value in event.items() if not isinstance(value, dict | list)}
    cut = f"{len(encoded)} bytes, too many to pass on"
    return _encode(_cut(plain, _TEXT_LIMITS[-1]) | {"cut": cut})


def _encode(event: Mapping[str, Any]) -> bytes:
    # Half a character, which JSON allows and many of its readers do not, becomes a question mark.
    return json.dumps(event, ensure_ascii=False).encode(errors="replace")


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, str) and len(value) > longest:
        return f"{value[:longest]}\n[… {len(value) - longest} characters cut]"
    if isinstance(value, Mapping):
        return {_cut(str(name), longest): _cut(each, longest) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(each, longest) for each in value]
    return value
