import pytest

from sandbox_engine.envd.files.encodings import NotAcceptable, choose_encoding


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("gzip, deflate", "gzip"),
        ("deflate, br", "identity"),
        ("deflate, gzip", "gzip"),
        ("gzip;q=0.5, identity", "identity"),
        ("identity;q=0.5, gzip", "gzip"),
        ("GZIP;Q=1", "gzip"),
        ("gzip;q=0", "identity"),
        ("*", "identity"),
        ("*, identity;q=0", "gzip"),
        ("gzip;q=nonsense", "gzip"),
    ],
)
def test_content_encoding__preferred_encoding_is_chosen(accepted, chosen):
    assert choose_encoding(accepted, only_identity=False) == chosen


@pytest.mark.parametrize("accepted", ["identity;q=0", "*;q=0", "br, *;q=0"])
def test_content_encoding__no_acceptable_encoding_is_rejected(accepted):
    with pytest.raises(NotAcceptable):
        choose_encoding(accepted, only_identity=False)
