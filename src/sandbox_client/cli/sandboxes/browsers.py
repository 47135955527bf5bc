"""The subcommands of `sbx browser`."""

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.failures import CliError
from sandbox_client.cli.output.times import format_relative
from sandbox_client.models import BrowserRead
from sandbox_client.protocol.options import BrowserOptions

_HEADS = ("ID", "STATE", "SANDBOX", "CREATED", "ENDS", "REASON")
_LIVING = ("pending", "running")
_WAIT_S = 60.0


async def create(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    options: BrowserOptions = {"template": args.template, "metadata": dict(args.metadata)}
    if args.timeout is not None:
        options["timeout_s"] = args.timeout.total_seconds()
    if args.keep_alive:
        options["keep_alive"] = True
    if args.priority is not None:
        options["priority"] = args.priority
    wait_s = _WAIT_S if args.wait is None else args.wait.total_seconds()
    async with invocation.client() as client:
        browser = await client.create_browser(wait_s=wait_s, **options)
    output.print_model_or(browser, browser.id)
    if browser.state == "pending":
        output.note("The session waits for a slot. Ask again with `sbx browser list`.")
    else:
        output.note(f"Connect a driver: sbx browser url {browser.id}")


async def list_(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        found: list[BrowserRead] = []
        async for browser in client.list_browsers(states=args.states or _LIVING):
            found.append(browser)
            if len(found) == args.limit:
                break
    if output.as_json:
        for browser in found:
            output.print_model(browser)
    elif output.is_quiet:
        for browser in found:
            output.print(browser.id)
    else:
        output.print_table(_HEADS, [_row(browser) for browser in found])


async def url(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        browser = await client.get_browser(args.browser)
    found = getattr(browser, f"{args.kind}_url")
    if found is None:
        raise CliError(
            f"The session {browser.id} has no URLs: it is {browser.state}, or the API key may only read."
        )
    output.print_model_or(browser, found)


async def release(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        for browser_id in args.browsers:
            output.print_model_or(await client.release_browser(browser_id), browser_id)


def _row(browser: BrowserRead) -> tuple[str, ...]:
    ends = browser.ended_at or browser.expires_at
    return (
        browser.id,
        browser.state,
        browser.sandbox_id,
        format_relative(browser.created_at),
        "" if ends is None else format_relative(ends),
        browser.state_reason or "",
    )
