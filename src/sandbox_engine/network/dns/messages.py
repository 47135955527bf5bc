"""Header and question of a DNS message, as far as a forwarder needs them.

The header has six 16-bit numbers: id, flags, and the counts of questions, answers, authorities and
additional records. A question consists of a name, a type and a class.
"""

import struct
from dataclasses import dataclass

HEADER = struct.Struct("!HHHHHH")
_IS_REPLY, _OPERATION, _RECURSE, _CAN_RECURSE, _OUTCOME = 0x8000, 0x7800, 0x0100, 0x0080, 0x000F
_ID_BYTES = 2
_LONGEST_LABEL = 63
_TRANSFERS = (251, 252)

SERVER_FAILURE = 2
NOT_IMPLEMENTED = 4
REFUSED = 5


class Malformed(ValueError):
    """Not a DNS query."""


@dataclass(frozen=True)
class Query:
    """A DNS query of a sandbox."""

    message: bytes
    question: bytes

    @classmethod
    def parse(cls, message: bytes) -> "Query":
        """Parse a message as a query, or raise Malformed."""
        if len(message) < HEADER.size:
            raise Malformed("shorter than a header")
        _, flags, questions, *_ = HEADER.unpack_from(message)
        if flags & _IS_REPLY or questions != 1:
            raise Malformed("not one question")
        return cls(message, _question(message))

    @property
    def name(self) -> str:
        """The requested name in lower case."""
        labels, position = [], 0
        while self.question[position]:
            labels.append(read_label(self.question, position))
            position += 1 + self.question[position]
        return ".".join(labels)

    @property
    def is_lookup(self) -> bool:
        """Whether it is a lookup, not an update or zone transfer."""
        (flags,) = struct.unpack_from("!H", self.message, _ID_BYTES)
        (kind,) = struct.unpack_from("!H", self.question, len(self.question) - 4)
        return flags & _OPERATION == 0 and kind not in _TRANSFERS

    def with_id(self, number: int) -> "Query":
        """Return the same query with another id."""
        return Query(number.to_bytes(_ID_BYTES, "big") + self.message[_ID_BYTES:], self.question)

    def is_answered_by(self, message: bytes) -> bool:
        """Return whether a message answers this query."""
        if len(message) < HEADER.size or message[:_ID_BYTES] != self.message[:_ID_BYTES]:
            return False
        _, flags, questions, *_ = HEADER.unpack_from(message)
        if not flags & _IS_REPLY:
            return False
        if questions == 0:  # some servers reject unsupported queries this way
            return bool(flags & _OUTCOME)
        end = HEADER.size + len(self.question)
        return message[HEADER.size : end].lower() == self.question.lower()

    def reply(self, answer: bytes) -> bytes:
        """Give an answer the id of the sandbox's query."""
        return self.message[:_ID_BYTES] + answer[_ID_BYTES:]

    def failure(self, outcome: int) -> bytes:
        """Build a SERVFAIL answer."""
        number, flags, *_ = HEADER.unpack_from(self.message)
        flags = flags & (_OPERATION | _RECURSE) | _IS_REPLY | _CAN_RECURSE | outcome
        return HEADER.pack(number, flags, 1, 0, 0, 0) + self.question


def is_failure(answer: bytes) -> bool:
    """Return whether another server may be able to answer."""
    outcome = answer[3] & _OUTCOME
    return outcome in (SERVER_FAILURE, NOT_IMPLEMENTED, REFUSED)


def read_label(message: bytes, position: int) -> str:
    """Read a label; dots inside it are escaped."""
    length = message[position]
    label = message[position + 1 : position + 1 + length]
    if len(label) < length:
        raise Malformed("a name without end")
    return label.decode("latin-1").lower().replace(".", r"\046")


def _question(message: bytes) -> bytes:
    try:
        position = HEADER.size
        while length := message[position]:
            if length > _LONGEST_LABEL:
                raise Malformed("a compressed name in a question")
            position += 1 + length
        end = position + 5
        if end > len(message):
            raise Malformed("no type and class")
    except IndexError:
        raise Malformed("a name without end") from None
    return message[HEADER.size : end]
