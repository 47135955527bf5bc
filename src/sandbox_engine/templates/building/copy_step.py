import asyncio
import re
import threading
from functools import partial
from pathlib import Path

from sandbox_engine.images.image import Image
from sandbox_engine.rootfs.accounts import UnknownUser
from sandbox_engine.rootfs.ownership import Owner
from sandbox_engine.rootfs.tree_writer import TreeWriter
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.templates.building.archive import BadArchive, open_archive
from sandbox_engine.templates.building.copy_files import (
    CopyOrder,
    SourceMissing,
    copy_files,
    literal_part,
)
from sandbox_engine.templates.building.plan import Step
from sandbox_engine.templates.building.steps import StepContext, StepProblem, argument

_MODE = re.compile(r"[0-7]{1,5}")
_HIGHEST_MODE = 0o7777


async def copy(step: Step, site: StepContext) -> Image:
    """Copy uploaded files into the sandbox."""
    source, destination = argument(step), argument(step, 1)
    if not source or not destination:
        raise StepProblem("COPY requires a local path and a container path argument")
    archive = site.files(step.files_hash) if step.files_hash else None
    if archive is None or not archive.is_file():
        raise StepProblem(f"the files of COPY {source} were not uploaded")
    try:
        await _unpack(archive, _order(step, site), site.sandbox)
    except (BadArchive, SourceMissing, UnknownUser, OSError) as error:
        cause = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise StepProblem(f'failed to copy "{source}" to "{destination}": {cause}') from error
    return site.image


def _order(step: Step, site: StepContext) -> CopyOrder:
    destination = site.expand(argument(step, 1))
    is_directory = destination.endswith("/") or destination.rpartition("/")[2] in {".", ".."}
    where = site.resolve(destination, start=site.account.home)
    return CopyOrder(
        source=literal_part(argument(step)),
        destination=f"{where}/" if is_directory else where,
        owner=_owner(argument(step, 2), site),
        mode=_mode(argument(step, 3)),
    )


def _owner(text: str, site: StepContext) -> Owner:
    """Parse `user` or `user:group`, by name or number; the default is the user's group."""
    if not text:
        return site.account.owner
    accounts = site.sandbox.accounts
    user, _, group = text.partition(":")
    owner = Owner(int(user), int(user)) if user.isdecimal() else accounts.find(user).owner
    return Owner(owner.uid, accounts.find_group(group)) if group else owner


def _mode(text: str) -> int | None:
    if not text:
        return None
    if not _MODE.fullmatch(text) or int(text, 8) > _HIGHEST_MODE:
        raise BadArchive(f"invalid mode: {text}")
    return int(text, 8)


async def _unpack(archive: Path, order: CopyOrder, sandbox: Sandbox) -> None:
    given_up = threading.Event()
    disk = sandbox.record.resources.disk_mb << 20
    work = partial(_copy, archive, order, sandbox, most_bytes=2 * disk, given_up=given_up)
    thread = asyncio.create_task(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    except asyncio.CancelledError:
        given_up.set()
        await asyncio.wait([thread])
        raise


def _copy(
    archive: Path,
    order: CopyOrder,
    sandbox: Sandbox,
    *,
    most_bytes: int,
    given_up: threading.Event,
) -> None:
    tree_writer = TreeWriter(sandbox.root)
    with open_archive(archive, most_bytes=most_bytes, is_given_up=given_up.is_set) as entries:
        copy_files(order, entries, tree_writer)
