"""Package sources and settings that a sandbox's apt takes from this machine.

Other vendors' repositories are excluded: sandboxes must not get their keys and credentials, and one
that does not answer would break every `apt-get update`.
"""

import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from sandbox_engine.system.errors import CannotRun

_CONFIGURATION = Path("/etc/apt")
_DISTRIBUTION_FILES = ("sources.list.d/debian.sources", "sources.list.d/ubuntu.sources")
_COMPONENTS = {
    *("main", "contrib", "non-free", "non-free-firmware"),
    *("restricted", "universe", "multiverse"),
}
_ONE_LINE = re.compile(r"deb\s+(?:\[.*\]\s+)?https?://\S+\s+(?P<suite>\S+)\s+(?P<components>.+)")
_VENDORS = ("ubuntu", "debian")
_WITHOUT_UPDATES = ("sid", "unstable")
_OPTION = re.compile(r"Acquire::(?:Check-Valid-Until|ForceIPv4|https?::Proxy(?:::\S+)?) ")
_LOOPBACK = re.compile(r"//(?:localhost|127\.[\d.]+|\[::1\])[:/\"]")
_CREDENTIALS = re.compile(r"(?<=://)[^\s/@]+@")


def host_suite() -> str:
    """Return the Debian or Ubuntu release of this machine."""
    release = platform.freedesktop_os_release()
    suite = release.get("UBUNTU_CODENAME") or release.get("VERSION_CODENAME")
    if suite is None:
        raise CannotRun("Base images are built on Debian and Ubuntu; this machine is neither.")
    return suite


def host_vendor() -> str:
    """Return the distribution of this machine or its parent: `debian` or `ubuntu`."""
    release = platform.freedesktop_os_release()
    return next(
        (name for name in (release["ID"], *release.get("ID_LIKE", "").split()) if name in _VENDORS),
        release["ID"],
    )


def sources_of(sources: tuple[str, ...], suite: str, other: str) -> tuple[str, ...]:
    """Change the package sources of one release to another release."""
    if other in _WITHOUT_UPDATES:
        return ()  # the public mirror
    return tuple(re.sub(rf"\b{re.escape(suite)}\b", other, source) for source in sources)


def host_sources(suite: str, *, configuration: Path = _CONFIGURATION) -> tuple[str, ...]:
    """Read the distribution's package sources; the default is its public mirror."""
    lines = _distribution_lines(suite, configuration / "sources.list")
    files = (configuration / name for name in _DISTRIBUTION_FILES)
    return (*lines, *(path.read_text() for path in files if path.is_file()))


def host_options() -> tuple[str, ...]:
    """Read the settings that this machine's apt needs to reach its sources."""
    command = ["apt-config", "dump", "--no-empty", "--format", '%f "%v";%n', "Acquire"]
    dump = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return tuple(line for line in dump.stdout.splitlines() if _OPTION.match(line))


def is_usable_in_sandbox(option: str) -> bool:
    """Return whether an option contains neither a loopback address nor a password."""
    return not _LOOPBACK.search(option) and not _CREDENTIALS.search(option)


def without_credentials(sources: str) -> str:
    """Remove user names and passwords from the sources' URLs."""
    return _CREDENTIALS.sub("", sources)


def _distribution_lines(suite: str, path: Path) -> Iterator[str]:
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        match = _ONE_LINE.fullmatch(line.partition("#")[0].strip())
        if match is None:
            continue
        is_of_release = match["suite"].split("-")[0].split("/")[0] == suite
        if is_of_release and _COMPONENTS.issuperset(match["components"].split()):
            yield match[0]
