from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sandbox_server.db.models import Sandbox

DOWNLOADS = "/home/user/downloads"


class Direction(StrEnum):
    """The sender of a message."""

    CLIENT = "client"
    BROWSER = "browser"


class CdpPolicy(Protocol):
    """The rules of a browser, and the observer of its connections. A session of a browser implements it."""

    @property
    def keep_alive(self) -> bool:
        """Whether the browser outlives its drivers: `Browser.close` then only disconnects."""

    @property
    def downloads(self) -> str:
        """The directory in the sandbox that receives downloads, wherever clients ask for them."""

    @property
    def records(self) -> bool:
        """Whether `record` receives the messages."""

    def on_driver_connected(self) -> None:
        """Note that a driver has connected."""

    def on_driver_left(self) -> None:
        """Note that a driver has disconnected; others may still be there."""

    def on_close_requested(self) -> None:
        """Note that a driver asked to close a browser that is not kept alive."""

    def record(self, direction: Direction, message: bytes, page_id: str | None) -> None:
        """Note a message, unless it is larger than the proxy collects."""


class PolicySource(Protocol):
    """Finds the policy of a browser."""

    async def find(self, row: Sandbox) -> CdpPolicy:
        """Find the policy for one connection to a running sandbox; raises if it may not be used any more."""


@dataclass(frozen=True)
class SandboxPolicy:
    """The policy of a browser that belongs to a sandbox: no client ends it."""

    keep_alive: bool = True
    downloads: str = DOWNLOADS
    records: bool = False

    def on_driver_connected(self) -> None:
        """Do nothing: the sandbox lives on its own."""

    def on_driver_left(self) -> None:
        """Do nothing: the sandbox lives on its own."""

    def on_close_requested(self) -> None:
        """Do nothing: the browser is kept alive."""

    def record(self, direction: Direction, message: bytes, page_id: str | None) -> None:
        """Record nothing."""
