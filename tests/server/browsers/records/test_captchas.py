"""Captchas with a real browser: pages with the markup of the widgets, and a solver on loopback."""

import json
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sandbox_server.browsers.records import captcha_watch, recorders, session_recorder
from sandbox_server.browsers.records.captcha_solver import (
    Captcha,
    CaptchaKind,
    CaptchaNotSolved,
    CaptchaService,
)
from sandbox_server.browsers.records.entries import EntryKind
from sandbox_server.browsers.records.recorders import SessionRecorders
from sandbox_server.browsers.records.session_logs import EntryPosition, SessionLogs
from tests.engine.polling import until
from tests.tools.browser.site import running_site

WIDGETS = {
    "recaptcha": ("g-recaptcha", "g-recaptcha-response"),
    "hcaptcha": ("h-captcha", "h-captcha-response"),
    "turnstile": ("cf-turnstile", "cf-turnstile-response"),
}
PAGE = """<title>Sign in</title><script>window.done = []; function onSolved(token) {{ done.push(token); }}</script>
<form><div class="{widget}" data-sitekey="KEY-1" data-callback="onSolved"></div>{field}</form>"""
PICTURE = """<title>Sign in</title><div id="picture" style="width: 80px; height: 30px; background: red"></div>
<input id="text">"""


class Solver:
    """A service of an operator, which notes what it is sent."""

    def __init__(self, url):
        self.url = url
        self.asked = []
        self.keys = []
        self.answer = 200, b'{"token": "TOKEN"}'
        self.released = threading.Event()
        self.released.set()


@pytest.fixture
def solver():
    operator = Solver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            operator.asked.append(json.loads(self.rfile.read(length)))
            operator.keys.append(self.headers["Authorization"])
            operator.released.wait(60)
            status, body = operator.answer
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        operator.url = f"http://127.0.0.1:{server.server_port}/solve"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield operator
        operator.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def site():
    with running_site() as site:
        yield site


@pytest.fixture
async def recording(sessions, store, connector, row, solver, monkeypatch):
    monkeypatch.setattr(session_recorder, "FLUSH_EVERY", recorders._PAUSE / 10)
    monkeypatch.setattr(captcha_watch, "LOOK_EVERY", recorders._PAUSE / 10)
    service = CaptchaService(solver.url, "secret")
    row.settings = {
        "captcha": True,
        "captcha_selectors": {"image": "#picture", "input": "#text"},
        "logs": True,
    }
    recording = SessionRecorders(sessions, store, connector, service)
    recording.begin(row)
    yield recording
    await recording._stop()


@pytest.fixture
def console(page):
    told = []
    page.on("console", lambda message: told.append(message.text))
    return told


@pytest.fixture
def captcha_log(store, row):
    async def captcha_log():
        found = await SessionLogs(store).list_entries(
            row, kind=EntryKind.CAPTCHA, after=EntryPosition(), limit=100
        )
        return [entry.text for _, entry in found]

    return captcha_log


async def finished(console):
    async def is_finished():
        return "browserbase-solving-finished" in console

    await until(is_finished, timeout=30)


@pytest.mark.parametrize("kind", WIDGETS)
async def test_captcha__the_solution_is_put_in_and_the_page_told(
    recording, site, page, console, solver, captcha_log, row, kind
):
    widget, name = WIDGETS[kind]
    has_field = kind != "hcaptcha"
    field = f'<textarea name="{name}"></textarea>' if has_field else ""
    url = await page.goto(site.serve("/login", PAGE.format(widget=widget, field=field)))
    await finished(console)
    assert console.index("browserbase-solving-started") < console.index(
        "browserbase-solving-finished"
    )
    assert await page.locator(f"[name={name}]").first.input_value() == "TOKEN"
    assert await page.evaluate("done") == ["TOKEN"]
    assert solver.asked == [
        {"kind": kind, "page_url": url.url, "site_key": "KEY-1", "session_id": row.id}
    ]
    assert solver.keys == ["Bearer secret"]

    async def is_logged():
        return f"The captcha ({kind}) was solved." in await captcha_log()

    await until(is_logged, timeout=30)


async def test_captcha__text_of_a_picture_is_typed(recording, site, page, console, solver):
    await page.goto(site.serve("/login", PICTURE))
    await finished(console)
    assert await page.locator("#text").input_value() == "TOKEN"
    [asked] = solver.asked
    assert asked["kind"] == "image"
    assert asked["image"].startswith("iVBORw0KGgo")


async def test_captcha__that_is_not_solved_is_logged_and_not_tried_again(
    recording, site, page, console, solver, captcha_log
):
    solver.answer = 500, b""
    await page.goto(site.serve("/login", PAGE.format(widget="h-captcha", field="")))
    await finished(console)

    async def is_logged():
        return any("status 500" in each for each in await captcha_log())

    await until(is_logged, timeout=30)
    assert len(solver.asked) == 1
    await page.reload()

    async def is_tried_again():
        return len(solver.asked) == 2

    await until(is_tried_again, timeout=30)


async def test_captcha__pages_without_any_cause_no_request(recording, site, page, console, solver):
    solver.released.clear()
    await page.goto(site.serve("/plain", "<title>Plain</title><div data-sitekey='x'></div>"))
    await page.goto(site.serve("/login", PAGE.format(widget="h-captcha", field="")))

    async def is_asked():
        return bool(solver.asked)

    await until(is_asked, timeout=30)
    assert [each["page_url"] for each in solver.asked] == [site.url + "/login"]
    assert "browserbase-solving-finished" not in console


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((500, b""), "status 500"),
        ((302, b""), "status 302"),
        ((200, b"no"), "not JSON"),
        ((200, b"{}"), "no `token`"),
        ((200, b"x" * 100_000), "too large"),
    ],
)
async def test_service__an_answer_without_a_solution_says_so(solver, answer, reason):
    solver.answer = answer
    captcha = Captcha(kind=CaptchaKind.HCAPTCHA, page_url="http://a/", site_key="k")
    with pytest.raises(CaptchaNotSolved, match=reason):
        await CaptchaService(solver.url, None).solve(captcha, session_id="s")
    assert len(solver.asked) == 1


async def test_service__that_does_not_answer_in_time_or_at_all_says_so(solver):
    solver.released.clear()
    captcha = Captcha(kind=CaptchaKind.HCAPTCHA, page_url="http://a/", site_key="k")
    slow = CaptchaService(solver.url, None, within=timedelta(seconds=0.2))
    with pytest.raises(CaptchaNotSolved, match="did not answer in time"):
        await slow.solve(captcha, session_id="s")
    gone = CaptchaService("http://127.0.0.1:1/", None)
    with pytest.raises(CaptchaNotSolved, match="cannot be reached"):
        await gone.solve(captcha, session_id="s")
