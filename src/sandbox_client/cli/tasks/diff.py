import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

from sandbox_client.cli.invocation import Invocation
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.tasks.lookup import find_task
from sandbox_client.console.escape import escape_controls
from sandbox_client.models import TaskDiff

_PAGER = "less"
_LESS = "FRX"  # as git: leave if it fits, pass colours, keep the screen
_COLOURS = (
    (re.compile(r"(diff |index |--- |\+\+\+ |new file|deleted file|similarity|rename )"), "dim"),
    (re.compile(r"@@"), "cyan"),
    (re.compile(r"\+"), "green"),
    (re.compile(r"-"), "red"),
)


async def diff(invocation: Invocation) -> None:
    args, output = invocation.args, invocation.output
    async with invocation.client() as client:
        task = await find_task(client, args.task)
        found = await client.get_task_diff(task.id, old=args.old, new=args.to, path=args.path)
    if output.as_json:
        output.print_model(found)
    elif args.stat:
        for file in found.files:
            output.print(f"{file.status}  {escape_controls(file.path)}")
    elif sys.stdout.isatty():
        _show(output, found, pages=not args.no_pager)
    else:  # as it is, for `git apply`
        sys.stdout.write(found.diff)
    _tell(output, found, task.id)


def _tell(output: Output, found: TaskDiff, task_id: str) -> None:
    if not found.files:
        output.note("Nothing was changed.")
    if found.is_cut:
        output.note(
            f"The diff is cut. See one file with: sbx task diff {task_id} --path FILE; all files: --stat"
        )


def _show(output: Output, found: TaskDiff, *, pages: bool) -> None:
    text = "".join(f"{line}\n" for line in coloured(output, found.diff))
    pager = os.environ.get("PAGER") or shutil.which(_PAGER)
    if not pages or not pager or not text:
        sys.stdout.write(text)
        return
    environment = {"LESS": _LESS, **os.environ}
    subprocess.run(  # noqa: S603 - the user's own pager
        ["/bin/sh", "-c", pager],
        input=text.encode(errors="backslashreplace"),
        env=environment,
        check=False,
    )


def coloured(output: Output, text: str) -> Iterator[str]:
    """Yield the lines, which cannot control the terminal, in the colours of their kind."""
    for line in text.removesuffix("\n").split("\n"):
        shown = escape_controls(line, keep="\t")
        colour = next((colour for begin, colour in _COLOURS if begin.match(line)), None)
        yield shown if colour is None else output.paint(shown, colour)
