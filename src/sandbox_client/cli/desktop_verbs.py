"""The subcommands of `sbx desktop`. Standard library only, to keep the start fast."""

import argparse
from pathlib import Path

from sandbox_client.cli.arguments import Verbs, add_sandbox, add_verb, count, duration
from sandbox_client.cli.task_verbs import add_group

FORMATS = ("png", "jpeg")

_ACTIONS_HELP = """\
Actions:
  click [X Y]                   also right_click, middle_click, double_click, triple_click, left_mouse_down, left_mouse_up
  drag [X Y] TO_X TO_Y          without X Y from where the pointer is
  move X Y
  scroll up|down|left|right [AMOUNT]
  type TEXT                     - reads stdin; write -- before a TEXT that begins with -
  key KEYS                      as ctrl+shift+t or Return
  hold_key KEYS DURATION
  wait DURATION
  cursor_position
  zoom X0 Y0 X1 Y1              with -o FILE: a part of the screen, enlarged
"""


def add_desktop_verbs(verbs: Verbs, *, is_named: bool) -> None:
    does = "look at the desktop of a sandbox, control, share and record it"
    desktops = add_group(verbs, "desktop", does, "DESKTOP_COMMAND")
    if not is_named:
        return
    for add in (_show, _set, _screenshot, _action, _link, _links, _revoke, _take, _return, _record):
        add(desktops)


def _show(desktops: Verbs) -> None:
    does = "show resolution, recording, viewers and who has control; a paused sandbox stays paused"
    add_sandbox(add_verb(desktops, "show", does, "desktops.settings:show"))


def _set(desktops: Verbs) -> None:
    does = "change settings of a desktop, at once or when a paused sandbox resumes"
    parser = add_verb(desktops, "set", does, "desktops.settings:set_")
    add_sandbox(parser)
    add = parser.add_argument
    add("--resolution", type=size, metavar="WIDTHxHEIGHT", help="size of the screen in pixels")
    add("--dpi", type=count, metavar="DPI", help="dots per inch, 48 to 480")
    add(
        "--stream",
        action=argparse.BooleanOptionalAction,
        help="whether links can show the desktop to people",
    )


def _screenshot(desktops: Verbs) -> None:
    does = "take a screenshot of a desktop, to a file or stdout"
    parser = add_verb(desktops, "screenshot", does, "desktops.actions:screenshot")
    add_sandbox(parser)
    _add_file(parser, "file for the picture; its ending selects the format")
    parser.add_argument("--format", choices=FORMATS, help="default: that of FILE's name, else png")
    parser.add_argument(
        "--quality", type=count, default=80, metavar="N", help="quality of a JPEG (default: 80)"
    )


def _action(desktops: Verbs) -> None:
    does = "carry out an action on a desktop and print where the pointer is then"
    parser = add_verb(desktops, "action", does, "desktops.actions:act", takes_command=True)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _ACTIONS_HELP
    add_sandbox(parser)
    parser.add_argument("action", metavar="ACTION", help="see below")
    parser.add_argument("command", metavar="ARGUMENT", nargs="*")
    parser.add_argument("--at", type=point, metavar="X,Y", help="where to scroll")
    parser.add_argument(
        "--hold", metavar="KEYS", help="keys held during a click, drag or scroll, as ctrl+shift"
    )
    _add_file(parser, "save a screenshot of the result to this file, as PNG")


def _link(desktops: Verbs) -> None:
    does = "create a link to a page that shows the desktop to a person without an API key"
    parser = add_verb(desktops, "link", does, "desktops.links:create")
    add_sandbox(parser)
    parser.add_argument("--control", action="store_true", help="let them take control")
    parser.add_argument(
        "--ttl", type=duration, metavar="DURATION", help="when it expires (default: 1h)"
    )
    parser.add_argument("--name", metavar="NAME", help="who it is for; shown in the timeline")


def _links(desktops: Verbs) -> None:
    does = "list the valid links of a desktop; with -q only their ids"
    add_sandbox(add_verb(desktops, "links", does, "desktops.links:list_"))


def _revoke(desktops: Verbs) -> None:
    does = "revoke links; their pages are disconnected"
    parser = add_verb(desktops, "revoke", does, "desktops.links:revoke")
    add_sandbox(parser)
    parser.add_argument("links", metavar="LINK", nargs="+", help="id of the link")


def _take(desktops: Verbs) -> None:
    does = "give control to a person: actions of agents are refused until it is returned"
    parser = add_verb(desktops, "take", does, "desktops.settings:take")
    add_sandbox(parser)
    parser.add_argument(
        "--ttl", type=duration, metavar="DURATION", help="return it then, at most (default: 10m)"
    )


def _return(desktops: Verbs) -> None:
    does = "return control to the agent"
    add_sandbox(add_verb(desktops, "return", does, "desktops.settings:return_"))


def _record(desktops: Verbs) -> None:
    does = "record a desktop, and get its recordings"
    parser = desktops.add_parser(
        "record", help=does, description=f"{does[0].upper()}{does[1:]}.", allow_abbrev=False
    )
    records = parser.add_subparsers(metavar="RECORD_COMMAND", required=True, dest="record_verb")
    started = add_verb(records, "start", "start recording", "desktops.recordings:start")
    add_sandbox(started)
    started.add_argument(
        "--fps", type=count, metavar="N", help="frames per second, 1 to 30 (default: 5)"
    )
    add_sandbox(add_verb(records, "stop", "stop recording", "desktops.recordings:stop"))
    does = "list recordings, oldest first; with -q only their ids"
    add_sandbox(add_verb(records, "list", does, "desktops.recordings:list_"))
    _get(records)
    removed = add_verb(records, "rm", "delete recordings", "desktops.recordings:rm")
    add_sandbox(removed)
    removed.add_argument("recordings", metavar="RECORDING", nargs="+", help="id of the recording")


def _get(records: Verbs) -> None:
    does = "download a recording as MP4, or one picture of it as JPEG, to a file or stdout"
    parser = add_verb(records, "get", does, "desktops.recordings:get")
    add_sandbox(parser)
    parser.add_argument(
        "recording", metavar="RECORDING", nargs="?", help="id (default: the latest recording)"
    )
    _add_file(parser, "file to write")
    parser.add_argument(
        "--at", type=float, metavar="SECOND", help="only the picture that was shown then"
    )


def _add_file(parser: argparse.ArgumentParser, does: str) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=does)


def size(text: str) -> tuple[int, int]:
    return _two_numbers(text, "x", "WIDTHxHEIGHT, as 1280x800")


def point(text: str) -> tuple[int, int]:
    return _two_numbers(text, ",", "X,Y, as 100,200")


def _two_numbers(text: str, separator: str, form: str) -> tuple[int, int]:
    first, _, second = text.partition(separator)
    try:
        return count(first), count(second)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {form}.") from None
