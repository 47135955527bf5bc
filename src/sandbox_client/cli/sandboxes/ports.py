import asyncio
import sys
import webbrowser

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.times import say_instant


async def port(invocation: Invocation) -> None:
    given, output = invocation.given, invocation.output
    async with invocation.sandbox() as sandbox:
        if given.link is None:
            urls = await sandbox.ports.get(given.port)
            output.show_or_say(urls, urls.url)
            output.note("It wants your key in the header X-API-Key; with --link it wants none.")
            return
        link = await sandbox.ports.link(given.port, ttl_s=in_seconds(given.link))
    output.show_or_say(link, link.url)
    output.note(f"Whoever has this link reaches the port, until {say_instant(link.expires_at)}.")


async def open_(invocation: Invocation) -> None:
    given, output = invocation.given, invocation.output
    async with invocation.sandbox() as sandbox:
        link = await sandbox.ports.link(given.port, path=given.path)
    if output.as_json:
        output.show(link)
    elif not await asyncio.to_thread(_open, link.url):
        output.say(link.url)
        output.note("There is no browser here that could open it.")


def _open(url: str) -> bool:
    """Have a browser show a page; tells whether there is one."""
    sys.stdout.flush()
    return webbrowser.open(url)
