"""The web page in a real browser."""

import asyncio

import asyncpg
import pytest

from tests.server.reference.example_calls import STAND_INS
from tests.server.web.page_driver import FirstPage

pytestmark = [pytest.mark.needs_engine, pytest.mark.asyncio(loop_scope="module")]

UNAUTHORIZED = "401 (Unauthorized)"
AWAY = ("net::ERR_", "WebSocket connection to")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
HOSTILE = "<img src=x onerror='window.attacked = true'><script>window.attacked = true</script>"


async def run(api, sandbox_id, cmd, **wanted):
    ran = await api.post(f"/v1/sandboxes/{sandbox_id}/commands", json={"cmd": cmd, **wanted})
    assert ran.is_success, ran.text
    return ran.json()


async def test_web_sign_in__a_wrong_key_shows_an_error(first_page):
    await first_page.page.goto(first_page.url)
    for key in ("not a key", f"sbx_{'a' * 43}"):
        await first_page.enter(key)
        await first_page.until_shown("[role=alert]", "invalid or was revoked")
    assert await first_page.page.context.cookies() == []
    first_page.forget_complaints(UNAUTHORIZED)


async def test_web_sign_in__the_session_lasts_until_sign_out_and_scripts_cannot_read_the_key(
    first_page, named_server
):
    page = first_page.page
    await first_page.sign_in(named_server.admin_key)
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    kept = await page.evaluate("document.cookie + JSON.stringify(localStorage)")
    assert named_server.admin_key not in kept
    assert cookie["value"] not in kept
    await page.reload()
    await first_page.until_live()
    await first_page.click("Sign out")
    await first_page.until_signed_out()
    assert await page.context.cookies() == []
    await page.reload()
    await first_page.until_signed_out()
    first_page.forget_complaints(UNAUTHORIZED)  # requests in progress


async def test_web_page__uses_only_resources_of_the_server(first_page, named_server):
    asked = []
    first_page.page.on("request", lambda request: asked.append(request.url))
    await first_page.sign_in(named_server.admin_key)
    await first_page.until_live()
    assert len(asked) > 10
    assert all(url.startswith(f"{named_server.url}/") for url in asked)
    await first_page.page.get_by_role("link", name="API").click()
    # Of a long description Swagger UI renders what is in sight only.
    await first_page.page.get_by_placeholder("Filter by tag or path").fill("/v1/tickets")
    await first_page.page.get_by_text("/v1/tickets").first.wait_for()


async def test_web_sandbox_list__changes_are_shown_live(first_page, named_server, create, api):
    await first_page.sign_in(named_server.admin_key)
    await first_page.until_live()
    await first_page.page.evaluate("window.loadedOnce = true")
    first, second = await create(user_id="ada", session_id="one"), await create()
    await first_page.until_row_says(first, "running", "ada · one", "base")
    third, fourth = await create(wait=0), await create(wait=0)
    await first_page.until_row_says(third, "queued", "next in queue", "All 2 slots")
    await first_page.until_row_says(fourth, "queued", "position 2 in queue")
    await api.delete(f"/v1/sandboxes/{first}")
    await first_page.until_gone(first)
    await first_page.until_row_says(third, "running")
    await first_page.until_row_says(fourth, "queued", "next in queue")
    await api.post(f"/v1/sandboxes/{second}/pause")
    await first_page.until_row_says(second, "paused", "left", "unless resumed")
    await first_page.page.get_by_label("Search").fill("NUMBER-OF-NOBODY")
    await first_page.until_shown(".hint", "0 of 3")
    assert await first_page.page.evaluate("window.loadedOnce")


async def test_web_sandbox__can_be_created_paused_resumed_and_deleted(first_page, named_server):
    await first_page.sign_in(named_server.admin_key)
    await first_page.click("New sandbox")
    await first_page.page.get_by_label("User").fill("grace")
    await first_page.click("Create")
    await first_page.until_shown(".row", "running")
    await first_page.page.locator(".row").filter(has_text="grace").click()
    for button, state in (("Pause", "paused"), ("Resume", "running")):
        await first_page.click(button)
        await first_page.until_shown("h1 + .badge", state)
        await first_page.until_shown(".timeline li:first-child", state)
    await first_page.click("Delete")
    await first_page.click("Cancel")
    await first_page.until_shown("h1 + .badge", "running")
    await first_page.click("Delete")
    await first_page.click("Delete sandbox")
    await first_page.until_shown("h1 + .badge", "stopped")
    await first_page.until_shown(".timeline li:first-child", "stopped")
    await first_page.until_shown(".connection", "Ended")
    assert await first_page.page.locator(".bar .buttons button").count() == 0


@pytest.mark.slow  # browsers in depth
async def test_web_log__shows_cells_with_results_figures_and_exceptions(
    first_page, named_server, create, api
):
    page, sandbox_id = first_page.page, await create()
    path = f"/v1/sandboxes/{sandbox_id}"
    program = (STAND_INS / "interpreter").read_bytes()
    await api.put(f"{path}/files/content", params={"path": "/tmp/code.py"}, content=program)
    await api.post(f"{path}/commands", json={"cmd": "python3 /tmp/code.py", "background": True})
    await run(
        api,
        sandbox_id,
        "until (echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.05; done",
    )
    code = f"display(png={PIXEL!r})\nprint('printed')\n6 * 7"
    for each in (code, "1 / 0"):
        assert (await api.post(f"{path}/code", json={"code": each})).status_code == 201
    await first_page.sign_in(named_server.admin_key)
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.until_shown(".line.mark", ">>> display(png=")
    await first_page.until_shown(".line.stderr .text", "ZeroDivisionError")
    await page.get_by_text("42", exact=True).wait_for()
    figure = page.locator(".line.result img")
    assert await figure.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1


async def test_web_log__follows_new_lines_until_the_user_scrolls_up(
    first_page, named_server, create, api
):
    page, sandbox_id = first_page.page, await create()
    await run(api, sandbox_id, "seq -f 'earlier %g' 100; printf 'done 1%%\\rdone 2%%\\n'")
    await first_page.sign_in(named_server.admin_key)
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.until_shown(".line.mark", "$ seq -f")
    await first_page.until_shown(".line .text", "earlier 100")
    assert await page.locator(".line", has_text="done").last.locator(".text").inner_text() == (
        "done 2%"
    )
    await run(api, sandbox_id, "printf 'half a '; sleep 0.3; echo line; echo ouch >&2")
    await first_page.until_shown(".line.stderr .text", "ouch")
    await page.get_by_text("half a line", exact=True).wait_for()
    lines = page.locator(".lines")
    await lines.evaluate("lines => { lines.scrollTop = 0 }")
    await page.get_by_role("button", name="Follow", exact=True).wait_for()
    await run(api, sandbox_id, "seq -f 'later %g' 5000")
    await page.get_by_role("button", name="new)").wait_for()
    assert await lines.evaluate("lines => lines.scrollTop") == 0
    await page.get_by_role("button", name="Follow (").click()
    await first_page.until_shown(".line .text", "later 5000")
    assert await page.locator(".line").count() <= 2000
    await run(api, sandbox_id, "seq 100000")
    await first_page.until_shown(".line .text", "100000")
    await first_page.until_shown(".line.gap .text", "no longer shown")
    assert await page.locator(".line").count() <= 2000
    await page.get_by_label("commands").uncheck()
    await first_page.until_shown(".line.mark", "running: ")
    assert await page.get_by_text("later 5000").count() == 0


@pytest.mark.slow  # browsers in depth
async def test_web_terminal__accepts_input_fits_the_window_and_survives_a_restart(
    first_page, named_server, create
):
    page, sandbox_id = first_page.page, await create()
    await page.set_viewport_size({"width": 900, "height": 600})
    await first_page.sign_in(named_server.admin_key)
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.click("Open terminal")
    await first_page.until_screen_has("$ ")
    await page.keyboard.type("echo $((6 * 7))-before; stty size\n")
    await first_page.until_screen_has("42-before")
    size = "document.querySelector('.xterm-rows').childElementCount"
    rows = await page.evaluate(size)
    await first_page.until_screen_has(f"\n{rows} ")
    await page.set_viewport_size({"width": 700, "height": 400})
    await first_page.until(f"rows => {size} < rows", rows)
    await page.keyboard.type("stty size\n")
    await first_page.until_screen_has(f"\n{await page.evaluate(size)} ")
    await page.keyboard.type("printf '\\033[38;2;255;100;0mcolour\\033[0m\\n'\n")
    await first_page.until_screen_has("\ncolour")
    await asyncio.to_thread(named_server.process.kill)
    await page.locator(".connection.lost").wait_for()
    await asyncio.to_thread(named_server.start)
    await first_page.until_live()
    await first_page.type_until_screen_has("echo $((6 * 7))-after\n", "42-after")
    first_page.forget_complaints(*AWAY)
    await page.keyboard.type("exit 3\n")
    await first_page.until_shown(".status", "exit code 3")


async def test_web_terminal__replayed_queries_are_not_answered_again(
    first_page, named_server, create, api
):
    sandbox_id = await create()
    where_is_the_cursor = {"cmd": "stty -echo; printf 'asked \\033[6n'; cat -v"}
    made = await api.post(f"/v1/sandboxes/{sandbox_id}/terminals", json=where_is_the_cursor)
    path = made.json()["path"]
    while not (await api.get(path)).json()["size"]:
        pass
    await first_page.sign_in(named_server.admin_key)
    await first_page.open(path.removeprefix("/v1/"))
    await first_page.until_screen_has("asked")
    await first_page.page.keyboard.type("typed\n")
    await first_page.until_screen_has("asked typed")


async def test_web_terminal__missing_xterm_js_is_reported(first_page, named_server, create, api):
    sandbox_id = await create()
    made = await api.post(f"/v1/sandboxes/{sandbox_id}/terminals", json={"cmd": "cat"})
    await first_page.page.route("**/vendor/*.mjs", lambda route: route.abort())
    await first_page.sign_in(named_server.admin_key)
    async with first_page.page.expect_event(
        "requestfailed", predicate=lambda request: "addon-fit" in request.url
    ):
        await first_page.open(made.json()["path"].removeprefix("/v1/"))
    await first_page.until_shown(".status", "Terminals require xterm.js")
    first_page.forget_complaints("net::ERR_FAILED")


async def test_web_page__works_without_sec_fetch_site(tab, named_server, create):
    first_page, sandbox_id = FirstPage(tab, named_server.untrusted_url), await create()
    await first_page.sign_in(named_server.admin_key)
    assert not await tab.page.evaluate("isSecureContext")  # so Sec-Fetch-Site is not sent
    await first_page.until_live()
    await first_page.until_row_says(sandbox_id, "running")
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.click("Open terminal")
    await first_page.until_screen_has("$ ")
    await first_page.page.keyboard.type("echo $((6 * 7))\n")
    await first_page.until_screen_has("\n42")
    await first_page.click("Sign out")
    await first_page.until_signed_out()
    first_page.forget_complaints(UNAUTHORIZED, "Cross-Origin-Opener-Policy header has been ignored")
    assert first_page.complaints == []


async def test_web_page__resumes_when_the_server_is_back(first_page, named_server, create, api):
    sandbox_id = await create()
    await run(api, sandbox_id, "sleep 60; echo never", background=True)
    await first_page.sign_in(named_server.admin_key)
    await first_page.until_live()
    await asyncio.to_thread(named_server.process.stop)
    await first_page.page.locator(".connection.lost").wait_for()
    await asyncio.to_thread(named_server.start)
    missed = await create()
    await first_page.until_row_says(missed, "running")
    await first_page.until_live()
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.until_shown(".line.gap .text", "may have been lost")  # while disconnected
    first_page.forget_complaints(*AWAY)


@pytest.mark.slow  # browsers in depth
async def test_web_sign_in__revoking_the_key_signs_the_user_out(first_page, named_server, api):
    key = await named_server.make_key(scopes=["sandboxes"])
    await first_page.sign_in(key["secret"])
    await first_page.until_live()
    await api.delete(f"/v1/keys/{key['id']}")
    await first_page.until_signed_out()
    await first_page.until_shown(".notice", "Your session has ended")
    first_page.forget_complaints(UNAUTHORIZED)


async def test_web_page__a_read_only_key_shows_no_actions(first_page, named_server, create, api):
    sandbox_id = await create()
    made = await api.post(f"/v1/sandboxes/{sandbox_id}/terminals", json={"cmd": "cat"})
    key = await named_server.make_key(scopes=["read"])
    await first_page.sign_in(key["secret"])
    await first_page.until_row_says(sandbox_id, "running")
    assert await first_page.page.get_by_role("button", name="New sandbox").count() == 0
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.until_shown("h1 + .badge", "running")
    assert await first_page.page.locator(".bar .buttons button").count() == 0
    await first_page.page.get_by_role("link", name="cat").click()
    await first_page.until_shown(".status", "Read-only")
    await first_page.page.keyboard.type("typed\n")
    told = await api.get(made.json()["path"])
    assert told.json()["size"] == 0


async def test_web_page__names_and_output_of_sandboxes_cannot_inject_code(
    first_page, named_server, create, api
):
    page = first_page.page
    wanted = {"user_id": HOSTILE, "session_id": HOSTILE, "metadata": {HOSTILE: HOSTILE}}
    sandbox_id = await create(**wanted)
    await run(api, sandbox_id, 'echo "$TEXT"; echo "$TEXT" >&2', envs={"TEXT": HOSTILE})
    title = await api.post(
        f"/v1/sandboxes/{sandbox_id}/terminals",
        json={"cmd": 'printf "\\033]0;%s\\007%s" "$T" "$T"; cat', "envs": {"T": HOSTILE}},
    )
    await first_page.sign_in(named_server.admin_key)
    await first_page.until_row_says(sandbox_id, HOSTILE)
    await first_page.open(f"sandboxes/{sandbox_id}")
    await first_page.until_shown(".facts dd", HOSTILE)
    for kind in ("stdout", "stderr"):
        await first_page.until_shown(f".line.{kind} .text", HOSTILE)
    await first_page.open(f"sandboxes/{sandbox_id}/terminals/{title.json()['id']}")
    await first_page.until_shown(".title", HOSTILE[:80])
    assert await page.evaluate("window.attacked") is None
    assert await page.locator("img[src=x]").count() == 0


async def test_web_sandbox_list__a_thousand_sandboxes_are_listed_and_searched_quickly(
    first_page, named_server, create, api
):
    sandbox_id = await create()
    await api.delete(f"/v1/sandboxes/{sandbox_id}")
    await until_stopped(api, sandbox_id)
    await multiply(named_server.process.variables["DATABASE_URL"], sandbox_id, times=1000)
    await first_page.sign_in(named_server.admin_key)
    await first_page.page.get_by_label("Show deleted").check()
    await first_page.until("() => document.querySelectorAll('.rows li').length > 1000")
    took = await first_page.page.evaluate(
        """async () => {
          const search = document.querySelector("[type=search]"), begun = performance.now();
          search.value = "0001000";
          search.dispatchEvent(new Event("input"));
          await new Promise(requestAnimationFrame);
          return performance.now() - begun;
        }"""
    )
    assert await first_page.page.locator(".rows li:visible").count() == 1
    assert took < 3000


async def until_stopped(api, sandbox_id):
    while (await api.get(f"/v1/sandboxes/{sandbox_id}")).json()["state"] != "stopped":
        pass


async def multiply(database_url, sandbox_id, *, times):
    """Insert copies of an ended sandbox."""
    connection = await asyncpg.connect(database_url.replace("postgresql+asyncpg", "postgresql"))
    try:
        await connection.execute(
            """INSERT INTO sandboxes SELECT (jsonb_populate_record(one, jsonb_build_object(
                 'id', left(one.id, 13) || lpad(n::text, 7, '0'), 'backend_sandbox_id', null))).*
               FROM sandboxes one, generate_series(1, $2::int) n WHERE one.id = $1""",
            sandbox_id,
            times,
        )
    finally:
        await connection.close()


async def test_web_page__works_by_keyboard_and_on_a_narrow_screen(browser, named_server, create):
    sandbox_id = await create()
    context = await browser.new_context(viewport={"width": 360, "height": 640})
    page = await context.new_page()
    await page.goto(named_server.url)
    await page.locator("#key:focus").wait_for()
    await page.keyboard.type(named_server.admin_key)
    await page.keyboard.press("Enter")
    await page.locator(f'[data-id="{sandbox_id}"]').wait_for()
    for _ in range(20):
        if await page.evaluate("document.activeElement.matches('.row')"):
            break
        await page.keyboard.press("Tab")
    for step in ("list", "sandbox"):
        overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert await page.evaluate(overflow) == 0, step
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name=sandbox_id).wait_for()
    await context.close()
