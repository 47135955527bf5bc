import getpass
import json
import os
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import CliError
from sandbox_client.protocol.address import API_KEY, URL, config_file, find_address


async def login(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    address = find_address(args.server or args.url, "")
    with invocation.interrupts.suspended():
        key = _ask_for_key(address.url)
    async with (
        AsyncSandboxClient(address.url, key, retry_for_s=0) as client,
        aclosing(client.list_sandboxes()) as sandboxes,
    ):
        await anext(sandboxes, None)  # fails if the key is invalid
    file = config_file()
    _write(file, url=address.url, api_key=key)
    output.note(f"Logged in. The URL and the key are saved in {file}.")
    for name in (URL, API_KEY):
        if os.environ.get(name):
            output.note(f"The environment variable {name} is set and overrides the saved value.")


def _ask_for_key(url: str) -> str:
    asks = sys.stdin.isatty()
    key = getpass.getpass(f"API key for {url}: ") if asks else sys.stdin.readline()
    if not key.strip():
        raise CliError("No API key given.", advice="Create one with `sandbox-server keys create`.")
    return key.strip()


def _write(file: Path, **text: str) -> None:
    """Write a private file atomically."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in text.items()]
    # mkstemp creates it with mode 600.
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(descriptor, "w") as opened:
        opened.writelines(lines)
    Path(unfinished).replace(file)
