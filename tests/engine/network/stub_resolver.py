"""An engine on a host whose only resolver is a stub on its loopback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.dns_resolvers import Behaviour, answer
from tests.engine.engine_process import EngineProcess
from tests.engine.file_systems import RELEASE_DISKS
from tests.engine.host_networks import run

STUB = f"127.53.{os.getpid() % 250 + 1}.53"
_NO_DATA = 0x8580


class EngineElsewhere(EngineProcess):
    """An engine that sees the host's files as a mount namespace has them."""

    def __init__(self, *flags: str, mounts: Path) -> None:
        super().__init__(*flags)
        self._mounts = mounts

    def command(self, name: str) -> list[str]:
        return ["nsenter", f"--mount={self._mounts}", *super().command(name)]


_OF_ITS_OWN = f"""
mount --bind "$1" /etc/resolv.conf
{RELEASE_DISKS}
"""


@contextmanager
def stubbed(place: Path) -> Iterator[Path]:
    """Make a mount namespace that has the stub in its list of resolvers."""
    configuration, mounts = place / "resolv.conf", place / "mounts"
    configuration.write_text(f"nameserver {STUB}\n")
    mounts.touch()
    run("mount", "--bind", str(place), str(place))
    run("mount", "--make-private", str(place))
    run("unshare", f"--mount={mounts}", "sh", "-ec", _OF_ITS_OWN, "sh", str(configuration))
    yield mounts
    run("umount", str(mounts))
    run("umount", str(place))


def resolves_to(address: str) -> Behaviour:
    """Behave as a resolver for which every name has this address and no other."""

    def behave(asked: bytes) -> list[bytes]:
        end_of_name = asked.index(0, 12)
        wants_ipv4 = asked[end_of_name + 1 : end_of_name + 3] == b"\0\1"
        return [answer(asked, address) if wants_ipv4 else answer(asked, flags=_NO_DATA)]

    return behave
