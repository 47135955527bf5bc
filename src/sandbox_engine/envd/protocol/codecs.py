from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from connectrpc.code import Code
from connectrpc.codec import Codec, proto_binary_codec, proto_json_codec
from connectrpc.compression.gzip import GzipCompression
from connectrpc.errors import ConnectError
from e2b.envd.filesystem.filesystem_pb import EntryInfo, ListDirResponse

if TYPE_CHECKING:
    from protobuf import Message

# Messages with fewer brackets cannot nest too deeply. Messages with more bytes of brackets are
# useless for any call, and expensive to check.
_HARMLESS_BRACKETS = 500
_LOOKED_AT_BYTES = 4 << 20

_DECOMPRESSED_LIMIT = 4 << 20


class Encoded(NamedTuple):
    """A message that was serialized outside the event loop."""

    octets: bytes


def encode_listing(entries: Iterable[EntryInfo], content_type: str) -> Encoded:
    """Serialize a ListDirResponse in pieces, so that other threads can run.

    At once, protobuf holds the interpreter lock for 0.2 s per 100,000 entries.
    """
    if content_type.startswith("application/json"):
        return Encoded(
            b'{"entries":[%b]}' % b",".join(entry.to_json().encode() for entry in entries)
        )
    return Encoded(b"".join(ListDirResponse(entries=[entry]).to_binary() for entry in entries))


class EnvdCodec(Codec[Any, Any]):
    """A codec of the protocol, hardened against hostile messages."""

    def __init__(self, codec: Codec[Any, Any]) -> None:
        self._codec = codec

    def name(self) -> str:
        return self._codec.name()

    def encode(self, message: Message | Encoded) -> bytes:
        return message.octets if isinstance(message, Encoded) else self._codec.encode(message)

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        try:
            if self.name() == "json":
                _require_shallow(data)
            return self._codec.decode(data, message_class)
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            raise ConnectError(Code.INVALID_ARGUMENT, f"unmarshal message: {error}") from error


def _require_shallow(data: bytes | bytearray) -> None:
    """Reject nesting that overflows the stack of protobuf's JSON parser and kills the engine.

    20,000 brackets are enough. The standard library's parser limits its depth.
    """
    if data.count(b"[") + data.count(b"{") <= _HARMLESS_BRACKETS:
        return
    if len(data) > _LOOKED_AT_BYTES:
        raise ValueError("the message is too large for its structure")
    json.loads(data)


class EnvdGzip(GzipCompression):
    """Decompression with bounded time in the event loop, also for highly compressed data."""

    def __init__(self) -> None:
        super().__init__(level=1)

    def decompress(
        self, data: bytes | bytearray | memoryview, read_max_bytes: int | None = None
    ) -> bytes:
        limit = min(_DECOMPRESSED_LIMIT, read_max_bytes or _DECOMPRESSED_LIMIT)
        try:
            return super().decompress(data, limit)
        except (EOFError, zlib.error) as error:
            raise ConnectError(Code.INVALID_ARGUMENT, f"decompress message: {error}") from error


COMPRESSIONS = (EnvdGzip(),)
CODECS = (EnvdCodec(proto_binary_codec()), EnvdCodec(proto_json_codec()))
