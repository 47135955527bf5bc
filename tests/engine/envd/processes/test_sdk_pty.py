import asyncio
import hashlib
import re

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    SandboxException,
    SandboxNotRunningException,
    TimeoutException,
)

from tests.engine.output_collector import Heard
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

# Draws a frame along the edges with the size in the middle, again at every new size.
FULL_SCREEN = """
import curses

def draw(screen):
    rows, columns = screen.getmaxyx()
    screen.erase()
    screen.border()
    screen.addstr(rows // 2, columns // 2, f"<{rows}x{columns}>")
    screen.insch(rows - 1, columns - 1, "%")
    screen.refresh()

def main(screen):
    curses.curs_set(0)
    draw(screen)
    while (key := screen.getch()) != ord("q"):
        if key == curses.KEY_RESIZE:
            draw(screen)

curses.wrapper(main)
print("back again")
"""


@pytest.fixture
async def terminals(shared):
    """Open terminals that are gone after the test."""
    opened = []

    async def open_terminal(rows=24, cols=80, **options):
        heard = Heard()
        terminal = await shared.pty.create(PtySize(rows, cols), on_data=heard, timeout=0, **options)
        opened.append(terminal)
        return terminal, heard

    yield open_terminal
    for terminal in opened:
        await shared.pty.kill(terminal.pid)
        await terminal.disconnect()


async def test_terminal__is_a_login_shell_with_echo(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"echo $((6 * 7)) $(tty) $0; id -un; pwd\n")
    await heard.wait_for(b"42 /dev/pts/0 /bin/bash\r\nuser\r\n/home/user\r\n")
    assert b"echo $((6 * 7))" in heard.data
    await shared.pty.send_stdin(terminal.pid, b"shopt login_shell; echo $- $$\n")
    await heard.wait_for(b"login_shell    \ton\r\n")
    await heard.wait_for(b"%d\r\n" % terminal.pid)
    assert re.search(rb"\r\n\S*i\S*m\S* \d+\r\n", heard.data)
    listed = {one.pid: one for one in await shared.commands.list()}
    assert listed[terminal.pid].args == ["-i", "-l"]


async def test_terminal__has_user_directory_and_environment(shared, terminals):
    terminal, heard = await terminals(user="root", cwd="/usr/lib", envs={"WORD": "héllo"})
    await shared.pty.send_stdin(terminal.pid, b"echo $(id -un):$PWD:$WORD:$TERM:$LANG:$HOME\n")
    await heard.wait_for("root:/usr/lib:héllo:xterm-256color:C.UTF-8:/root\r\n".encode())


async def test_terminal__belongs_to_its_user(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(
        terminal.pid, b"stat -c %U $(tty); echo again > $(tty); tput cols\n"
    )
    await heard.wait_for(b"user\r\nagain\r\n80\r\n")


@pytest.mark.parametrize(("rows", "cols"), [(24, 80), (50, 200), (1, 1), (500, 1000), (0, 0)])
async def test_terminal__has_its_size_from_the_start(shared, terminals, rows, cols):
    terminal, _ = await terminals(rows, cols)
    await shared.pty.send_stdin(terminal.pid, b"stty size > size; touch sized\n")
    await until(lambda: shared.files.exists("sized"))
    assert await shared.files.read("size") == f"{rows} {cols}\n"
    await shared.files.remove("sized")


async def test_terminal__resize_redraws_full_screen_programs(shared, terminals):
    await shared.files.write("/tmp/full.py", FULL_SCREEN)
    terminal, heard = await terminals(30, 100)
    await shared.pty.send_stdin(terminal.pid, b"python3 /tmp/full.py\n")
    await heard.wait_for(b"<30x100>")
    await heard.wait_for(b"%")
    assert _drawn_size(heard.data) == (30, 100)
    for rows, cols in ((50, 200), (12, 40)):
        heard.data = b""
        await until(lambda: _waits_for_a_key(shared, "python3 /tmp/full.py"))
        await shared.pty.resize(terminal.pid, PtySize(rows, cols))
        await heard.wait_for(b"<%dx%d>" % (rows, cols))
        await heard.wait_for(b"%")
        assert _drawn_size(heard.data) == (rows, cols)
    await shared.pty.send_stdin(terminal.pid, b"q")
    await heard.wait_for(b"back again\r\n")


async def test_terminal__pager_fills_the_screen(shared, terminals):
    terminal, heard = await terminals(10, 40)
    await shared.pty.send_stdin(terminal.pid, b"seq -f 'line %g.' 1000 > lines; less lines\n")
    await heard.wait_for(b"line 9.\r\n")
    await heard.wait_for(b"lines\x1b[")
    assert b"line 10." not in heard.data
    await shared.pty.send_stdin(terminal.pid, b"G")
    await heard.wait_for(b"line 1000.\r\n")
    await heard.wait_for(b"(END)")
    assert b"line 991." not in heard.data
    await until(lambda: _waits_for_a_key(shared, "less lines"))  # or it misses the signal
    heard.data = b""
    await shared.pty.resize(terminal.pid, PtySize(20, 40))
    await heard.wait_for(b"(END)")
    await shared.pty.send_stdin(terminal.pid, b"g")
    await heard.wait_for(b"line 19.\r\n")
    assert b"line 20." not in heard.data
    await shared.pty.send_stdin(terminal.pid, b"qecho le''ft\n")
    await heard.wait_for(b"left\r\n")


async def test_terminal__control_c_interrupts_the_program(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"sleep 600.125\n")
    await until(lambda: _runs(shared, "sleep 600.125"))
    heard.data = b""
    await shared.pty.send_stdin(terminal.pid, b"\x03")
    await heard.wait_for(b"$ ")
    await shared.pty.send_stdin(terminal.pid, b"echo code $?\n")
    await heard.wait_for(b"code 130\r\n")


async def test_terminal__control_z_stops_a_job(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"sleep 600.25\n")
    await until(lambda: _runs(shared, "sleep 600.25"))
    await shared.pty.send_stdin(terminal.pid, b"\x1a")
    await heard.wait_for(b"Stopped")
    await shared.pty.send_stdin(terminal.pid, b"kill %1; fg; echo af''ter\n")
    await heard.wait_for(b"after\r\n")


async def test_terminal__control_d_ends_the_shell(shared, terminals):
    terminal, heard = await terminals()
    await heard.wait_for(b"$ ")
    await shared.pty.send_stdin(terminal.pid, b"\x04")
    assert (await terminal.wait()).exit_code == 0
    assert terminal.pid not in [one.pid for one in await shared.commands.list()]


async def test_terminal__exit_code_is_that_of_the_shell(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"echo last wor''ds; exit 7\n")
    with pytest.raises(CommandExitException) as caught:
        await terminal.wait()
    assert caught.value.exit_code == 7
    assert b"last words\r\n" in heard.data


async def test_terminal__kill_hangs_up(shared, terminals):
    terminal, _ = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"sleep 600.5\n")
    await until(lambda: _runs(shared, "sleep 600.5"))
    assert await shared.pty.kill(terminal.pid)
    async with asyncio.timeout(5):
        with pytest.raises(CommandExitException) as caught:
            await terminal.wait()
    assert (caught.value.exit_code, caught.value.error) == (-1, "signal: killed")
    assert not await shared.pty.kill(terminal.pid)
    await until(lambda: _runs_not(shared, "sleep 600.5"))


async def test_terminal__two_viewers_see_the_same(shared, terminals):
    terminal, first = await terminals()
    second = Heard()
    viewer = await shared.pty.connect(terminal.pid, on_data=second, timeout=0)
    await shared.pty.send_stdin(terminal.pid, b"echo fo''r both\n")
    await first.wait_for(b"for both\r\n")
    await second.wait_for(b"for both\r\n")
    await terminal.disconnect()
    await shared.pty.send_stdin(viewer.pid, b"echo fo''r one; exit 3\n")
    with pytest.raises(CommandExitException):
        await viewer.wait()
    assert b"for one\r\n" in second.data
    assert b"for one" not in first.data


async def test_terminal__continues_without_viewers(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"word=kept; cd /usr; echo re''ady\n")
    await heard.wait_for(b"ready\r\n")
    await terminal.disconnect()
    await shared.pty.send_stdin(terminal.pid, b"echo unseen; touch /tmp/unseen\n")
    await until(lambda: shared.files.exists("/tmp/unseen"))
    later = Heard()
    again = await shared.pty.connect(terminal.pid, on_data=later, timeout=0)
    await shared.pty.send_stdin(terminal.pid, b"echo $word in $PWD\n")
    await later.wait_for(b"kept in /usr\r\n")
    await again.disconnect()


async def test_terminal__long_paste_arrives_complete(shared, terminals):
    text = "".join(f"pasted line number {number}\n" for number in range(20_000))
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"PS1=; cat > pasted; sha256sum < pasted\n")
    await until(lambda: shared.files.exists("pasted"))
    for start in range(0, len(text), 100_000):
        await shared.pty.send_stdin(terminal.pid, text[start : start + 100_000].encode())
    await shared.pty.send_stdin(terminal.pid, b"\x04")
    await heard.wait_for(hashlib.sha256(text.encode()).hexdigest().encode())
    await heard.wait_for(b"pasted line number 19999\r\n")


async def test_terminal__streamed_keys_keep_their_order(shared, terminals):
    terminal, heard = await terminals()
    keys = shared.pty.stream_input(terminal.pid)
    for key in "echo one two three | tr ' ' '-'\n":
        await keys.send(key)
    await keys.close()
    await heard.wait_for(b"one-two-three\r\n")


async def test_terminal__megabytes_of_output_arrive_complete(shared, terminals):
    terminal, heard = await terminals()
    await shared.pty.send_stdin(terminal.pid, b"seq 300000; exit\n")
    await terminal.wait()
    numbers = b"".join(b"%d\r\n" % number for number in range(1, 300_001))
    assert numbers in heard.data


async def test_terminal__raw_mode_passes_every_byte(shared, terminals):
    terminal, heard = await terminals()
    everything = bytes(range(256))
    script = (
        b"stty raw -echo; echo re''ady; head -c 256 | od -An -v -tx1 -w256; cat /tmp/every; exit\n"
    )
    await shared.files.write("/tmp/every", everything)
    await shared.pty.send_stdin(terminal.pid, script)
    await heard.wait_for(b"ready\n")
    await shared.pty.send_stdin(terminal.pid, everything)
    await terminal.wait()
    assert everything.hex(" ").encode() in heard.data
    assert everything in heard.data


async def test_terminal__is_killed_at_its_timeout(shared):
    terminal = await shared.pty.create(PtySize(24, 80), on_data=Heard(), timeout=0.5)
    with pytest.raises(TimeoutException):
        await terminal.wait()
    await until(lambda: _is_not_listed(shared, terminal.pid))


async def test_terminal__viewer_learns_that_the_sandbox_was_killed(options):
    sandbox = await AsyncSandbox.create(timeout=60, **options)
    terminal = await sandbox.pty.create(PtySize(24, 80), on_data=Heard(), timeout=0)
    await sandbox.kill()
    async with asyncio.timeout(5):
        with pytest.raises(SandboxNotRunningException):
            await terminal.wait()


async def test_terminal__operations_of_commands_and_terminals_are_separate(shared, terminals):
    terminal, _ = await terminals()
    command = await shared.commands.run("sleep 600", background=True, stdin=True)
    with pytest.raises(SandboxException, match="tty assigned to process"):
        await shared.commands.send_stdin(terminal.pid, "x")
    with pytest.raises(SandboxException, match="Ctrl\\+D"):
        await shared.commands.close_stdin(terminal.pid)
    with pytest.raises(SandboxException, match="tty not assigned"):
        await shared.pty.send_stdin(command.pid, b"x")
    with pytest.raises(SandboxException, match="tty not assigned"):
        await shared.pty.resize(command.pid, PtySize(10, 10))
    await command.kill()


async def test_terminal__failed_start_is_an_error(shared):
    with pytest.raises(AuthenticationException, match="invalid username"):
        await shared.pty.create(PtySize(24, 80), on_data=Heard(), user="nobody-we-know")
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        await shared.pty.create(PtySize(24, 80), on_data=Heard(), cwd="/no/such/place")
    with pytest.raises(InvalidArgumentException, match="not a directory"):
        await shared.pty.create(PtySize(24, 80), on_data=Heard(), cwd="/etc/passwd")
    for pid in (1, 99_999):
        with pytest.raises(NotFoundException):
            await shared.pty.resize(pid, PtySize(10, 10))
        with pytest.raises(NotFoundException):
            await shared.pty.connect(pid, on_data=Heard())


def test_terminal__sync_sdk_works_too(shared_sync):
    terminal = shared_sync.pty.create(PtySize(33, 111))
    shared_sync.pty.send_stdin(terminal.pid, b"stty size; exit 4\n")
    seen = bytearray()
    with pytest.raises(CommandExitException) as caught:
        terminal.wait(on_pty=seen.extend)
    assert caught.value.exit_code == 4
    assert b"33 111\r\n" in seen


def _drawn_size(data):
    """Tell the size of a frame from the last row addressed and the longest line drawn."""
    rows = re.findall(rb"\x1b\[(\d+)(?:;\d+H|d)", data)
    lines = re.findall(rb"q+", data)
    return max(map(int, rows)), max(map(len, lines)) + len("++")


async def _runs(sandbox, command):
    seen = await sandbox.commands.run("ps -eo args", user="root")
    return command in seen.stdout.splitlines()


async def _waits_for_a_key(sandbox, command):
    """Tell whether the program in the foreground sleeps, with any niceness: what it drew has been heard already."""
    seen = await sandbox.commands.run("ps -eo stat,args")
    lines = (" ".join(line.split()) for line in seen.stdout.splitlines())
    return any(re.fullmatch(rf"S[N<]?\+ {re.escape(command)}", line) for line in lines)


async def _runs_not(sandbox, command):
    return not await _runs(sandbox, command)


async def _is_not_listed(sandbox, pid):
    return pid not in [one.pid for one in await sandbox.commands.list()]
