"""The engine of a server that is not root: only its guard runs through sudo."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.supervisor.engine_note import EngineAddress
from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.guard import EngineGuard, engine_of
from sandbox_server.supervisor.guard_channel import GuardChannel

COMMAND = "guard-engine"

_PASSED_ON = "http_proxy,https_proxy,no_proxy,HTTP_PROXY,HTTPS_PROXY,NO_PROXY"
_ENDS_WITHIN_S = 120  # longer than an engine may take to undo its start


def require_sudo() -> None:
    if shutil.which("sudo") is None:
        raise CannotServe(
            "The engine needs root, and sudo is not installed. Start the server as root, or set "
            "E2B_API_KEY to use another provider."
        )


@contextmanager
def guard_with_sudo(
    directory: Path, *, server_url: str
) -> Iterator[tuple[EngineAddress, GuardChannel]]:
    """Start the guard with sudo; it detects the end of the block, however it ends."""
    require_sudo()
    command = [
        *(sys.executable, "-m", "sandbox_server", COMMAND),
        *("--directory", str(directory), "--server-url", server_url),
    ]
    with subprocess.Popen(  # noqa: S603
        ["sudo", f"--preserve-env={_PASSED_ON}", *command],  # noqa: S607
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as guard:
        assert guard.stdin is not None
        assert guard.stdout is not None
        link = GuardChannel(orders=guard.stdin, answers=guard.stdout)
        try:
            yield _read_address(link), link
        finally:
            link.orders.close()
            guard.wait(_ENDS_WITHIN_S)


def guard(directory: Path, *, server_url: str) -> int:
    """Run as the guard on stdin and stdout; Ctrl-C at the terminal is for the server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which sandboxes would inherit
    link = GuardChannel(orders=sys.stdin, answers=sys.stdout)
    try:
        with engine_of(directory) as engine:
            engine.name_server(server_url)
            engine.wait_until_ready(starter=sys.stdin)
            address = engine.address
            link.answer(json.dumps({"port": address.port, "api_key": address.api_key}))
            EngineGuard(engine, link).run()
    except CannotServe as error:
        link.answer(json.dumps({"failed": str(error)}))
    return 0


def _read_address(link: GuardChannel) -> EngineAddress:
    line = link.answers.readline()
    if not line:
        raise CannotServe("sudo could not start the engine.")
    answer = json.loads(line)
    if "failed" in answer:
        raise CannotServe(answer["failed"])
    return EngineAddress(port=answer["port"], api_key=answer["api_key"])
