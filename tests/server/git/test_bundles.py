import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.domain.errors import BundleRefused
from sandbox_server.git.bundles import is_ref, read_bundle


@pytest.fixture
def bundle(seeded):
    return seeded.bundle("main~1")


def test_a_bundle_of_git_is_read(bundle, seeded):
    found = read_bundle(bundle)
    assert found.save == seeded.git("rev-parse", "main")
    assert found.prerequisites == [seeded.git("rev-parse", "main~1")]
    assert not found.is_empty


def test_a_bundle_that_ends_early_is_refused(bundle):
    for length in (0, 10, 60, len(bundle) // 2, len(bundle) - 1):
        with pytest.raises(BundleRefused):
            read_bundle(bundle[:length])


def test_a_changed_byte_of_the_pack_is_noticed(bundle):
    changed = bytearray(bundle)
    changed[-40] ^= 1
    with pytest.raises(BundleRefused, match="checksum"):
        read_bundle(bytes(changed))


@pytest.mark.parametrize(
    "ref",
    [
        "--upload-pack=x",
        "refs/heads/../../x",
        "refs/heads/a b",
        "refs/heads/a.lock",
        "refs/heads/-\n",
    ],
)
def test_refs_that_git_would_not_accept_are_refused(bundle, ref):
    assert not is_ref(ref)
    with pytest.raises(BundleRefused):
        read_bundle(bundle.replace(b"refs/sandbox/save", ref.encode()))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_bundle_or_refused(content):
    with pytest.raises(BundleRefused):
        read_bundle(b"# v2 git bundle\n" + content)
