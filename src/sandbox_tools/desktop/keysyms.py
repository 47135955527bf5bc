"""Names of keys, as agents write them, to keysyms of X11."""

import unicodedata

_NAMED = {
    "backspace": 0xFF08, "tab": 0xFF09, "linefeed": 0xFF0A, "clear": 0xFF0B, "return": 0xFF0D, "pause": 0xFF13,
    "scroll_lock": 0xFF14, "sys_req": 0xFF15, "escape": 0xFF1B, "home": 0xFF50, "left": 0xFF51, "up": 0xFF52,
    "right": 0xFF53, "down": 0xFF54, "page_up": 0xFF55, "page_down": 0xFF56, "end": 0xFF57, "begin": 0xFF58,
    "select": 0xFF60, "print": 0xFF61, "execute": 0xFF62, "insert": 0xFF63, "undo": 0xFF65, "redo": 0xFF66,
    "menu": 0xFF67, "find": 0xFF68, "cancel": 0xFF69, "help": 0xFF6A, "break": 0xFF6B, "num_lock": 0xFF7F,
    "kp_enter": 0xFF8D, "kp_multiply": 0xFFAA, "kp_add": 0xFFAB, "kp_subtract": 0xFFAD, "kp_decimal": 0xFFAE,
    "kp_divide": 0xFFAF, "shift_l": 0xFFE1, "shift_r": 0xFFE2, "control_l": 0xFFE3, "control_r": 0xFFE4,
    "caps_lock": 0xFFE5, "meta_l": 0xFFE7, "meta_r": 0xFFE8, "alt_l": 0xFFE9, "alt_r": 0xFFEA, "super_l": 0xFFEB,
    "super_r": 0xFFEC, "hyper_l": 0xFFED, "hyper_r": 0xFFEE, "iso_level3_shift": 0xFE03, "delete": 0xFFFF,
    "space": 0x20, "exclam": 0x21, "quotedbl": 0x22, "numbersign": 0x23, "dollar": 0x24, "percent": 0x25,
    "ampersand": 0x26, "apostrophe": 0x27, "parenleft": 0x28, "parenright": 0x29, "asterisk": 0x2A, "plus": 0x2B,
    "comma": 0x2C, "minus": 0x2D, "period": 0x2E, "slash": 0x2F, "colon": 0x3A, "semicolon": 0x3B, "less": 0x3C,
    "equal": 0x3D, "greater": 0x3E, "question": 0x3F, "at": 0x40, "bracketleft": 0x5B, "backslash": 0x5C,
    "bracketright": 0x5D, "asciicircum": 0x5E, "underscore": 0x5F, "grave": 0x60, "braceleft": 0x7B, "bar": 0x7C,
    "braceright": 0x7D, "asciitilde": 0x7E,
    "xf86audiolowervolume": 0x1008FF11, "xf86audiomute": 0x1008FF12, "xf86audioraisevolume": 0x1008FF13,
    "xf86back": 0x1008FF26, "xf86forward": 0x1008FF27,
    **{f"f{number}": 0xFFBD + number for number in range(1, 36)},
    **{f"kp_{number}": 0xFFB0 + number for number in range(10)},
}  # fmt: skip

# Spellings of browsers, of OpenAI's and of Anthropic's models.
_ALIASES = {
    "enter": "return", "esc": "escape", "del": "delete", "ins": "insert", "ctrl": "control_l", "control": "control_l",
    "shift": "shift_l", "alt": "alt_l", "option": "alt_l", "altgr": "iso_level3_shift", "meta": "super_l",
    "super": "super_l", "win": "super_l", "windows": "super_l", "cmd": "super_l", "command": "super_l",
    "arrowleft": "left", "arrowright": "right", "arrowup": "up", "arrowdown": "down", "pageup": "page_up",
    "prior": "page_up", "pgup": "page_up", "pagedown": "page_down", "next": "page_down", "pgdn": "page_down",
    "capslock": "caps_lock", "numlock": "num_lock", "scrolllock": "scroll_lock", "printscreen": "print",
    "spacebar": "space", "contextmenu": "menu",
}  # fmt: skip

_LAST_OF_LATIN_1 = 0xFF
_UNICODE = 0x01000000
_TYPED = {
    "\n": _NAMED["return"],
    "\r": _NAMED["return"],
    "\t": _NAMED["tab"],
    "\b": _NAMED["backspace"],
}


class UnknownKey(ValueError):
    """No key has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no key named {name[:40]!r}. Use one character, or a name such as Return, Tab, Escape, Page_Down, F5 or ctrl."
        )


def find_chord(text: str) -> list[int]:
    """Return the keysyms of keys that are pressed together, such as `ctrl+shift+t`."""
    # "ctrl++" ends with the key of that character.
    names = text.split("+") if not text.endswith("+") else [*text[:-1].rstrip("+").split("+"), "+"]
    return [_keysym(name.strip() or name) for name in names if name]


def keysym_of_character(character: str) -> int:
    """Return the keysym that types the character."""
    if character in _TYPED:
        return _TYPED[character]
    if unicodedata.category(character) in ("Cc", "Cs"):
        raise UnknownKey(character)
    code = ord(character)
    return code if code <= _LAST_OF_LATIN_1 else _UNICODE + code


def _keysym(name: str) -> int:
    if len(name) == 1:
        return keysym_of_character(name)
    known = name.lower()
    keysym = _NAMED.get(_ALIASES.get(known, known))
    if keysym is None:
        raise UnknownKey(name)
    return keysym
