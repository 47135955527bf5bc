import asyncio
import struct
from typing import cast

_HEADER = struct.Struct("!6H")
_ADDRESS = b"\xc0\x0c" + struct.pack("!2HIH4B", 1, 1, 60, 4, 127, 0, 0, 1)
_TYPE_A = 1


class Loopback(asyncio.DatagramProtocol):
    """A DNS server that resolves every name of one domain to this machine."""

    def __init__(self, domain: str) -> None:
        self._suffix = b"".join(bytes([len(part)]) + part.encode() for part in domain.split("."))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        identifier, flags, *_ = _HEADER.unpack_from(data)
        end = data.index(b"\0", _HEADER.size) + 5
        question = data[_HEADER.size : end]
        is_ours = question[:-5].lower().endswith(self._suffix)
        (kind,) = struct.unpack_from("!H", question, len(question) - 4)
        answers = _ADDRESS if is_ours and kind == _TYPE_A else b""
        response = 0x8180 | (flags & 0x0100) | (0 if is_ours else 3)
        header = _HEADER.pack(identifier, response, 1, bool(answers), 0, 0)
        self._transport.sendto(header + question + answers, address)
