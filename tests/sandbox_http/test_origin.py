import pytest

from sandbox_http.origin import sign_origin, verify_origin

KEY = "e2b_0123456789abcdef"
TARGET = b"/git/github.com/acme/widgets/info/refs?service=git-upload-pack"
NOW = 1_800_000_000


def sign(*, method="GET", target=TARGET, at=NOW):
    return sign_origin(KEY, "i1a2b3", method=method, target=target, at=at)


def verify(value, *, key=KEY, method="GET", target=TARGET, now=NOW):
    return verify_origin(key, value, method=method, target=target, now=now)


def test_origin__names_the_sandbox():
    assert verify(sign()) == "i1a2b3"
    assert verify(sign(at=NOW - 60)) == "i1a2b3"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b";",
        b"i1a2b3",
        b"i1a2b3;x;00",
        sign().replace(b"i1a2b3", b"i9z9z9"),
        sign().replace(b"1800000000", b"1800000001"),
        sign()[:-1],
        sign().upper(),
        sign(method="POST"),
        sign(target=TARGET.replace(b"widgets", b"secrets")),
        sign(at=NOW - 61),
        sign(at=NOW + 61),
    ],
)
def test_origin__forged_old_or_of_another_request(value):
    assert verify(value) is None


def test_origin__of_another_engine():
    assert verify(sign(), key="e2b_fedcba9876543210") is None
