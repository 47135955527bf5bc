import pytest
from fastapi.exceptions import RequestValidationError

from sandbox_server.domain.ids import new_id
from sandbox_server.http.pagination import page_of, read_id, read_number


def test_pagination__a_cursor_names_the_last_item():
    rows = [new_id() for _ in range(3)]
    page = page_of(rows, rows, limit=2, position=str)
    assert page.items == rows[:2]
    assert read_id(page.next_cursor) == rows[1]


def test_pagination__a_number_can_be_a_cursor():
    page = page_of([7, 2**63 - 1, 9], [7, 2**63 - 1], limit=2, position=int)
    assert read_number(page.next_cursor) == 2**63 - 1


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_pagination__the_last_page_has_no_cursor(rows):
    page = page_of(list(range(rows)), list(range(rows)), limit=2, position=int)
    assert page.next_cursor is None


@pytest.mark.parametrize("reader", [read_id, read_number], ids=["id", "number"])
def test_pagination__without_a_cursor_the_first_page_is_returned(reader):
    assert reader(None) is None


FORGED = [
    "",
    "*",
    "é",
    "MTIz\n",
    "MDAwMDAwMDAwMDAwMDAwMDAwMDA'",
    "_" * 99,
    "OTk5OTk5OTk5OTk5OTk5OTk5OTk5",
]


@pytest.mark.parametrize("reader", [read_id, read_number], ids=["id", "number"])
@pytest.mark.parametrize("cursor", FORGED, ids=[str(number) for number in range(len(FORGED))])
def test_pagination__an_invalid_cursor_is_rejected(reader, cursor):
    with pytest.raises(RequestValidationError) as refused:
        reader(cursor)
    assert refused.value.errors()[0]["loc"] == ("query", "cursor")
