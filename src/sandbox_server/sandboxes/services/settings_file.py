import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta

from sandbox_server.domain.errors import StdinClosed, ToolsRefused
from sandbox_server.domain.ids import new_id
from sandbox_server.providers.e2b.processes import Processes
from sandbox_server.providers.protocol.errors import ProcessGone
from sandbox_server.providers.protocol.processes import Ended, NewProcess, Started, TimeIsUp

SETTINGS_FILE = "/etc/sandbox/tools.json"
"""The settings file of a sandbox's services; they read it again before they refuse a caller."""

WITHIN = timedelta(seconds=10)

_PART = 256 * 1024  # bytes per message

# The content comes by stdin: it may exceed the limit of arguments, and must not appear in a process list. The file is
# replaced atomically, since a service may be reading it, and only its owner can read it at any moment. Each program
# that the script starts adds a millisecond to the start of a sandbox.
_WRITE = f"""
new=/etc/sandbox/.tools.$2
fail() {{ rm -f "$new"; exit "$1"; }}
[ -d /etc/sandbox ] || mkdir -m 755 -p /etc/sandbox || exit 11
umask 077
true > "$new" || exit 12
head -c "$1" > "$new" && [ "$(wc -c < "$new")" -eq "$1" ] || fail 13
chown user "$new" || fail 14
mv -fT "$new" {SETTINGS_FILE} || fail 15
"""
# Fixed texts: output of the sandbox could contain the settings or be forged.
_REASONS = {
    11: "the directory /etc/sandbox cannot be made",
    12: "no file can be made in /etc/sandbox",
    13: "it was not taken whole; the disk may be full",
    14: "there is no account `user`",
    15: "something else is in its place",
}


async def put_settings(processes: Processes, content: bytes) -> None:
    """Replace a sandbox's settings file."""
    try:
        async with asyncio.timeout(WITHIN.total_seconds()):
            exit_code = await _write(processes, content)
    except (TimeoutError, TimeIsUp):
        raise ToolsRefused(_explain(f"it took longer than {WITHIN.seconds} s")) from None
    if exit_code != 0:
        reason = _REASONS.get(exit_code or 0, "its shell did not do it")
        raise ToolsRefused(_explain(reason))


async def _write(processes: Processes, content: bytes) -> int | None:
    tag = new_id()
    script = ["/bin/sh", "-c", _WRITE, "sh", str(len(content)), tag]
    process = NewProcess(args=script, tag=tag, user="root", stdin=True)
    async with aclosing(processes.start(process, timeout=WITHIN)) as events:
        async for event in events:
            match event:
                case Started():
                    await _send(processes, tag, content)
                case Ended():
                    return event.exit_code
    raise ToolsRefused(_explain("the answer broke off"))


async def _send(processes: Processes, tag: str, content: bytes) -> None:
    with suppress(StdinClosed, ProcessGone):  # the exit code tells why
        for begin in range(0, len(content), _PART):
            await processes.send_input(tag, content[begin : begin + _PART], terminal=False)


def _explain(reason: str) -> str:
    return f"The file {SETTINGS_FILE} cannot be written in the sandbox: {reason}."
