import pytest

from sandbox_client.cli.output.tables import table, width_of
from sandbox_client.console.escape import escape_controls


def test_table__columns_fit_their_cells():
    lines = list(table(("ID", "NAME"), [("1", "web"), ("22222", "日本"), ("3", "")]))
    assert lines == ["ID     NAME", "1      web", "22222  日本", "3"]


def test_table__long_cells_are_truncated():
    [_, cut, wide] = table(("A", "B"), [("x" * 9, "."), ("日本語日本語", ".")], longest=6)
    assert cut == "xxxxx…  ."
    assert wide == "日本…   ."
    [_, whole] = table(("A",), [("x" * 99,)])
    assert whole == "x" * 99


def test_table__colours_do_not_change_the_width():
    [_, row] = table(("A", "B"), [("x", "y")], paint=lambda padded, cell: f"<{padded}>")
    assert row == "<x>  <y>"


def test_table__control_characters_are_escaped():
    [_, row] = table(("A",), [("\x1b[2Jred\r\n\u202eevil\x9b1m",)])
    assert row == r"\x1b[2Jred\r\n\u202eevil\x9b1m"


@pytest.mark.parametrize("text", ["plain", "Grüße", "日本語", "a/b: c"])
def test_escape_controls__plain_text_is_unchanged(text):
    assert escape_controls(text) == text


def test_escape_controls__keeps_requested_characters():
    assert escape_controls("a\tb\x07", keep="\t") == "a\tb\\x07"


def test_table__combining_accents_have_no_width():
    assert width_of("e\u0301") == 1
