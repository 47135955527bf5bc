import stat
from contextlib import suppress

from sandbox_engine.images.adaptation.added_layer import AddedLayer
from sandbox_engine.images.certificates import TRUST_VARIABLES
from sandbox_engine.images.image import DEFAULT_USER
from sandbox_engine.rootfs.accounts import Accounts, UnknownUser
from sandbox_engine.rootfs.ownership import NOBODY, Owner
from sandbox_engine.rootfs.root import Root
from sandbox_engine.system.errors import ImageRefused

_FIRST_ID = 1000
_HOME = f"/home/{DEFAULT_USER}"
_PASSWD = f"{DEFAULT_USER}:x:{{id}}:{{id}}::{_HOME}:/bin/bash"
_GROUP = f"{DEFAULT_USER}:x:{{id}}:"
# Without an entry in these files PAM, and so sudo, treats the account as expired.
_SHADOWS = {"/etc/shadow": f"{DEFAULT_USER}:!::0:99999:7:::", "/etc/gshadow": f"{DEFAULT_USER}:!::"}
_SKELETON = (".bash_logout", ".bashrc", ".profile")
_LARGEST_FILE = 1 << 20


def add_account(root: Root, added: AddedLayer, *, trusting: bool) -> None:
    """Create the account for commands if it does not exist, and allow it sudo."""
    try:
        account = Accounts.read(root).find(DEFAULT_USER)
        owner, home = account.owner, account.home
    except UnknownUser:
        owner, home = _enter(root, added), _HOME
    _make_home(root, added, home, owner)
    if _is_setuid(root, "/usr/bin/sudo"):
        rules = _sudo_rules(trusting=trusting).encode()
        added.write("/etc/sudoers.d/user", rules, mode=0o440)


def _enter(root: Root, added: AddedLayer) -> Owner:
    passwd, group = _lines(root, "/etc/passwd"), _lines(root, "/etc/group")
    new_id = _free_id((*passwd, *group))
    passwd = passwd or [b"root:x:0:0:root:/root:/bin/sh"]
    _append(added, "/etc/passwd", passwd, _PASSWD.format(id=new_id))
    _append(added, "/etc/group", group or [b"root:x:0:"], _GROUP.format(id=new_id))
    for path, line in _SHADOWS.items():
        if lines := _lines(root, path):
            status = root.stat(path)
            mode, owner = stat.S_IMODE(status.st_mode), root.owner(status)
            _append(added, path, lines, line, mode=mode, owner=owner)
    return Owner(new_id, new_id)


def _free_id(records: tuple[bytes, ...]) -> int:
    """Find the first id from 1000 on that is unused by users and groups."""
    taken = {fields[2] for record in records if len(fields := record.split(b":")) > 2}  # noqa: PLR2004
    for number in range(_FIRST_ID, NOBODY):
        if str(number).encode() not in taken:
            return number
    raise ImageRefused("The image has no free user id for the account of commands.")


def _append(
    added: AddedLayer,
    path: str,
    lines: list[bytes],
    line: str,
    *,
    mode: int = 0o644,
    owner: Owner = Owner(0, 0),  # noqa: B008 - immutable
) -> None:
    content = b"\n".join((*lines, line.encode(), b""))
    added.write(path, content, mode=mode, owner=owner)


def _make_home(root: Root, added: AddedLayer, home: str, owner: Owner) -> None:
    is_new = not _exists(root, home)
    added.make_directory(home, owner=owner)
    for name in _SKELETON if is_new else ():
        with suppress(OSError):
            content = root.read(f"/etc/skel/{name}", limit=_LARGEST_FILE)
            added.write(f"{home}/{name}", content, owner=owner)


def _lines(root: Root, path: str) -> list[bytes]:
    try:
        content = root.read(path, limit=_LARGEST_FILE + 1)
    except OSError:
        return []
    if len(content) > _LARGEST_FILE:
        raise ImageRefused(f"The image's {path} is too large.")
    return content.rstrip(b"\n").split(b"\n") if content.strip() else []


def _exists(root: Root, path: str) -> bool:
    try:
        root.stat(path)
    except OSError:
        return False
    return True


def _is_setuid(root: Root, path: str) -> bool:
    return _exists(root, path) and bool(root.stat(path).st_mode & stat.S_ISUID)


def _sudo_rules(*, trusting: bool) -> str:
    kept = f'Defaults env_keep += "{" ".join(TRUST_VARIABLES)}"\n' if trusting else ""
    return f"{kept}{DEFAULT_USER} ALL=(ALL:ALL) NOPASSWD: ALL\n"
