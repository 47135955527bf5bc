import pytest

from sandbox_client.cli.output.tables import table, width_of
from sandbox_client.console.escape import escape_controls


def test_columns_are_as_wide_as_what_is_in_them():
    lines = list(table(("ID", "NAME"), [("1", "web"), ("22222", "日本"), ("3", "")]))
    assert lines == ["ID     NAME", "1      web", "22222  日本", "3"]


def test_long_cells_are_cut_where_there_is_a_bound():
    [_, cut, wide] = table(("A", "B"), [("x" * 9, "."), ("日本語日本語", ".")], longest=6)
    assert cut == "xxxxx…  ."
    assert wide == "日本…   ."
    [_, whole] = table(("A",), [("x" * 99,)])
    assert whole == "x" * 99


def test_a_colour_takes_no_room():
    [_, row] = table(("A", "B"), [("x", "y")], paint=lambda padded, cell: f"<{padded}>")
    assert row == "<x>  <y>"


def test_nothing_in_a_table_reaches_the_terminal_raw():
    [_, row] = table(("A",), [("\x1b[2Jred\r\n\u202eevil\x9b1m",)])
    assert row == r"\x1b[2Jred\r\n\u202eevil\x9b1m"


@pytest.mark.parametrize("text", ["plain", "Grüße", "日本語", "a/b: c"])
def test_plain_text_stays_as_it_is(text):
    assert escape_controls(text) == text


def test_a_tab_is_kept_where_that_is_wanted():
    assert escape_controls("a\tb\x07", keep="\t") == "a\tb\\x07"


def test_accents_that_combine_have_no_width():
    assert width_of("e\u0301") == 1
