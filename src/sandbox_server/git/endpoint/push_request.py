"""The commands of a push: the part of its body before the pack.

request  = *shallow *command flush [*push-option flush] [pack]
shallow  = "shallow " oid
command  = old SP new SP ref [NUL capabilities]                 the first one has capabilities

Before a body of more than `http.postBuffer` git sends a flush alone, to learn whether it may push.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_server.domain.tasks.refs import is_ref
from sandbox_server.git.pkt_line import MalformedPktLine, PktLineReader

MAX_HEAD = 256 * 1024
MAX_COMMANDS = 16

_MAX_OPTIONS = 32
_OID = rb"[0-9a-f]{40}(?:[0-9a-f]{24})?"
_COMMAND = re.compile(
    rb"(?P<old>" + _OID + rb") (?P<new>" + _OID + rb") (?P<ref>[^\0]+)", re.DOTALL
)
_SHALLOW = re.compile(rb"shallow " + _OID)


@dataclass(frozen=True, kw_only=True)
class RefCommand:
    """One ref to create, move or delete."""

    old: str
    new: str
    ref: str

    @property
    def is_create(self) -> bool:
        return set(self.old) == {"0"}

    @property
    def is_delete(self) -> bool:
        return set(self.new) == {"0"}


@dataclass(frozen=True, kw_only=True)
class PushRequest:
    """The head of a push."""

    commands: Sequence[RefCommand]
    capabilities: frozenset[str] = frozenset()

    @property
    def is_probe(self) -> bool:
        """Whether the client only asks whether it may push."""
        return not self.commands

    @property
    def has_pack(self) -> bool:
        return any(not command.is_delete for command in self.commands)


async def read_push(lines: PktLineReader) -> PushRequest:
    """Read the head of a push and leave the pack."""
    commands: list[RefCommand] = []
    capabilities: frozenset[str] = frozenset()
    while (line := await lines.read()) is not None:
        if not commands:
            line, _, told = line.partition(b"\0")
            capabilities |= frozenset(told.decode("utf-8", "replace").split())
        if line.startswith(b"push-cert"):
            raise MalformedPktLine("Signed pushes are not supported.")
        if _SHALLOW.fullmatch(line) is None:
            commands.append(_read_command(line))
        if len(commands) > MAX_COMMANDS:
            raise MalformedPktLine(f"A push has at most {MAX_COMMANDS} refs.")
    if "push-options" in capabilities:
        await _skip_options(lines)
    _require_distinct(commands)
    return PushRequest(commands=commands, capabilities=capabilities)


async def _skip_options(lines: PktLineReader) -> None:
    for _ in range(_MAX_OPTIONS):
        if await lines.read() is None:
            return
    raise MalformedPktLine(f"A push has at most {_MAX_OPTIONS} options.")


def _read_command(line: bytes) -> RefCommand:
    found = _COMMAND.fullmatch(line)
    ref = None if found is None else found["ref"].decode("utf-8", "replace")
    if found is None or ref is None or not is_ref(ref):
        raise MalformedPktLine("A command is not `old new ref`.")
    return RefCommand(old=found["old"].decode(), new=found["new"].decode(), ref=ref)


def _require_distinct(commands: Sequence[RefCommand]) -> None:
    if len({command.ref for command in commands}) != len(commands):
        raise MalformedPktLine("A ref is named twice.")
