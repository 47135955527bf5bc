import io

import httpx
import pytest
from PIL import Image

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

SHOW_ALL = "pgrep -x xfce4-session && pgrep -x xfwm4 && pgrep -x xfdesktop && pgrep -x xfce4-panel"
START = "Xvfb :0 -ac -screen 0 {size}x24 -retro -dpi {dpi} -nolisten tcp -nolisten unix"


@pytest.fixture(scope="module")
def computer(with_desktop, computer_of):
    with computer_of(with_desktop) as computer:
        computer.settle()
        yield computer


@pytest.fixture
def ask(computer):
    """Ask the desktop service from outside, as the server does."""
    headers = {"Host": computer.host(49990), "Authorization": f"Bearer {computer.token}"}
    with httpx.Client(
        base_url=computer.options["sandbox_url"], headers=headers, timeout=60
    ) as client:
        yield client.request


def run(computer, script):
    return computer.run(script, DISPLAY=":0")


def test_desktop__runs_before_anybody_asks_for_it(computer, ask, pictures):
    run(computer, SHOW_ALL)
    assert computer.get(49990, "/health").json() == {"ready": True}
    state = ask("GET", "/state").json()
    assert (state["resolution"], state["control"]) == ({"width": 1024, "height": 768}, "agent")
    image = Image.open(io.BytesIO(ask("GET", "/screenshot").content))
    image.save(pictures / "desktop.png")
    colours = image.convert("RGB").getcolors(1 << 20)
    assert colours is not None
    assert len(colours) > 50  # a panel with icons and text


def test_desktop__programs_take_what_is_typed(computer, ask):
    run(computer, "setsid xfce4-terminal --working-directory=/tmp >/dev/null 2>&1 &")
    run(
        computer,
        "timeout 60 xdotool search --sync --onlyvisible --class xfce4-terminal windowactivate",
    )
    computer.wait("DISPLAY=:0 xdotool getwindowfocus getwindowname | grep -q Terminal")
    typed = {"action": "type", "text": "echo 'Grüße €5' >typed.txt\n", "screenshot": True}
    assert ask("POST", "/actions", json=typed).status_code == 200
    computer.wait("[ -s /tmp/typed.txt ]")
    assert computer.run("cat /tmp/typed.txt") == "Grüße €5\n"


def test_desktop__the_sdk_resizes_the_display_that_runs(computer, ask):
    run(computer, START.format(size="1280x720", dpi=120))
    assert run(computer, "xrandr | grep -Eo '[0-9]+x[0-9]+' | head -n 1") == "1280x720\n"
    assert run(computer, "xdotool getmouselocation").startswith("x:640 y:360 ")
    assert ask("GET", "/state").json()["dpi"] == 120
    refused = run(computer, f"{START.format(size='16384x16384', dpi=96)} 2>&1 && exit 1; true")
    assert refused == "The width is 16384 pixels; it must be 64 to 8192 pixels.\n"
    run(computer, START.format(size="1024x768", dpi=96))
    # Another display is another X server's.
    run(computer, "setsid Xvfb :7 -screen 0 320x200x24 >/dev/null 2>&1 &")
    computer.wait("DISPLAY=:7 xdpyinfo | grep -q 320x200")


def test_desktop__moving_the_pointer_to_where_it_is_does_not_wait(computer):
    move = "timeout 10 xdotool mousemove --sync 100 200"
    run(computer, f"{move} && {move} && {move} click --repeat 2 1")
    assert run(computer, "xdotool getmouselocation").startswith("x:100 y:200 ")


def test_desktop__streams_as_the_sdk_starts_it(computer):
    run(computer, "mkdir -p ~/.vnc && x11vnc -storepasswd secret12 ~/.vnc/passwd 2>/dev/null")
    run(
        computer,
        "x11vnc -bg -display :0 -forever -wait 50 -shared -rfbport 5900 -usepw 2>/tmp/x.log",
    )
    run(computer, "pgrep -x x11vnc")
    proxy = "./novnc_proxy --vnc localhost:5900 --listen 6080 --web /opt/noVNC >/tmp/novnc.log 2>&1"
    run(computer, f"(cd /opt/noVNC/utils && exec setsid {proxy}) >/dev/null 2>&1 &")
    computer.wait("netstat -tuln | grep -q ':6080 '")
    assert "noVNC" in computer.get(6080, "/vnc.html").text
    assert computer.get(6080, "/core/rfb.js").status_code == 200
    assert computer.get(6080, "/..%2f..%2fetc/passwd").status_code == 404
    run(computer, "pkill x11vnc; pkill -f serve-novnc")
    computer.wait("! netstat -tuln | grep -q -e ':5900 ' -e ':6080 '")


def test_desktop__records(computer, ask):
    assert ask("POST", "/recordings", json={}).status_code == 201
    ask("POST", "/actions", json={"action": "wait", "duration_s": 2})
    recording = ask("DELETE", "/recordings/current").json()
    assert recording["duration_s"] > 1.5
    frame = ask("GET", f"/recordings/{recording['id']}/frames", params={"at_s": 1})
    assert Image.open(io.BytesIO(frame.content)).size == (1024, 768)


@pytest.mark.parametrize("program", ["Xvnc", "xfce4-session", "sandbox-tools serve-desktop"])
def test_desktop__is_there_again_after_a_crash(computer, program):
    killed = computer.run(f"pgrep -n -f '{program}'").strip()
    computer.run(f"kill -KILL {killed}")
    computer.wait(f"! kill -0 {killed} 2>/dev/null && /opt/sandbox/start-services.sh --check")
    computer.wait(SHOW_ALL)


def test_desktop__is_there_after_a_pause_without_memory(with_desktop, computer_of):
    with computer_of(with_desktop) as computer:
        computer.settle()
        computer.sandbox.pause(mode="filesystem")
        computer.sandbox.connect()
        computer.run("/opt/sandbox/start-services.sh --check")
        computer.run(SHOW_ALL)


def test_desktop__opens_pages_in_chromium(computer):
    computer.run("echo '<title>Opened here</title>' >/tmp/page.html")
    run(computer, "cd / && setsid gtk-launch google-chrome file:///tmp/page.html >/dev/null 2>&1 &")
    run(computer, "timeout 60 xdotool search --sync --onlyvisible --name 'Opened here'")


def test_desktop_office__converts_documents(with_office, computer_of):
    with computer_of(with_office) as computer:
        computer.run("cd /tmp && echo 'a,b' >t.csv && soffice --headless --convert-to pdf t.csv")
        assert computer.run("head -c 5 /tmp/t.pdf") == "%PDF-"
