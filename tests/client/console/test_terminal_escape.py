import pytest

from sandbox_client.console.terminal import Escape


@pytest.mark.parametrize(
    ("typed", "passed_on", "is_complete"),
    [
        (b"ls\r", b"ls\r", False),
        (b"~.", b"", True),
        (b"ls\r~.more", b"ls\r", True),
        (b"a~.", b"a~.", False),
        (b"~~.\r", b"~.\r", False),
        (b"~x", b"~x", False),
        (b"\r~\r~.", b"\r~\r", True),
    ],
)
def test_terminal_escape__is_detected_in_any_chunking(typed, passed_on, is_complete):
    for pieces in ([typed], [bytes([byte]) for byte in typed]):
        escape = Escape()
        passed = b"".join(escape.feed(piece) for piece in pieces if not escape.is_complete)
        assert (passed, escape.is_complete) == (passed_on, is_complete)
