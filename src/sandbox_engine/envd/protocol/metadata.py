"""User-defined file metadata: `X-Metadata-*` headers, stored as extended attributes."""

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

from sandbox_engine.envd.protocol.error_texts import reason

_HEADER = "x-metadata-"
_ATTRIBUTE = "user.e2b."
_KEY_LIMIT = 255 - len(_ATTRIBUTE)
_TOTAL_LIMIT = 4096
_PRINTABLE = range(0x20, 0x7F)
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS}


class InvalidMetadata(ValueError):
    """The metadata is invalid."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid metadata: {reason}")


class MetadataNotStored(Exception):
    """The file system rejected the metadata; the old metadata is unchanged."""


def from_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Collect an upload's metadata; of repeated headers the first counts."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.lower().removeprefix(_HEADER)
        if key and key != name.lower():
            found.setdefault(key, value)
    _check(found)
    return found


def _check(metadata: Mapping[str, str]) -> None:
    for key, value in metadata.items():
        if len(key) > _KEY_LIMIT:
            raise InvalidMetadata(f'metadata key "{key}" exceeds {_KEY_LIMIT} bytes')
        _require_printable(key, f'metadata key "{key}"')
        _require_printable(value, f'metadata value for key "{key}"')
    total = sum(len(_ATTRIBUTE) + len(key) + len(value) for key, value in metadata.items())
    if total > _TOTAL_LIMIT:
        raise InvalidMetadata(f"total metadata size {total} exceeds {_TOTAL_LIMIT} bytes")


def _require_printable(text: str, what: str) -> None:
    for offset, character in enumerate(text):
        if ord(character) not in _PRINTABLE:
            raise InvalidMetadata(
                f"{what} contains non-printable-ASCII byte 0x{ord(character):02x} "
                f"at offset {offset}"
            )


def read_metadata(path: str, *, follow: bool) -> dict[str, str]:
    """Read a file's metadata; `path` must lead through a descriptor."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for attribute in os.listxattr(path, follow_symlinks=follow):
            if attribute.startswith(_ATTRIBUTE) and attribute.isascii():
                with suppress(UnicodeDecodeError):
                    value = os.getxattr(path, attribute, follow_symlinks=follow).decode()
                    found[attribute.removeprefix(_ATTRIBUTE)] = value
    return found


def replace_metadata(descriptor: int, metadata: Mapping[str, str]) -> None:
    """Replace an open file's metadata; ignored where extended attributes are not supported."""
    try:
        before = _stored(descriptor)
        wanted = {_ATTRIBUTE + key: value.encode() for key, value in metadata.items()}
        try:
            _store(descriptor, wanted)
        except OSError:
            _store(descriptor, before)
            raise
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise MetadataNotStored(reason(error)) from error


def _stored(descriptor: int) -> dict[str, bytes]:
    attributes = [name for name in os.listxattr(descriptor) if name.startswith(_ATTRIBUTE)]
    return {name: os.getxattr(descriptor, name) for name in attributes}


def _store(descriptor: int, attributes: Mapping[str, bytes]) -> None:
    for name in _stored(descriptor).keys() - attributes.keys():
        os.removexattr(descriptor, name)
    for name, value in attributes.items():
        os.setxattr(descriptor, name, value)
