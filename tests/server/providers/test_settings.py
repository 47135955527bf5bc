import pytest
import trustme
from pydantic import ValidationError

from sandbox_server.providers.settings import BackendSettings, require_consistent

KEY = "e2b_" + "5ec2e7" * 7


def settings(name="here", **fields):
    return BackendSettings.model_validate({"name": name, "api_key": KEY, **fields})


def test_a_domain_is_all_that_it_takes():
    endpoint = settings(domain="sandboxes.example").endpoint()
    assert endpoint.api_url == "https://api.sandboxes.example"
    assert endpoint.sandbox_url is None
    assert endpoint.domain == "sandboxes.example"


def test_addresses_and_certificates_are_taken_as_given(tmp_path):
    authority = trustme.CA().cert_pem
    authority.write_to_path(tmp_path / "ca.pem")
    endpoint = settings(
        api_url="http://127.0.0.1:1/", sandbox_url="https://there", ca_cert=tmp_path / "ca.pem"
    ).endpoint()
    assert endpoint.api_url == "http://127.0.0.1:1"
    assert endpoint.sandbox_url == "https://there"
    assert endpoint.ca_cert == authority.bytes()


def test_certificates_are_read_while_that_is_allowed(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    read = settings(ca_cert=tmp_path / "ca.pem")
    (tmp_path / "ca.pem").unlink()
    assert read.endpoint().ca_cert


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff"])
def test_certificates_that_cannot_be_read_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "ca.pem").write_bytes(content)
    with pytest.raises(ValidationError, match=r"certificates in .*ca\.pem cannot be read"):
        settings(ca_cert=tmp_path / "ca.pem")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "Capital"},
        {"name": ""},
        {"name": "a/b"},
        {"api_url": "localhost:3000"},
        {"capacity": -1},
        {"max_continuous_run_s": 5},
        {"unknown": 1},
    ],
)
def test_what_cannot_be_meant_is_refused_without_telling_the_key(fields):
    with pytest.raises(ValidationError) as caught:
        settings(**fields)
    assert KEY not in str(caught.value)


def test_the_key_does_not_show():
    assert KEY not in repr(settings())
    assert KEY not in repr(settings().endpoint())


@pytest.mark.parametrize(
    ("backends", "complaint"),
    [
        ([settings("a"), settings("a")], "two backends named 'a'"),
        ([settings("a", overflow_to="b")], "overflows to 'b'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(backends, complaint):
    with pytest.raises(ValueError, match=complaint):
        require_consistent(backends)


def test_backends_may_overflow_to_each_other():
    require_consistent([settings("a", overflow_to="b"), settings("b", overflow_to="a")])
