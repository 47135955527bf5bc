from pathlib import Path

import pytest

from sandbox_server.access.configuration.file import (
    UnusableConfiguration,
    read_configurations,
    require_known_backends,
)

EXAMPLE = Path(__file__).parents[3] / "docs/configuration.example.toml"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "configuration.toml"
        path.write_text(text)
        return path

    return write


def test_configuration_file__the_documented_example_is_valid():
    configurations = read_configurations(EXAMPLE)
    assert configurations.keys() == {"default", "research"}
    types = configurations["default"].agent_types
    assert types["ci-fix"].template == "code-interpreter-v1"
    assert types["visual-tester"].capabilities == ["desktop"]
    assert types["web-scraper"].capabilities == ["browser"]
    assert require_known_backends(configurations, ["local"]) == configurations


def test_configuration_file__is_optional_and_may_omit_the_default_tenant(write):
    assert read_configurations(None) == {}
    assert read_configurations(write("")) == {}
    assert read_configurations(write("[tenants.team.default]")).keys() == {"team"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is not valid TOML"),
        ("[agent_types.ci-fix]\ntempalte = 'x'", "agent_types.ci-fix.tempalte: Unknown key."),
        ("[tenants.team.desktop]\ntimeout_s = 'x'", "tenants.team.desktop.timeout_s: "),
        (
            "[agent_types.a]\ntemplate = 'x'\ncapabilities = ['gui']",
            "agent_types.a: Set either `template` or `capabilities`.",
        ),
        ("[tenants.default.default]\n[default]", "configured at the top level"),
        ("[tenants.'No Name']", "tenants.No Name: "),
    ],
)
def test_configuration_file__errors_name_the_file_and_the_key(write, text, said):
    path = write(text)
    with pytest.raises(UnusableConfiguration) as refused:
        read_configurations(path)
    assert str(refused.value).startswith(str(path))
    assert said in str(refused.value)


def test_configuration_file__a_missing_file_is_an_error(tmp_path):
    with pytest.raises(UnusableConfiguration, match="No such file"):
        read_configurations(tmp_path / "missing.toml")


def test_configuration_file__unknown_backends_are_refused(write):
    configurations = read_configurations(write("[browser]\nbackend = 'cloud'"))
    with pytest.raises(UnusableConfiguration) as refused:
        require_known_backends(configurations, ["local"])
    assert str(refused.value) == (
        "The configuration of the tenant 'default' is invalid: browser.backend: Unknown backend: 'cloud'. Backends: local."
    )
