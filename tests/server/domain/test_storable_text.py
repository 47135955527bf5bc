from sandbox_server.domain.errors import BackendRefused
from sandbox_server.domain.errors.storable_text import storable


def test_what_no_text_can_hold_is_left_out():
    assert storable("a\0b\ud800c ü") == "ab?c ü"


def test_what_a_backend_says_can_be_stored():
    assert BackendRefused("b", "a\0\udfff").reason == "a?"
