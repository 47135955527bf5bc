import pytest
import trustme
from pydantic import ValidationError

from sandbox_server.providers.settings import BackendSettings, require_consistent

KEY = "e2b_" + "5ec2e7" * 7


def settings(name="here", **fields):
    return BackendSettings.model_validate({"name": name, "api_key": KEY, **fields})


def test_backend_settings__a_domain_suffices():
    endpoint = settings(domain="sandboxes.example").endpoint()
    assert endpoint.api_url == "https://api.sandboxes.example"
    assert endpoint.sandbox_url is None
    assert endpoint.domain == "sandboxes.example"


def test_backend_settings__urls_and_certificates_are_used_unchanged(tmp_path):
    authority = trustme.CA().cert_pem
    authority.write_to_path(tmp_path / "ca.pem")
    endpoint = settings(
        api_url="http://127.0.0.1:1/", sandbox_url="https://there", ca_cert=tmp_path / "ca.pem"
    ).endpoint()
    assert endpoint.api_url == "http://127.0.0.1:1"
    assert endpoint.sandbox_url == "https://there"
    assert endpoint.ca_cert == authority.bytes()


def test_backend_settings__certificates_are_read_before_privileges_are_dropped(tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    read = settings(ca_cert=tmp_path / "ca.pem")
    (tmp_path / "ca.pem").unlink()
    assert read.endpoint().ca_cert


@pytest.mark.parametrize("content", [None, b"", b"no certificate", b"\xff"])
def test_backend_settings__unreadable_certificates_are_refused(tmp_path, content):
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
def test_backend_settings__invalid_values_are_refused_without_quoting_the_key(fields):
    with pytest.raises(ValidationError) as caught:
        settings(**fields)
    assert KEY not in str(caught.value)


def test_backend_settings__the_key_is_not_printed():
    assert KEY not in repr(settings())
    assert KEY not in repr(settings().endpoint())


@pytest.mark.parametrize(
    ("backends", "complaint"),
    [
        ([settings("a"), settings("a")], "two backends named 'a'"),
        ([settings("a", overflow_to="b")], "overflows to 'b'"),
    ],
)
def test_backend_settings__contradictions_are_refused(backends, complaint):
    with pytest.raises(ValueError, match=complaint):
        require_consistent(backends)


def test_backend_settings__backends_may_overflow_to_each_other():
    require_consistent([settings("a", overflow_to="b"), settings("b", overflow_to="a")])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"kind": "browserbase", "sandbox_url": "http://a"},
            "browserbase does not have sandbox_url",
        ),
        ({"kind": "browserbase", "templates": ["a"]}, "browserbase does not have templates"),
        ({"project_id": "a"}, "e2b does not have project_id"),
        ({"kind": "kernel"}, "kind"),
    ],
)
def test_settings__fields_of_another_kind_are_refused(fields, said):
    with pytest.raises(ValidationError, match=said):
        BackendSettings.model_validate({"name": "one", "api_key": KEY, **fields})


def test_settings__browserbase_has_an_address_by_default():
    settings = {"name": "one", "api_key": KEY, "kind": "browserbase"}
    endpoint = BackendSettings.model_validate(settings).endpoint()
    assert endpoint.api_url == "https://api.browserbase.com"
