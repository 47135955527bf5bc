import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest_asyncio

from sandbox_tools.shell.shell_runner import ShellRunner
from sandbox_tools.shell.shells import Shells
from sandbox_tools.shell.tmux import Tmux
from tests.tools.shell.processes import alive


@pytest_asyncio.fixture
async def shells(sockets, tmp_path, monkeypatch):
    monkeypatch.setenv("TMUX_TMPDIR", str(sockets))
    shells = Shells(Tmux("runner"), tmp_path / "shells")
    await shells.open("one", cwd=tmp_path, environment={}, marks={})
    yield shells
    await shells.tmux.run(("kill-server",))


async def test_shell_run__a_call_that_is_cancelled_while_its_command_starts_leaves_nothing_running(
    shells, tmp_path, monkeypatch
):
    sends, pid = shells.tmux.run, tmp_path / "pid"

    async def run_and_cancel_after_sending(*commands, **options):
        output = await sends(*commands, **options)
        if any("-H" in command for command in commands):
            call.cancel()
        return output

    monkeypatch.setattr(shells.tmux, "run", run_and_cancel_after_sending)
    runner = ShellRunner(shells)
    command = f"sh -c 'echo $$ > {pid}; exec sleep 600'"
    call = asyncio.create_task(
        runner.run("one", command, timeout=timedelta(minutes=1), report=_ignore)
    )
    with suppress(asyncio.CancelledError):
        await call
    await asyncio.sleep(1)  # a command that was not interrupted has started by then
    async with asyncio.timeout(20):  # it would run for ten minutes
        while (await shells.find("one")).is_running():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.1)
    assert not pid.exists() or not alive(pid)


async def _ignore(_seconds, _line):
    pass
