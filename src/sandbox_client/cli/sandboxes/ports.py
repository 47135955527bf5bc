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
            output.note(
                "Requests need your API key in the header X-API-Key. For a link without a key, use --link."
            )
            return
        link = await sandbox.ports.link(args.port, ttl_s=in_seconds(args.link))
    output.print_model_or(link, link.url)
    output.note(f"Anyone with this link can use the port until {format_instant(link.expires_at)}.")


async def open_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.sandbox() as sandbox:
        link = await sandbox.ports.link(args.port, path=args.path)
    if output.as_json:
        output.print_model(link)
    elif not await asyncio.to_thread(_open, link.url):
        output.print(link.url)
        output.note("No browser found on this machine. Open the URL above.")


def _open(url: str) -> bool:
    """Open a browser; False if there is none."""
    sys.stdout.flush()
    return webbrowser.open(url)
