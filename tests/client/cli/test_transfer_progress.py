import pytest

from sandbox_client.cli.output.transfer_progress import format_progress, format_size


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (2_000_000, "2.0 MB"), (3e15, "3000.0 TB")],
)
def test_transfer_progress__format_size(size, said):
    assert format_size(size) == said


def test_transfer_progress__line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    half = format_progress("big.bin", 500_000, 1_000_000, 1)
    assert half.startswith("big.bin  ████████████░░░░░░░░░░░░  50%  500.0 kB of 1.0 MB")
    assert len(format_progress("x" * 200, 1, 2, 1)) < 80
    assert format_progress("stdin", 1500, None, 0.5) == "stdin  1.5 kB  3.0 kB/s"
    assert "100%" in format_progress("grew", 3, 2, 1)
