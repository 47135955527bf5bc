import argparse
import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx

from sandbox_client import AsyncSandbox, AsyncSandboxClient
from sandbox_client.cli.output.output import Output
from sandbox_client.cli.sandbox_lookup import find_sandbox
from sandbox_client.protocol.address import find_address

_STDOUT = 1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Turns SIGINT, SIGTERM and SIGHUP into a cancellation, so that `sbx` can clean up."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._interrupt: Callable[[], None] = self.cancel
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._receive, number)
        if stat.S_ISFIFO(os.fstat(_STDOUT).st_mode):
            loop.add_reader(_STDOUT, self._lose_reader)

    @contextmanager
    def handled_by(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Let `interrupt` handle Ctrl-C; it may call `cancel`."""
        before, self._interrupt = self._interrupt, interrupt
        try:
            yield
        finally:
            self._interrupt = before

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore the default Ctrl-C while a blocking call runs."""
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGINT)
        try:
            yield
        finally:
            loop.add_signal_handler(signal.SIGINT, self._receive, signal.SIGINT)

    def cancel(self, number: signal.Signals = signal.SIGINT) -> None:
        """Cancel the subcommand as if this signal had arrived."""
        self.received = number
        assert self._task is not None
        self._task.cancel()

    def _lose_reader(self) -> None:
        """Exit when the reader of stdout is gone, as in `sbx logs -f | head`, even while there is nothing to write."""
        asyncio.get_running_loop().remove_reader(_STDOUT)
        self.cancel(signal.SIGPIPE)

    def _receive(self, number: signal.Signals) -> None:
        if number is signal.SIGINT:
            self._interrupt()
        else:
            self.cancel(number)


@dataclass(frozen=True)
class Invocation:
    """The context of one subcommand: arguments, output, signals."""

    args: argparse.Namespace
    output: Output
    interrupts: Interrupts

    @asynccontextmanager
    async def client(self) -> AsyncIterator[AsyncSandboxClient]:
        """Open a client. A health check fails fast if there is no server; later requests are retried for a while."""
        url = self.args.url
        is_encrypted = find_address(url).url.startswith("https:")
        tls = httpx.create_ssl_context() if is_encrypted else None
        async with AsyncSandboxClient(url, retry_for_s=0, tls=tls) as client:
            await client.health()
        async with AsyncSandboxClient(url, tls=tls) as client:
            yield client

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator[AsyncSandbox]:
        """Look up the sandbox named on the command line."""
        async with self.client() as client:
            yield await find_sandbox(client, self.args.sandbox)
