import asyncio
import sys
import webbrowser

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.times import format_instant


async def port(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.sandbox() as sandbox:
        if args.link is None:
            urls = await sandbox.ports.get(args.port)
            output.print_model_or(urls, urls.url)
            output.note("It wants your key in the header X-API-Key; with --link it wants none.")
            return
        link = await sandbox.ports.link(args.port, ttl_s=in_seconds(args.link))
    output.print_model_or(link, link.url)
    output.note(f"Whoever has this link reaches the port, until {format_instant(link.expires_at)}.")


async def open_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.sandbox() as sandbox:
        link = await sandbox.ports.link(args.port, path=args.path)
    if output.as_json:
        output.print_model(link)
    elif not await asyncio.to_thread(_open, link.url):
        output.print(link.url)
        output.note("There is no browser here that could open it.")


def _open(url: str) -> bool:
    """Have a browser show a page; tells whether there is one."""
    sys.stdout.flush()
    return webbrowser.open(url)
