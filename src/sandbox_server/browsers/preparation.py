"""Prepares the browser of a session (context, extension, proxies) and stores its context at the end."""

import json
import posixpath
import shlex
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta

from sandbox_server.browsers.allowed_domains import forwarder_config
from sandbox_server.browsers.file_parts import BrowserFiles
from sandbox_server.db.models import BrowserSession
from sandbox_server.domain.access import ServerCaller
from sandbox_server.domain.errors import BrowserNotPrepared
from sandbox_server.files.file_access import FileAccess, FileLocation, FileSession

_HOME = "/home/user"
_EXTENSIONS = f"{_HOME}/.config/sandbox-browser/extensions"
_PROFILES = f"{_HOME}/.cache/sandbox-browser"
_FLAGS = f"{_HOME}/.config/sandbox-browser/flags"  # read by services/browser at each start
_ARCHIVE = "/tmp/.browser-archive"  # noqa: S108 - in the sandbox
_LARGEST_PROFILE = 100 * 2**20
_LIMIT = timedelta(seconds=60)
_WAIT = timedelta(seconds=15)

_CONFIGURE = (
    f"curl --silent --show-error --fail --noproxy '*' --max-time 20 -X PUT --data @{_ARCHIVE} "
    '-H "Authorization: Bearer $(sandbox-tools setting token)" http://127.0.0.1:9223/config'
)
_USAGE = (
    "curl --silent --fail --noproxy '*' --max-time 10 "
    '-H "Authorization: Bearer $(sandbox-tools setting token)" http://127.0.0.1:9223/usage'
)
_UNPACK_EXTENSION = f'rm -rf "$DIR" && mkdir -p "$DIR" && python3 -m zipfile -e {_ARCHIVE} "$DIR"'
_FIND_EXTENSION = 'cd "$DIR" && if [ -e manifest.json ]; then pwd; else cd -- */ && [ -e manifest.json ] && pwd; fi'
_UNPACK_PROFILE = (
    f'mkdir -p "$DIR" && if [ -e {_ARCHIVE} ]; then tar -C "$DIR" -x -z -f {_ARCHIVE}; fi'
)
# SIGTERM ends Chromium before it has written its cookies; Browser.close does not.
_CLOSE = """
import json, socket, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
version = json.load(opener.open("http://127.0.0.1:9222/json/version", timeout=5))
path = version["webSocketDebuggerUrl"].partition(":9222")[2]
browser = socket.create_connection(("127.0.0.1", 9222), 10)
head = ["GET " + path + " HTTP/1.1", "Host: 127.0.0.1:9222", "Upgrade: websocket", "Connection: Upgrade",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13", "", ""]
browser.sendall("\\r\\n".join(head).encode())
browser.recv(4096)
command = b'{"id":1,"method":"Browser.close"}'
browser.sendall(bytes([0x81, 0x80 | len(command)]) + bytes(4) + command)
while browser.recv(4096):
    pass
"""
# The brackets keep the pattern from matching the shell that contains it.
_KILL = "pkill -TERM -o -f -- '[-]-remote-debugging-port=9222'"
_STOP = f"python3 -c {shlex.quote(_CLOSE)} 2>/dev/null || {_KILL}"
_ASK = "curl --silent --fail --noproxy '*' --max-time 2 http://127.0.0.1:9222/json/version"
_RESTART = f"""
before=$({_ASK})
{_STOP}
for _ in $(seq 200); do
    now=$({_ASK})
    if [ -n "$now" ] && [ "$now" != "$before" ]; then exit 0; fi
    sleep 0.1
done
exit 1
"""
_LEFT_OUT = " ".join(
    f"--exclude={shlex.quote(name)}"
    for name in (
        *("Cache", "Code Cache", "GPUCache", "DawnGraphiteCache", "DawnWebGPUCache", "ShaderCache"),
        *("GrShaderCache", "GraphiteDawnCache", "Crashpad", "component_crx_cache", "Singleton*"),
    )
)
_PACK_PROFILE = f"""
rm -f {_FLAGS}
{_STOP}
for _ in $(seq 150); do
    pgrep -f -- "[-]-user-data-dir=$DIR" >/dev/null || break
    sleep 0.1
done
tar -C "$DIR" -c -z -f {_ARCHIVE} {_LEFT_OUT} . || [ $? = 1 ]
"""


def needs_preparation(row: BrowserSession) -> bool:
    """Whether the warm browser is not yet as the session wants it."""
    wanted = row.settings
    asks = (
        wanted.get("flags")
        or wanted.get("extension_id")
        or wanted.get("has_proxies")
        or wanted.get("allowed_domains")
    )
    return bool(asks or row.context_id) and not wanted.get("is_prepared")


def proxies_id(session_id: str) -> str:
    """Name the file of a session's upstream proxies, which contains passwords."""
    return f"{session_id}/proxies"


class SessionPreparation:
    """Makes the warm browser of a sandbox that of a session, and takes its profile out at the end."""

    def __init__(self, file_access: FileAccess, files: BrowserFiles) -> None:
        self._file_access = file_access
        self._files = files

    async def prepare(self, row: BrowserSession) -> None:
        """Configure the proxies, and start the browser anew with the profile, extension and flags of the session."""
        location = FileLocation(sandbox_id=row.sandbox_id, path=_HOME, user=None, wait=_WAIT)
        async with self._file_access.open(ServerCaller.of(row.tenant_id), location) as session:
            if row.settings.get("has_proxies") or row.settings.get("allowed_domains"):
                await self._configure_forwarder(session, row)
            flags = [*row.settings.get("flags", ())]
            if extension_id := row.settings.get("extension_id"):
                flags += await self._load_extension(session, extension_id)
            if row.context_id is not None:
                flags += await self._restore_profile(session, row.context_id)
            if flags:
                await _upload(session, _FLAGS, "".join(f"{each}\n" for each in flags).encode())
                await _run(
                    session, _RESTART, "The browser did not start with the session's settings."
                )

    async def save_profile(self, row: BrowserSession) -> None:
        """Stop the browser and store its profile as the context."""
        assert row.context_id is not None
        location = FileLocation(sandbox_id=row.sandbox_id, path=_HOME, user=None, wait=_WAIT)
        async with self._file_access.open(ServerCaller.of(row.tenant_id), location) as session:
            directory = {"DIR": _profile_of(row.context_id)}
            await _run(session, _PACK_PROFILE, "The profile could not be packed.", directory)
            content = await session.inside.read_file(_ARCHIVE, limit=_LARGEST_PROFILE)
        await self._files.write(row.context_id, content)

    async def read_traffic(self, row: BrowserSession) -> int:
        """Read how many bytes have passed the session's proxies."""
        location = FileLocation(sandbox_id=row.sandbox_id, path=_HOME, user=None, wait=_WAIT)
        async with self._file_access.open(ServerCaller.of(row.tenant_id), location) as session:
            told = json.loads(await _run(session, _USAGE, "The forwarder does not answer."))
        return int(told["bytes_in"]) + int(told["bytes_out"])

    async def _configure_forwarder(self, session: FileSession, row: BrowserSession) -> None:
        has_proxies = bool(row.settings.get("has_proxies"))
        proxies = await self._files.find(proxies_id(row.id)) if has_proxies else None
        if has_proxies and proxies is None:
            raise BrowserNotPrepared("The session's proxies are not stored.")
        config = forwarder_config(proxies, row.settings.get("allowed_domains", ()))
        await _upload(session, _ARCHIVE, config)
        await _run(
            session,
            f"{_CONFIGURE}; done=$?; rm -f {_ARCHIVE}; exit $done",
            "The session's proxies or domains were refused.",
        )

    async def _load_extension(self, session: FileSession, extension_id: str) -> list[str]:
        content = await self._files.find(extension_id)
        if content is None:
            raise BrowserNotPrepared(f"The extension {extension_id} was deleted.")
        await _upload(session, _ARCHIVE, content)
        directory = {"DIR": posixpath.join(_EXTENSIONS, extension_id)}
        await _run(session, _UNPACK_EXTENSION, "The extension could not be unpacked.", directory)
        found = await _run(session, _FIND_EXTENSION, "The extension has no manifest.", directory)
        return [
            f"--load-extension={found.strip()}",
            "--disable-features=DisableLoadExtensionCommandLineSwitch",
        ]

    async def _restore_profile(self, session: FileSession, context_id: str) -> list[str]:
        content = await self._files.find(context_id)
        await _run(session, f"rm -f {_ARCHIVE}", "The sandbox does not run commands.")
        if content is not None:
            await _upload(session, _ARCHIVE, content)
        directory = _profile_of(context_id)
        await _run(
            session, _UNPACK_PROFILE, "The context could not be unpacked.", {"DIR": directory}
        )
        return [f"--user-data-dir={directory}"]


def _profile_of(context_id: str) -> str:
    return posixpath.join(_PROFILES, context_id)


async def _upload(session: FileSession, path: str, content: bytes) -> None:
    async def parts() -> AsyncGenerator[bytes, None]:
        yield content

    await session.transfers.upload(path, parts(), length=len(content))


async def _run(
    session: FileSession, command: str, failure: str, envs: Mapping[str, str] | None = None
) -> str:
    done = await session.inside.run_command(command, timeout=_LIMIT, envs=envs)
    output = done.output.decode(errors="replace")
    if done.exit_code != 0:
        raise BrowserNotPrepared(f"{failure} {output.strip()[-300:]}".strip())
    return output
