import asyncio
import struct

import pytest
from PIL import ImageChops
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.tools.desktop.event_window import opened_event_window
from tests.tools.desktop.rfb_viewer import RfbViewer


@pytest.fixture(autouse=True)
async def _control_returned(desktop):
    yield
    await give(desktop, "agent")


async def give(desktop, holder):
    answer = await desktop.client.put("/control", json={"holder": holder})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def viewers(desktop):
    return (await desktop.client.get("/state")).json()["viewers"]


async def wait_for_viewers(desktop, count):
    async with asyncio.timeout(30):
        while await viewers(desktop) != count:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.02)


async def test_a_viewer_sees_the_display_and_is_counted(desktop):
    async with desktop.viewer("view", subprotocols=["binary"]) as socket:
        assert socket.subprotocol == "binary"
        viewer = RfbViewer(socket)
        await viewer.shake_hands(shared=False)
        assert viewer.size == (1024, 768)
        assert await viewer.update() > 0
        assert await viewers(desktop) == 1
    await wait_for_viewers(desktop, 0)


async def test_a_viewer_without_the_token_is_refused(desktop):
    desktop.token = "wrong"
    with pytest.raises(InvalidStatus):
        async with desktop.viewer("view"):
            pass


@pytest.mark.parametrize(
    ("mode", "holder", "arrives"),
    [("control", "person", True), ("control", "agent", False), ("view", "person", False)],
)
async def test_input_of_viewers_arrives_only_from_a_person_in_control(
    desktop, mode, holder, arrives
):
    await desktop.act("mouse_move", coordinate=[500, 500])
    await give(desktop, holder)
    async with opened_event_window(desktop.display) as window, desktop.viewer(mode) as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        await viewer.pointer(10, 20)
        await viewer.key(ord("x"), is_down=True)
        await viewer.key(ord("x"), is_down=False)
        await viewer.update()  # answered after the input was processed
        if arrives:
            await window.read_until(lambda printed: "-x" in window.events())
        assert await desktop.cursor() == ((10, 20) if arrives else (500, 500))
        if not arrives:
            await desktop.ask_x("xdotool", "key", "y")
            await window.read_until(lambda printed: "-y" in window.events())
            assert "+x" not in window.events()


async def test_the_agent_is_refused_while_a_person_has_control(desktop):
    assert (await give(desktop, "person"))["control"] == "person"
    place = await desktop.cursor()
    for action in ({"action": "left_click", "coordinate": [5, 5]}, {"action": "key", "text": "a"}):
        answer = await desktop.client.post("/actions", json=action)
        assert answer.status_code == 409
        assert "A person has control" in answer.json()["detail"]
    assert await desktop.cursor() == place
    assert (await desktop.act("screenshot"))["screenshot"]
    assert (await give(desktop, "agent"))["control"] == "agent"
    await desktop.act("left_click", coordinate=[5, 5])


async def test_taking_control_ends_an_action_in_mid_text_and_releases_its_keys(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("mouse_move", coordinate=[100, 100])
        hold = {"action": "hold_key", "text": "ctrl+a", "duration_s": 60}
        held = asyncio.create_task(desktop.client.post("/actions", json=hold))
        await window.read_until(lambda printed: "+a" in window.events())
        await give(desktop, "person")
        assert (await held).status_code == 409
        await window.read_until(lambda printed: "-Control_L" in window.events())
    events = window.events()
    assert events.index("-a") > events.index("+a")


async def test_returning_control_releases_what_the_person_held(desktop):
    await desktop.act("mouse_move", coordinate=[500, 500])
    await give(desktop, "person")
    async with opened_event_window(desktop.display) as window, desktop.viewer("control") as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        await viewer.key(0xFFE1, is_down=True)
        await viewer.pointer(50, 60, buttons=1)
        await window.read_until(lambda printed: "+1" in window.events())
        await give(desktop, "agent")
        await window.read_until(lambda printed: "-1" in window.events())
        assert window.events() == ["+Shift_L", "+1", "-Shift_L", "-1"]


async def test_a_viewer_that_reads_nothing_is_disconnected_and_others_are_not(desktop):
    async with desktop.viewer("view") as stalled, desktop.viewer("view") as other:
        quiet, viewer = RfbViewer(stalled), RfbViewer(other)
        await quiet.shake_hands()
        await viewer.shake_hands()
        stalled.transport.pause_reading()
        async with asyncio.timeout(60):
            # Raw pictures of 3 MB each, until the buffers between us are full.
            while await viewers(desktop) == 2:
                await quiet.request()
                await desktop.act("mouse_move", coordinate=[1, 1])
                await desktop.act("mouse_move", coordinate=[900, 700])
        assert await viewer.update() > 0
        assert (await desktop.act("screenshot"))["screenshot"]


async def test_a_watcher_sees_what_the_person_does_and_does_not_disturb(desktop):
    await desktop.act("mouse_move", coordinate=[500, 500])
    await give(desktop, "person")
    async with desktop.viewer("control") as hand, desktop.viewer("view") as eye:
        person, watcher = RfbViewer(hand), RfbViewer(eye)
        await person.shake_hands()
        await watcher.shake_hands()
        before = await watcher.picture()
        await person.pointer(200, 100)
        await person.update()
        for _ in range(50):
            await watcher.pointer(900, 700, buttons=1)
        after = await watcher.picture()
        assert await desktop.cursor() == (200, 100)
    changed = ImageChops.difference(before, after).getbbox()
    assert changed is not None
    assert changed[:2] <= (200, 100)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"\x63" * 10, "unknown type 99"),
        (struct.pack(">BxxxI", 6, 1 << 30), "a clipboard of 1073741824 bytes"),
        (b"\xff\1" + bytes(10), "QEMU"),
    ],
)
async def test_a_viewer_that_breaks_the_protocol_is_disconnected_with_a_reason(
    desktop, sent, reason
):
    async with desktop.viewer("control") as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        await socket.send(sent)
        with pytest.raises(ConnectionClosed) as closed:
            await viewer.read(1 << 20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert reason in closed.value.rcvd.reason
    await wait_for_viewers(desktop, 0)


async def test_messages_may_arrive_in_pieces(desktop):
    await give(desktop, "person")
    async with desktop.viewer("control") as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        fence = struct.pack(">BxxxIB", 248, 0, 3) + b"abc"
        encodings = struct.pack(">BxHiii", 2, 3, 0, -312, -313)
        pointer = struct.pack(">BBHH", 5, 0, 33, 44)
        for byte in encodings + fence + pointer:
            await socket.send(bytes([byte]))
        await viewer.request()
        async with asyncio.timeout(30):
            while await desktop.cursor() != (33, 44):
                await viewer.socket.recv()


async def test_a_viewer_does_not_resize_the_display(desktop):
    await give(desktop, "person")
    async with desktop.viewer("control") as socket:
        viewer = RfbViewer(socket)
        await viewer.shake_hands()
        screen = struct.pack(">IHHHHI", 0, 0, 0, 16384, 16384, 0)
        await socket.send(struct.pack(">BxHHBx", 251, 16384, 16384, 1) + screen)
        await viewer.update()
    state = (await desktop.client.get("/state")).json()
    assert state["resolution"] == {"width": 1024, "height": 768}
