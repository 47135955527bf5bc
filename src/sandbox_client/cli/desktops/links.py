"""`sbx desktop link`, `links` and `revoke`."""

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.durations import in_seconds
from sandbox_client.cli.output.times import format_instant, format_relative
from sandbox_client.models import DesktopMode

_HEADS = ("ID", "MODE", "NAME", "CREATED", "EXPIRES")


async def create(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    mode = DesktopMode.CONTROL if args.control else DesktopMode.VIEW
    async with invocation.sandbox() as sandbox:
        link = await sandbox.desktop.create_link(
            mode=mode, ttl_s=in_seconds(args.ttl), name=args.name
        )
    output.print_model_or(link, link.url)
    allowed = "watch the desktop and take control" if args.control else "watch the desktop"
    output.note(f"Anyone with this link can {allowed} until {format_instant(link.expires_at)}.")


async def list_(invocation: Invocation) -> None:
    output = invocation.output
    async with invocation.sandbox() as sandbox:
        links = await sandbox.desktop.list_links()
    if output.as_json:
        for link in links:
            output.print_model(link)
    elif output.is_quiet:
        for link in links:
            output.print(link.id)
    else:
        rows = [
            (
                link.id,
                link.mode,
                link.name or "",
                format_relative(link.created_at),
                format_relative(link.expires_at),
            )
            for link in links
        ]
        output.print_table(_HEADS, rows)


async def revoke(invocation: Invocation) -> None:
    async with invocation.sandbox() as sandbox:
        for link_id in invocation.args.links:
            await sandbox.desktop.revoke_link(link_id)
            invocation.output.print(link_id)
