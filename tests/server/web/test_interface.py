"""The web interface in a real browser."""

import asyncio
import subprocess

import pytest
import pytest_asyncio

from tests.server.web.interface_driver import ROOT, Interface
from tests.server.web.page_driver import PATIENCE_MS

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

UNAUTHORIZED = "401 (Unauthorized)"
AWAY = ("net::ERR_", "ERR_CONNECTION", "WebSocket connection to")
HOSTILE = "<img src=x onerror='window.attacked = true'><script>window.attacked = true</script>"


@pytest.fixture(scope="module", autouse=True)
def built():
    """Build the interface, unless it is current."""
    subprocess.run([ROOT / "scripts/web"], check=True)


@pytest_asyncio.fixture(loop_scope="module")
async def interface(tab, named_server):
    """Open a tab; at the end there may be only expected errors."""
    interface = Interface(tab, f"{named_server.url}/ui/")
    yield interface
    assert interface.complaints == []


async def test_interface_sign_in__lasts_until_sign_out_and_scripts_cannot_read_the_key(
    interface, named_server
):
    page = interface.page
    await page.goto(interface.url)
    await interface.enter("not a key")
    await page.get_by_role("alert").filter(has_text="invalid or was revoked").wait_for()
    await interface.enter(named_server.admin_key)
    await interface.until_live()
    kept = await page.evaluate("document.cookie + JSON.stringify(localStorage)")
    assert named_server.admin_key not in kept
    await page.reload()
    await interface.until_live()
    await interface.click("Sign out")
    await page.get_by_label("API key").wait_for()
    await interface.until_cookies_are_gone()
    interface.forget_complaints(UNAUTHORIZED)


async def test_interface__works_where_browsers_do_not_tell_the_origin_of_requests(
    interface, named_server
):
    """Without TLS, under a name other than localhost, neither `Origin` nor `Sec-Fetch-Site` comes with a read."""
    interface.url = f"{named_server.untrusted_url}/ui/"
    await interface.sign_in(named_server.admin_key)
    await interface.page.reload()
    await interface.until_live()
    interface.forget_complaints("Cross-Origin-Opener-Policy")  # which has no effect there


async def test_interface__loads_nothing_from_elsewhere(interface, named_server):
    asked = []
    interface.page.on("request", lambda request: asked.append(request.url))
    await interface.sign_in(named_server.admin_key)
    assert asked
    assert all(url.startswith(f"{named_server.url}/") for url in asked)


async def test_fleet__shows_changes_live_and_what_happens_next(
    interface, named_server, create, api
):
    await interface.sign_in(named_server.admin_key)
    first, second = await create(user_id="ada", session_id="one"), await create()
    await interface.until_row_says(first, "running", "ada · one", "base")
    third = await create(wait=0)
    await interface.until_row_says(third, "queued", "next in queue", "All 2 slots")
    await api.delete(f"/v1/sandboxes/{first}")
    await interface.until_row_says(third, "running")
    await interface.until_gone(first)
    await api.post(f"/v1/sandboxes/{second}/pause")
    await interface.until_row_says(second, "paused", "left", "unless resumed")


async def test_fleet__filters_are_in_the_address(interface, named_server, create):
    await interface.sign_in(named_server.admin_key)
    one, other = await create(user_id="ada"), await create(user_id="grace")
    await interface.until_row_says(other, "running")
    await interface.page.get_by_label("Filter").fill("user:ada")
    await interface.until_gone(other)
    await interface.page.reload()
    await interface.until_row_says(one, "ada")
    await interface.page.get_by_text("1 of 2 sandboxes").wait_for()
    assert await interface.page.get_by_label("Filter").input_value() == "user:ada"


async def test_fleet__sandboxes_are_created_paused_resumed_and_deleted_together(
    interface, named_server
):
    page = interface.page
    await interface.sign_in(named_server.admin_key)
    for name in ("left", "right"):
        await interface.click("New sandbox")
        await page.get_by_label("Name").fill(name)
        await interface.click("Create")
        row = page.get_by_role("row").filter(has_text=name)
        await row.filter(has_text="running").wait_for()
        await row.get_by_role("checkbox").check()
    await page.get_by_text("2 sandboxes selected").wait_for()
    for button, state in (("Pause", "paused"), ("Resume", "running")):
        await interface.click(button)
        await interface.until(
            "state => [...document.querySelectorAll('[data-id]')].every(row => row.textContent.includes(state))",
            state,
        )
    await interface.click("Delete")
    await interface.click("Cancel")
    await interface.click("Delete")
    await interface.click("Delete 2 sandboxes")
    await page.get_by_role("heading", name="No sandboxes").wait_for()


async def test_fleet__keys_move_select_and_open(interface, named_server, create):
    page = interface.page
    await interface.sign_in(named_server.admin_key)
    one, other = await create(), await create()
    await interface.until_row_says(other, "running")
    await interface.until_row_says(one, "running")
    for key in ("j", "j", "x"):
        await page.keyboard.press(key)
    await page.get_by_text("1 sandbox selected").wait_for()
    assert await page.get_by_label(f"Select {one}").is_checked()
    await page.keyboard.press("/")
    await page.keyboard.type("state:queued")
    await page.get_by_text("0 of 2 sandboxes").wait_for()


async def test_fleet__a_killed_server_is_shown_and_followed_again(interface, named_server, create):
    await interface.sign_in(named_server.admin_key)
    sandbox_id = await create()
    await interface.until_row_says(sandbox_id, "running")
    await asyncio.to_thread(named_server.process.kill)
    await interface.page.get_by_text("Reconnecting · data is").wait_for()
    await interface.until_row_says(sandbox_id, "running")
    await asyncio.to_thread(named_server.start)
    await interface.until_live()
    async with named_server.client() as api:
        await api.post(f"/v1/sandboxes/{sandbox_id}/pause")
    await interface.until_row_says(sandbox_id, "paused")
    interface.forget_complaints(*AWAY)


async def test_fleet__text_of_sandboxes_is_never_a_part_of_the_page(
    interface, named_server, create
):
    await interface.sign_in(named_server.admin_key)
    sandbox_id = await create(user_id=HOSTILE[:199], metadata={"name": HOSTILE})
    await interface.until_row_says(sandbox_id, "running", "<img src=x")
    assert await interface.page.evaluate("window.attacked") is None


async def test_fleet__a_key_that_only_reads_sees_actions_that_it_lacks(
    interface, named_server, create
):
    made = await named_server.make_key(tenant="default", scopes=["read"])
    sandbox_id = await create()
    await interface.sign_in(made["secret"])
    await interface.until_row_says(sandbox_id, "running")
    await interface.page.get_by_label(f"Select {sandbox_id}").check()
    for name in ("Pause", "Resume", "Delete", "New sandbox"):
        button = interface.page.get_by_role("button", name=name, exact=True)
        assert await button.is_disabled()


async def test_sandbox__details_and_timeline_follow_its_changes(interface, named_server, create):
    page, sandbox_id = interface.page, await create(user_id="ada")
    await interface.sign_in(named_server.admin_key)
    await page.get_by_role("link", name=sandbox_id).click()
    await page.get_by_role("heading", name=sandbox_id).wait_for()
    await page.get_by_role("definition").filter(has_text="ada").wait_for()
    for button, state in (("Pause", "paused"), ("Resume", "running")):
        await interface.click(button)
        await page.get_by_role("listitem").first.filter(has_text=state).wait_for()
    assert await interface.barriers() == []
    await interface.picture("sandbox")
    await interface.click("Delete")
    await interface.click("Delete sandbox")
    await page.get_by_role("listitem").first.filter(has_text="stopped").wait_for()
    assert await page.get_by_role("button", name="Pause").count() == 0


async def run(api, sandbox_id, cmd, **wanted):
    ran = await api.post(f"/v1/sandboxes/{sandbox_id}/commands", json={"cmd": cmd, **wanted})
    assert ran.is_success, ran.text
    return ran.json()


async def test_log__shows_output_in_colour_as_it_comes_and_finds_text(
    interface, named_server, create, api
):
    page, sandbox_id = interface.page, await create()
    await interface.sign_in(named_server.admin_key)
    await interface.open(f"#/sandboxes/{sandbox_id}?tab=log")
    log = page.get_by_role("log")
    await run(api, sandbox_id, "echo oops >&2")
    await run(api, sandbox_id, r"printf 'plain \033[31mred\033[0m\n'; seq 1 500")
    await log.get_by_text("500", exact=True).wait_for()
    await page.get_by_label("Find in log").fill("PLAIN RED")
    await page.get_by_text("1 line", exact=True).wait_for()
    await page.keyboard.press("Enter")
    await log.locator(".ansi-red").filter(has_text="red").wait_for()
    await log.locator("[data-kind=stderr]").filter(has_text="oops").wait_for()
    await log.get_by_text("$ printf").wait_for()
    assert await interface.barriers() == []
    await interface.picture("log")


async def test_log__stays_where_the_reader_scrolled_to_and_follows_again_at_the_end(
    interface, named_server, create, api
):
    page, sandbox_id = interface.page, await create()
    await run(api, sandbox_id, "seq 1 3000")
    await interface.sign_in(named_server.admin_key)
    await interface.open(f"#/sandboxes/{sandbox_id}?tab=log")
    log = page.get_by_role("log")
    await log.get_by_text("3000", exact=True).wait_for()
    assert await log.locator("[data-seq]").count() < 150
    await log.hover()
    await page.mouse.wheel(0, -2000)
    await page.get_by_role("button", name="Follow", exact=True).wait_for()
    await interface.until("() => document.querySelector('[role=log]').scrollTop > 0")
    before = await log.evaluate("element => element.scrollTop")
    await run(api, sandbox_id, "echo later $((2 * 3))")
    await page.get_by_label("Find in log").fill("later 6")
    await page.get_by_text("1 line", exact=True).wait_for()
    assert await log.evaluate("element => element.scrollTop") == before
    await interface.click("Follow")
    await log.get_by_text("later 6", exact=True).wait_for()


async def test_log__output_is_never_a_part_of_the_page(interface, named_server, create, api):
    page, sandbox_id = interface.page, await create()
    await run(api, sandbox_id, f'printf "%s\\n" "{HOSTILE}"')
    await interface.sign_in(named_server.admin_key)
    await interface.open(f"#/sandboxes/{sandbox_id}?tab=log")
    output = page.get_by_role("log").locator("[data-kind=stdout]")
    await output.filter(has_text="<script>").wait_for()
    assert await page.evaluate("window.attacked") is None


async def test_log__a_killed_server_loses_and_repeats_no_line(interface, named_server, create, api):
    page, sandbox_id = interface.page, await create()
    await interface.sign_in(named_server.admin_key)
    await interface.open(f"#/sandboxes/{sandbox_id}?tab=log")
    log = page.get_by_role("log")
    await run(api, sandbox_id, "echo first")
    await log.get_by_text("first", exact=True).wait_for()
    await asyncio.to_thread(named_server.process.kill)
    await asyncio.to_thread(named_server.start)
    async with named_server.client() as again:
        await run(again, sandbox_id, "echo second")
    await log.get_by_text("second", exact=True).wait_for(timeout=PATIENCE_MS)
    for word in ("first", "second"):
        assert await log.get_by_text(word, exact=True).count() == 1
    interface.forget_complaints(*AWAY)


async def test_terminal__types_resumes_after_a_killed_server_and_ends(
    interface, named_server, create
):
    page, sandbox_id = interface.page, await create()
    await interface.sign_in(named_server.admin_key)
    await interface.open(f"#/sandboxes/{sandbox_id}?tab=terminals")
    await interface.click("New terminal")
    await page.locator(".xterm-screen").wait_for()
    await interface.type_until_screen_has("echo $((6 * 7))-one\n", "42-one")
    await interface.picture("terminal")
    await page.set_viewport_size({"width": 1280, "height": 720})
    await asyncio.to_thread(named_server.process.kill)
    await asyncio.to_thread(named_server.start)
    await page.locator(".xterm-screen").click()
    await interface.type_until_screen_has("echo $((6 * 7))-two\n", "42-two")
    await page.keyboard.press("Control+Shift+X")
    assert await page.evaluate("document.activeElement.closest('.xterm') === null")
    await interface.click("Kill terminal")
    await interface.click("Kill")
    await page.get_by_text("No terminal is open.").wait_for()
    interface.forget_complaints(*AWAY, "404")


async def test_sandbox__an_unknown_one_is_said(interface, named_server):
    await interface.sign_in(named_server.admin_key)
    await interface.open("#/sandboxes/0nosuchsandbox000000")
    await interface.page.get_by_role("heading", name="There is no such sandbox").wait_for()
    interface.forget_complaints("404")


async def test_pictures(interface, named_server, create):
    await interface.page.goto(interface.url)
    await interface.page.get_by_label("API key").wait_for()
    await interface.picture("sign-in")
    await interface.sign_in(named_server.admin_key)
    await interface.page.get_by_role("heading", name="No sandboxes").wait_for()
    await interface.picture("fleet-empty")
    one = await create(user_id="ada", session_id="pr-812", metadata={"name": "web"})
    await create(user_id="grace")
    last = await create(wait=0)
    await interface.until_row_says(last, "queued", "next in queue")
    await interface.until_row_says(one, "running")
    await interface.page.get_by_label(f"Select {one}").check()
    await interface.picture("fleet")
    await interface.page.set_viewport_size({"width": 1280, "height": 720})
    await interface.click("New sandbox")
    await interface.page.get_by_role("dialog").wait_for()
    await interface.picture("create")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_fleet__has_no_barriers(interface, named_server, create, theme):
    await interface.page.emulate_media(color_scheme=theme)
    await interface.page.goto(interface.url)
    await interface.page.get_by_label("API key").wait_for()
    assert await interface.barriers() == []
    await interface.sign_in(named_server.admin_key)
    await interface.until_row_says(await create(), "running")
    assert await interface.barriers() == []
    await interface.click("New sandbox")
    await interface.page.get_by_role("dialog").wait_for()
    assert await interface.barriers() == []


async def test_interface__seven_windows_follow_at_once(browser, named_server, create):
    context = await browser.new_context()
    sandbox_id = await create()
    try:
        first = await context.new_page()
        await first.goto(f"{named_server.url}/ui/")
        await first.get_by_label("API key").fill(named_server.admin_key)
        await first.get_by_role("button", name="Sign in").click()
        await first.locator("[data-connection=live]").wait_for()
        for _ in range(6):
            page = await context.new_page()
            await page.goto(f"{named_server.url}/ui/")
            await page.locator(f"[data-id='{sandbox_id}']").wait_for()
            await page.locator("[data-connection=live]").wait_for()
    finally:
        await context.close()
