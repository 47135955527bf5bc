import pytest
from fastapi.routing import iter_route_contexts

from sandbox_server.http.faults import Malformed
from sandbox_server.http.json_body import JsonRoute, read_json


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1, column 2"),
        (b'{"a": 1,}', "line 1"),
        (b'{"a": 1} x', "Extra data"),
        (b'{"a": 1, "a": 2}', "duplicate field"),
        (b'[{"b": {"a": 1, "\\u0061": 2}}]', "duplicate field"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"[1e999]", "too large"),
        (b"9" * 5000, "too long"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"a":' * 200_000, "nested too deeply"),
        (b'"\xff"', "not UTF-8"),
        ('"ä"'.encode("utf-16"), "not UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'"\0"', "Invalid control character"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_json_body__invalid_json_is_rejected(body, said):
    with pytest.raises(Malformed, match=said):
        read_json(body)


def test_json_body__valid_json_is_parsed():
    assert read_json(b' {"a": [1, 2.5e3, "\\u00e4", null, true, {"a": {}}]} ') == {
        "a": [1, 2500.0, "ä", None, True, {"a": {}}]
    }


def test_json_body__rejected_input_is_not_echoed():
    with pytest.raises(Malformed) as refused:
        read_json(b'{"password": "hunter2" "x"}')
    assert "hunter2" not in str(refused.value)


def test_json_body__every_route_with_a_body_parses_strictly(app):
    for route in iter_route_contexts(app.routes):
        if getattr(route, "body_field", None) is not None:
            assert isinstance(route.original_route, JsonRoute), route.path
