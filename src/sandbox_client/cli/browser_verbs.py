"""The subcommands of `sbx browser`. Standard library only, to keep the start fast."""

from sandbox_client.cli.arguments import Verbs, add_verb, count, duration, pair
from sandbox_client.cli.task_verbs import add_group

BROWSER_STATES = "pending running error timed_out completed".split()
URL_KINDS = "cdp webdriver live".split()

_BROWSER = "id of the browser session"


def add_browser_verbs(verbs: Verbs, *, is_named: bool) -> None:
    does = "manage browser sessions, each in a sandbox of its own"
    browsers = add_group(verbs, "browser", does, "BROWSER_COMMAND")
    if not is_named:
        return
    for add in (_create, _list, _url, _release):
        add(browsers)


def _create(browsers: Verbs) -> None:
    does = "create a browser session and print its id"
    parser = add_verb(browsers, "create", does, "sandboxes.browsers:create")
    add = parser.add_argument
    add("--template", metavar="TEMPLATE", help="template with a browser (default: browser)")
    add(
        "--timeout",
        type=duration,
        metavar="DURATION",
        help="end it this long after its start, 1m to 6h (default: 1h)",
    )
    add("--keep-alive", action="store_true", help="keep it after its last driver has left")
    add("--metadata", type=pair, action="append", default=[], metavar="NAME=TEXT")
    add("--priority", type=int, metavar="NUMBER", help="place in the queue")
    add(
        "--wait",
        type=duration,
        metavar="DURATION",
        help="wait for a slot for at most this time, up to 5m (default: 1m)",
    )


def _list(browsers: Verbs) -> None:
    does = (
        "list browser sessions; without --state those that have not ended, with -q only their ids"
    )
    parser = add_verb(browsers, "list", does, "sandboxes.browsers:list_")
    parser.add_argument("--state", action="append", choices=BROWSER_STATES, dest="states")
    parser.add_argument("--limit", type=count, metavar="NUMBER", help="list at most so many")


def _url(browsers: Verbs) -> None:
    does = "print a URL of a session's browser, which works without an API key until it expires"
    parser = add_verb(browsers, "url", does, "sandboxes.browsers:url")
    parser.add_argument("browser", metavar="BROWSER", help=_BROWSER)
    parser.add_argument(
        "kind",
        nargs="?",
        choices=URL_KINDS,
        default="cdp",
        help="for Playwright and Puppeteer, for Selenium, or for people (default: cdp)",
    )


def _release(browsers: Verbs) -> None:
    does = "end browser sessions and delete their sandboxes"
    parser = add_verb(browsers, "release", does, "sandboxes.browsers:release")
    parser.add_argument("browsers", metavar="BROWSER", nargs="+", help=_BROWSER)
