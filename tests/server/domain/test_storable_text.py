from sandbox_server.domain.errors import BackendRefused
from sandbox_server.domain.errors.storable_text import storable


def test_storable__removes_what_text_columns_cannot_store():
    assert storable("a\0b\ud800c ü") == "ab?c ü"


def test_backend_error__any_message_can_be_stored():
    assert BackendRefused("b", "a\0\udfff").reason == "a?"
