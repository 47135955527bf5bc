from datetime import timedelta

import pytest

from sandbox_client.cli.output.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("15m", 900),
        ("2h", 7200),
        ("1h30m", 5400),
        ("7D", 604800),
    ],
)
def test_duration__parse(written, seconds):
    assert parse_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written", ["", "x", "-1", "5x", "1h 30m", "h", "1e3", "٣s", "nan", "9" * 400]
)
def test_duration__invalid_text_is_rejected_with_a_message(written):
    with pytest.raises(ValueError, match=r"is not a duration|is too long"):
        parse_duration(written)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-5, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (90, "1 min 30 s"),
        (3600, "1 h"),
        (3661, "1 h 1 min"),
        (86400 + 59, "1 d"),
        (90061, "1 d 1 h"),
    ],
)
def test_duration__format_uses_the_two_largest_units(seconds, said):
    assert format_duration(timedelta(seconds=seconds)) == said
