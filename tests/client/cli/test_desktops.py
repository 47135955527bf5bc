"""`sbx desktop`, with the desktop service of a test in a sandbox."""

import json

import pytest
import pytest_asyncio

from sandbox_client import AsyncSandboxClient
from sandbox_client.cli.desktops.actions import read_arguments
from tests.server.reference.example_calls import STAND_INS

pytestmark = pytest.mark.needs_engine

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
PORT = 49990
OPEN = f"until (echo >/dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done"


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def desk(server):
    """Make a sandbox with a desktop service."""
    async with (
        AsyncSandboxClient(server.url, server.admin_key) as client,
        await client.create_sandbox(template="base") as sandbox,
    ):
        await sandbox.files.write("desktop.py", (STAND_INS / "desktop.py").read_bytes())
        await sandbox.start(f"python3 desktop.py {PORT}")
        await sandbox.run(OPEN)
        yield sandbox.id


def ok(done):
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_desktop__settings_actions_and_screenshots(sbx, desk, tmp_path):
    shown = ok(sbx("desktop", "set", desk, "--resolution", "800x600", "--dpi", "120"))
    assert "800x600" in shown
    facts = dict(line.split(None, 1) for line in ok(sbx("desktop", "show", desk)).splitlines())
    assert facts == {
        "resolution": "800x600",
        "dpi": "120",
        "stream": "on",
        "recording": "none",
        "viewers": "0",
        "control": "agent",
    }
    assert ok(sbx("desktop", "action", desk, "click", "10", "20", "-o", "after.png")) == "10 20\n"
    assert (tmp_path / "after.png").read_bytes().startswith(PNG)
    assert ok(sbx("desktop", "action", desk, "cursor")) == "10 20\n"
    ok(sbx("desktop", "action", desk, "scroll", "down", "3", "--at", "5,6", "--hold", "shift"))
    ok(sbx("desktop", "action", desk, "type", "--", "-text-"))
    assert ok(sbx("desktop", "screenshot", desk)).startswith(PNG)
    outside = sbx("desktop", "action", desk, "move", "5000", "1")
    assert (outside.returncode, "outside the screen" in outside.stderr) == (1, True)


def test_desktop__links_and_control(sbx, desk):
    url = ok(sbx("desktop", "link", desk, "--control", "--ttl", "5m", "--name", "Ada")).strip()
    assert "/desktop/" in url
    [link] = ok(sbx("-q", "desktop", "links", desk)).split()
    assert "control  Ada" in ok(sbx("desktop", "links", desk))
    assert ok(sbx("desktop", "revoke", desk, link)) == f"{link}\n"
    assert ok(sbx("-q", "desktop", "links", desk)) == ""
    assert ok(sbx("desktop", "take", desk, "--ttl", "1m")).startswith("a person, until ")
    refused = sbx("--json", "desktop", "action", desk, "click", "1", "1")
    assert json.loads(refused.stderr)["code"] == "desktop-controlled"
    assert ok(sbx("desktop", "return", desk)) == "agent\n"
    ok(sbx("desktop", "action", desk, "click", "1", "1"))


def test_desktop__recordings(sbx, desk, tmp_path):
    missing = sbx("desktop", "record", "get", desk, "-o", "none.mp4")
    assert "has no recording" in missing.stderr
    started = ok(sbx("desktop", "record", "start", desk, "--fps", "7")).strip()
    assert f"{started}, 7 fps" in ok(sbx("desktop", "show", desk))
    assert ok(sbx("desktop", "record", "stop", desk)).strip() == started
    assert ok(sbx("-q", "desktop", "record", "list", desk)).split() == [started]
    assert "stopped" in ok(sbx("desktop", "record", "list", desk))
    ok(sbx("desktop", "record", "get", desk, "-o", "film.mp4"))
    film = (tmp_path / "film.mp4").read_bytes()
    assert sbx("desktop", "record", "get", desk, started).stdout == film
    assert sbx("desktop", "record", "get", desk, "--at", "1").stdout.startswith(JPEG)
    assert ok(sbx("desktop", "record", "rm", desk, started)).strip() == started


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (("left_click", "1", "2"), {"coordinate": (1, 2)}),
        (("double_click",), {}),
        (
            ("left_click_drag", "1", "2", "3", "4"),
            {"start_coordinate": (1, 2), "coordinate": (3, 4)},
        ),
        (("left_click_drag", "3", "4"), {"coordinate": (3, 4)}),
        (("scroll", "up"), {"scroll_direction": "up"}),
        (("key", "ctrl+s"), {"text": "ctrl+s"}),
        (("hold_key", "a", "1.5s"), {"text": "a", "duration_s": 1.5}),
        (("wait", "2"), {"duration_s": 2}),
        (("zoom", "0", "1", "2", "3"), {"region": (0, 1, 2, 3)}),
        (("cursor_position",), {}),
    ],
)
def test_action__arguments_are_those_of_the_action(words, options):
    name, *arguments = words
    assert read_arguments(name, arguments) == options


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("set", "desk"), "Nothing to set"),
        (("action", "desk", "drag", "1"), "drag [X Y] TO_X TO_Y"),
        (("action", "desk", "click", "1", "two"), "[X Y]"),
        (("set", "desk", "--resolution", "wide"), "WIDTHxHEIGHT"),
        (("record",), "RECORD_COMMAND"),
    ],
)
def test_desktop__usage_errors_exit_with_2(sbx, words, sentence):
    done = sbx("desktop", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
