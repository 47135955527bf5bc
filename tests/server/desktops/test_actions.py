"""State, settings and actions of a desktop, through a server to the desktop service of a test in a sandbox."""

import base64

import pytest

from tests.engine.polling import until

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

PNG = b"\x89PNG"


def path(sandbox_id, rest=""):
    return f"/v1/sandboxes/{sandbox_id}/desktop{rest}"


async def act(api, sandbox_id, **action):
    return await api.post(path(sandbox_id, "/actions"), json=action)


async def test_desktop__an_action_returns_the_cursor_and_a_screenshot_in_one_request(
    api, sandbox_id, events_of
):
    clicked = await act(api, sandbox_id, action="left_click", coordinate=[10, 20], screenshot=True)
    assert clicked.status_code == 200, clicked.text
    result = clicked.json()
    assert (result["cursor"], result["width"], result["height"]) == ([10, 20], 1024, 768)
    assert base64.b64decode(result["screenshot"]).startswith(PNG)
    typed = await act(api, sandbox_id, action="type", text="a secret")
    assert typed.json()["screenshot"] is None
    await act(api, sandbox_id, action="cursor_position")
    told = [(each["type"], each["data"]) for each in await events_of(sandbox_id)]
    assert [(kind, data["action"]) for kind, data in told] == [
        ("desktop.action", "left_click"),
        ("desktop.action", "type"),
    ]
    assert told[0][1]["coordinate"] == [10, 20]
    assert told[1][1]["characters"] == len("a secret")
    assert "a secret" not in str(told)


async def test_desktop__screenshots_are_images(api, sandbox_id):
    answer = await api.get(path(sandbox_id, "/screenshot"), params={"format": "png"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    assert answer.content.startswith(PNG)


async def test_desktop__settings_of_the_create_request_are_applied_and_again_after_a_resume(
    api, make_sandbox, desktop_log
):
    sandbox_id = await make_sandbox(
        template="base",
        desktop={"resolution": {"width": 800, "height": 600}, "dpi": 120, "recording": {"fps": 7}},
    )
    state = (await api.get(path(sandbox_id))).json()
    assert state["resolution"] == {"width": 800, "height": 600}
    assert (state["dpi"], state["recording"]["fps"]) == (120, 7)

    async def displays():
        return [each for each in await desktop_log(sandbox_id) if "/display" in str(each)]

    assert len(await displays()) == 1
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/pause")).status_code == 200
    paused = (await api.get(path(sandbox_id))).json()
    assert (paused["resolution"]["width"], paused["viewers"]) == (800, None)
    changed = await api.patch(
        path(sandbox_id), json={"resolution": {"width": 1280, "height": 720}, "recording": None}
    )
    assert changed.json()["resolution"] == {"width": 1280, "height": 720}
    assert (await api.post(f"/v1/sandboxes/{sandbox_id}/resume")).status_code == 200

    async def is_resized():
        sizes = [each["body"]["width"] for each in await displays()]
        return sizes == [800, 1280]

    await until(is_resized)  # by the job, without a request for the desktop
    state = (await api.get(path(sandbox_id))).json()
    assert state["recording"] is None


async def test_desktop__settings_change_while_it_runs(api, sandbox_id, events_of):
    changed = await api.patch(
        path(sandbox_id), json={"resolution": {"width": 64, "height": 8192}, "stream": False}
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["resolution"] == {"width": 64, "height": 8192}
    assert changed.json()["stream"] is False
    [event] = await events_of(sandbox_id)
    assert (event["type"], event["actor"]["kind"]) == ("desktop.changed", "key")


@pytest.mark.parametrize("size", [(1, 1), (16384, 16384), (63, 600), (800, 8193)])
async def test_desktop__sizes_out_of_bounds_are_refused_with_their_limits(api, sandbox_id, size):
    resolution = dict(zip(("width", "height"), size, strict=True))
    for answer in (
        await api.patch(path(sandbox_id), json={"resolution": resolution}),
        await api.post("/v1/sandboxes", json={"desktop": {"resolution": resolution}}),
    ):
        assert answer.status_code == 422, answer.text
        assert "than or equal to" in answer.json()["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("action", "part"),
    [
        ({"action": "type"}, "needs `text`"),
        ({"action": "mouse_move"}, "needs `coordinate`"),
        ({"action": "zoom", "region": [9, 9, 1, 1]}, "x0 < x1"),
        ({"action": "fly"}, "Input should be"),
        ({"action": "left_click", "coordinate": [-1, 2]}, "greater than or equal to 0"),
    ],
)
async def test_desktop__invalid_actions_are_refused(api, sandbox_id, action, part):
    answer = await act(api, sandbox_id, **action)
    assert answer.status_code == 422
    assert part in str(answer.json()["errors"])


async def test_desktop__a_refusal_of_the_desktop_is_passed_on_in_its_words(api, sandbox_id):
    answer = await act(api, sandbox_id, action="left_click", coordinate=[5000, 5])
    assert (answer.status_code, answer.json()["code"]) == (422, "desktop-refused")
    assert "outside the screen" in answer.json()["detail"]


async def test_desktop__a_sandbox_without_a_desktop_says_so(api, make_sandbox):
    sandbox_id = await make_sandbox(with_desktop=False)
    for answer in (
        await act(api, sandbox_id, action="screenshot"),
        await api.get(path(sandbox_id)),
        await api.post(path(sandbox_id, "/control"), json={"holder": "person"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "desktop-not-running")
        assert "template" in answer.json()["remediation"]


async def test_desktop__actions_are_refused_while_a_person_has_control(api, sandbox_id, events_of):
    taken = await api.post(path(sandbox_id, "/control"), json={"holder": "person", "ttl_s": 60})
    assert taken.json()["control"]["holder"] == "person", taken.text
    refused = await act(api, sandbox_id, action="left_click", coordinate=[1, 1])
    assert (refused.status_code, refused.json()["code"]) == (409, "desktop-controlled")
    assert (await api.get(path(sandbox_id, "/screenshot"))).status_code == 200
    returned = await api.post(path(sandbox_id, "/control"), json={"holder": "agent"})
    assert returned.json()["control"]["holder"] == "agent"
    assert (await act(api, sandbox_id, action="left_click", coordinate=[1, 1])).status_code == 200
    kinds = [each["type"] for each in await events_of(sandbox_id)]
    assert kinds == ["desktop.control_taken", "desktop.control_returned", "desktop.action"]


async def test_desktop__the_control_of_a_person_ends_by_itself(
    api, sandbox_id, events_of, desktop_log
):
    taken = await api.post(path(sandbox_id, "/control"), json={"holder": "person", "ttl_s": 1})
    assert taken.status_code == 200

    async def is_returned():
        events = await events_of(sandbox_id)
        return [each["cause"] for each in events] == ["request", "expiry"]

    await until(is_returned)  # by the job, without a request for the desktop

    async def is_applied():
        told = [each for each in await desktop_log(sandbox_id) if "/control" in str(each)]
        return [each["body"]["holder"] for each in told] == ["person", "agent"]

    await until(is_applied)


async def test_desktop__other_tenants_do_not_find_it(api, outside, sandbox_id):
    assert (await api.put("/v1/tenants/other", json={})).is_success
    _, key = await outside.new_key(tenant="other")
    for call in (
        api.get(path(sandbox_id), headers={"X-API-Key": key}),
        api.post(
            path(sandbox_id, "/actions"), json={"action": "screenshot"}, headers={"X-API-Key": key}
        ),
        api.patch(path(sandbox_id), json={"dpi": 96}, headers={"X-API-Key": key}),
        api.post(
            path(sandbox_id, "/control"), json={"holder": "person"}, headers={"X-API-Key": key}
        ),
    ):
        answer = await call
        assert (answer.status_code, answer.json()["code"]) == (404, "sandbox-not-found")
