"""The system configuration of git in a sandbox, which leads the addresses of its repositories to this server.

It is a file of its own, /etc/sandbox/gitconfig, which git's system configuration includes. The remotes of checkouts keep the
forge's address.
"""

import logging
import string
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final
from urllib.parse import urlsplit

from sandbox_server.domain.errors import SandboxError
from sandbox_server.git.endpoint.access import GitAccess
from sandbox_server.git.endpoint.targets import address_of
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.services.config import ServiceConfigWriter

log = logging.getLogger(__name__)

DOOR = "http://git.sandbox"

_LIMIT = timedelta(seconds=30)
_BASE = "@BASE@"
# Characters that continue a repository's name: an address is replaced by prefix, and the longest one wins.
_CONTINUES = f"{string.ascii_letters}{string.digits}-_."

# In a subshell: `exit` in a login shell runs ~/.bash_logout.
_WRITE: Final = r"""(
set -eu
umask 022
if grep -qs '[[:space:]]git\.sandbox$' /etc/hosts; then
    base=http://git.sandbox helper=
elif [ -n "$PUBLIC_URL" ]; then
    base=$PUBLIC_URL helper=1
else
    exit 0
fi
command -v git >/dev/null || exit 0
[ -d /etc/sandbox ] || mkdir -m 755 /etc/sandbox
put() { # MODE FILE
    (umask 077; cat >"$2.new")
    chmod "$1" "$2.new"
    mv -fT "$2.new" "$2"
}
printf '%s' "$CONFIG" | sed "s|@BASE@|$base|g" | put 644 /etc/sandbox/gitconfig
if [ -n "$helper" ]; then
    printf 'username=%s\npassword=%s\n' "$SANDBOX_ID" "$TOKEN" | put 600 /etc/sandbox/git-credential
    chown user /etc/sandbox/git-credential 2>/dev/null || true
fi
git config --system --replace-all include.path /etc/sandbox/gitconfig '^/etc/sandbox/gitconfig$'
)"""

_SETTINGS: Final = f"""\
[http "{_BASE}/"]
	lowSpeedLimit = 1
	lowSpeedTime = 60
[credential "{_BASE}"]
	helper =
	helper = "!f() {{ test \\"$1\\" = get && cat /etc/sandbox/git-credential 2>/dev/null; }}; f"
[push]
	default = current
[lfs]
	concurrentTransfers = 3
	locksVerify = false
	skipDownloadErrors = true
"""


class SandboxGitConfig:
    """Configures git in sandboxes for the repositories that they may reach."""

    def __init__(
        self, access: GitAccess, services: ServiceConfigWriter, *, public_url: str | None
    ) -> None:
        self._access = access
        self._services = services
        self._public_url = public_url

    async def write(self, used: UsableSandbox) -> None:
        """Write the configuration; repeatable. Without it git in the sandbox cannot fetch or push, and all else works."""
        urls = await self._access.list_addresses(used.row)
        if not urls:
            return
        envs = {
            "CONFIG": gitconfig(urls),
            "PUBLIC_URL": self._public_url or "",
            "SANDBOX_ID": used.row.id,
            "TOKEN": await self._services.token(used.row) if self._public_url else "",
        }
        try:
            inside = used.backend.inside(used.access)
            said = await inside.run_command(_WRITE, user="root", envs=envs, timeout=_LIMIT)
        except SandboxError as error:
            log.warning("git not configured sandbox_id=%s error=%s", used.row.id, error)
            return
        if said.exit_code:
            words = said.output[-500:].decode(errors="replace")
            log.warning("git not configured sandbox_id=%s said=%s", used.row.id, words)


def gitconfig(urls: Sequence[str]) -> str:
    """Write the configuration for repositories at these addresses of their forges."""
    return "".join([*(_section(url) for url in urls), _SETTINGS])


def _section(url: str) -> str:
    plain = url.rstrip("/").removesuffix(".git")
    ours = f'[url "{_BASE}/git/{address_of(plain)}"]\n'
    replaced = "".join(f"\tinsteadOf = {form}\n" for form in _forms(plain))
    return ours + replaced + _neighbours(plain)


def _forms(url: str) -> Iterator[str]:
    parts = urlsplit(url)
    yield url
    yield f"git@{parts.hostname}:{parts.path.lstrip('/')}"
    yield f"ssh://git@{parts.hostname}/{parts.path.lstrip('/')}"


def _neighbours(url: str) -> str:
    """Keep the addresses of repositories whose names begin with this one's."""
    others = (f"{url}{character}" for character in _CONTINUES)
    kept = "".join(f'[url "{other}"]\n\tinsteadOf = {other}\n' for other in others)
    return f'{kept}[url "{_BASE}/git/{address_of(url)}.git"]\n\tinsteadOf = {url}.git\n'
