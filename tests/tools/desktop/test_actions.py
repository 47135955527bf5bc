import asyncio
import base64
import io
import random
from typing import Any

import pytest
from PIL import Image, ImageChops

from tests.tools.desktop.event_window import opened_event_window


def image_of(answer: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(answer["screenshot"])))


async def test_the_pointer_is_where_each_of_many_moves_put_it(desktop):
    places = [(random.randrange(1024), random.randrange(768)) for _ in range(20)]
    for place in [(0, 0), *places, places[-1], (0, 5), (1023, 767)]:
        answer = await desktop.act("mouse_move", coordinate=place)
        assert tuple(answer["cursor"]) == place
        assert await desktop.cursor() == place


async def test_the_pointer_is_where_each_of_200_clicks_was(desktop):
    chosen = random.Random(200)
    places = [(chosen.randrange(1024), chosen.randrange(768)) for _ in range(170)]
    places += chosen.choices(places, k=10) + [(0, 0), (0, 0), (0, 300), (300, 0)] * 4
    for n, place in enumerate([*places, *[places[-1]] * 4]):
        clicked = await desktop.act(("left_click", "mouse_move")[n % 2], coordinate=place)
        assert tuple(clicked["cursor"]) == place
        if n % 20 == 0:
            told = await desktop.act("cursor_position")
            assert tuple(told["cursor"]) == await desktop.cursor() == place


async def test_clicks_press_the_named_button_as_often_as_they_say(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("left_click", coordinate=[100, 50])
        await desktop.act("right_click")
        await desktop.act("middle_click")
        await desktop.act("triple_click", coordinate=[100, 50])
        await desktop.act("scroll", scroll_direction="down", scroll_amount=2)
        await desktop.act("left_click", text="ctrl+shift")
        await window.read_until(lambda printed: "-Control_L" in window.events())
        events = window.events()
    pairs = ["+1", "-1", "+3", "-3", "+2", "-2", *["+1", "-1"] * 3, *["+5", "-5"] * 2]
    chord = ["+Control_L", "+Shift_L", "+1", "-1", "-Shift_L", "-Control_L"]
    assert events == [*pairs, *chord]


async def test_a_drag_holds_the_button_from_start_to_end(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("left_click_drag", start_coordinate=[10, 20], coordinate=[300, 200])
        await window.read_until(lambda printed: "-1" in window.events())
    assert window.events() == ["+1", "-1"]
    assert "root:(10,20)" in window.printed.split("ButtonRelease")[0]
    assert "root:(300,200)" in window.printed.split("ButtonRelease")[1]


async def test_a_held_button_survives_moves_until_it_is_released(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("left_mouse_down", coordinate=[10, 20])
        await desktop.act("mouse_move", coordinate=[50, 60])
        await desktop.act("left_mouse_up")
        await window.read_until(lambda printed: "-1" in window.events())
    assert window.events() == ["+1", "-1"]
    assert "root:(50,60)" in window.printed.split("ButtonRelease")[1]


async def test_text_of_every_script_is_typed_as_it_is(desktop):
    text = "Hello, World! 'quoted' #1\tÄöü €5 привет 日本語 🙂~`{}|"
    async with opened_event_window(desktop.display) as window:
        await desktop.act("mouse_move", coordinate=[100, 100])
        await desktop.act("type", text=text)
        await window.read_until(lambda printed: window.text.endswith("|"))
    assert window.text == text


async def test_keys_have_the_names_that_models_use(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("mouse_move", coordinate=[100, 100])
        for keys in (
            "ctrl+s",
            "Return",
            "ENTER",
            "ArrowLeft",
            "Page_Down",
            "F5",
            "alt+Tab",
            "ctrl++",
        ):
            await desktop.act("key", text=keys)
        await window.read_until(lambda printed: window.events().count("-Control_L") == 2)
    pressed = [event[1:] for event in window.events() if event.startswith("+")]
    assert pressed[:8] == ["Control_L", "s", "Return", "Return", "Left", "Next", "F5", "Alt_L"]
    assert pressed[8:] in (["Tab", "Control_L", "plus"], ["Tab", "Control_L", "Shift_L", "plus"])


async def test_an_action_can_return_a_screenshot_of_what_it_led_to(desktop):
    before = image_of(await desktop.act("screenshot"))
    async with opened_event_window(desktop.display):
        after = image_of(await desktop.act("mouse_move", coordinate=[500, 500], screenshot=True))
    assert before.size == after.size == (1024, 768)
    assert ImageChops.difference(before.convert("RGB"), after.convert("RGB")).getbbox()


async def test_the_pointer_is_in_the_picture(desktop):
    await desktop.act("mouse_move", coordinate=[200, 200])
    here = image_of(await desktop.act("screenshot")).convert("RGB")
    await desktop.act("mouse_move", coordinate=[800, 600])
    there = image_of(await desktop.act("screenshot")).convert("RGB")
    box = (180, 180, 220, 220)
    assert ImageChops.difference(here.crop(box), there.crop(box)).getbbox()


async def test_zoom_enlarges_a_region_to_the_size_of_the_display(desktop):
    answer = await desktop.act("zoom", region=[100, 100, 612, 484])
    assert image_of(answer).size == (1024, 768)
    assert image_of(await desktop.act("zoom", region=[0, 0, 100, 10])).size == (1024, 102)


async def test_screenshots_are_png_or_jpeg(desktop):
    png = await desktop.client.get("/screenshot")
    jpeg = await desktop.client.get("/screenshot", params={"format": "jpeg", "quality": 40})
    assert (png.headers["content-type"], jpeg.headers["content-type"]) == (
        "image/png",
        "image/jpeg",
    )
    assert Image.open(io.BytesIO(jpeg.content)).size == Image.open(io.BytesIO(png.content)).size
    for wrong in ({"format": "gif"}, {"quality": "0"}, {"quality": "x"}, {"quality": "101"}):
        assert (await desktop.client.get("/screenshot", params=wrong)).status_code == 422


@pytest.mark.parametrize(
    ("request_body", "detail"),
    [
        ({"action": "jump"}, "action: Input should be"),
        ({"action": "mouse_move"}, "The action mouse_move requires coordinate."),
        ({"action": "type"}, "The action type requires text."),
        ({"action": "key", "text": "hyperdrive"}, "There is no key named 'hyperdrive'."),
        ({"action": "type", "text": "\x1b[A"}, "There is no key named '\\x1b'."),
        ({"action": "type", "text": "x" * 10_001}, "text: String should have at most 10000"),
        (
            {"action": "left_click", "coordinate": [1024, 5]},
            "outside of the display of 1024 by 768",
        ),
        ({"action": "left_click", "coordinate": [-1, 5]}, "outside of the display of 1024 by 768"),
        ({"action": "zoom", "region": [10, 10, 10, 20]}, "is empty or outside of the display"),
        ({"action": "wait", "duration_s": 61}, "duration_s: Input should be less than"),
        ({"action": "left_click", "hand": "left"}, "hand: Extra inputs are not permitted."),
        ([], "request: Input should be"),
    ],
)
async def test_wrong_actions_are_refused_with_a_sentence(desktop, request_body, detail):
    answer = await desktop.client.post("/actions", json=request_body)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]


async def test_actions_at_once_do_not_mix_their_keys(desktop):
    async with opened_event_window(desktop.display) as window:
        await desktop.act("mouse_move", coordinate=[100, 100])
        await asyncio.gather(*(desktop.act("type", text=letter * 10) for letter in "abc"))
        await window.read_until(lambda printed: len(window.text) == 30)
    assert sorted([window.text[:10], window.text[10:20], window.text[20:]]) == [
        letter * 10 for letter in "abc"
    ]
