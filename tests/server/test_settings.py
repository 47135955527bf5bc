import os

import pytest
from pydantic import ValidationError

from sandbox_server.cli.main import main
from sandbox_server.settings import Settings, flags, forget_variables, variable_of


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(variable_of(name), raising=False)


def test_settings__standard_variables_have_no_prefix(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://there/db")
    monkeypatch.setenv("E2B_API_KEY", "e2b_key")
    monkeypatch.setenv("SANDBOX_SERVER_PORT", "9000")
    settings = Settings()
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value() == "postgresql://there/db"
    assert settings.e2b_api_key is not None
    assert settings.port == 9000


def test_settings__an_empty_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "")
    assert Settings().database_url is None


def test_settings__a_secret_may_be_in_a_file(monkeypatch, tmp_path):
    for name, content in {
        "key": "e2b_key\n",
        "backends": '[{"name": "a", "api_key": "e2b_a"}]\n',
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("E2B_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("SANDBOX_SERVER_BACKENDS_FILE", str(tmp_path / "backends"))
    settings = Settings()
    assert settings.e2b_api_key is not None
    assert settings.e2b_api_key.get_secret_value() == "e2b_key"
    assert [backend.name for backend in settings.backends] == ["a"]


def test_settings__a_variable_overrides_its_file(monkeypatch, tmp_path):
    (tmp_path / "key").write_text("e2b_file")
    monkeypatch.setenv("E2B_API_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("E2B_API_KEY", "e2b_variable")
    settings = Settings()
    assert settings.e2b_api_key is not None
    assert settings.e2b_api_key.get_secret_value() == "e2b_variable"


def test_settings__a_missing_file_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("E2B_API_KEY_FILE", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit):
        main(["doctor"])
    assert f"{tmp_path / 'nowhere'}: No such file or directory" in capsys.readouterr().err


def test_settings__secrets_are_no_flags_and_never_printed(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:hunter2@there/db")
    monkeypatch.setenv("E2B_API_KEY", "hunter2")
    assert "hunter2" not in repr(Settings())
    names = dict(flags())
    assert "port" in names
    assert names.keys().isdisjoint({"database_url", "e2b_api_key"})


def test_settings__refused_values_are_not_quoted(monkeypatch):
    monkeypatch.setenv("SANDBOX_SERVER_PORT", "hunter2")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert "hunter2" not in str(refused.value)


def test_settings__secret_variables_are_removed_from_the_environment(monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "hunter2")
    monkeypatch.setenv("SANDBOX_SERVER_HOST", "::1")
    forget_variables()
    assert "hunter2" not in os.environ.values()
    assert "SANDBOX_SERVER_HOST" not in os.environ


def test_settings__the_state_directory_is_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Settings(state_dir="here").state_dir == tmp_path / "here"


def test_settings__origins_are_read_from_one_variable(monkeypatch):
    monkeypatch.setenv(
        "SANDBOX_SERVER_ALLOWED_ORIGINS", "https://app.example.com, http://localhost:3000,*"
    )
    assert Settings().allowed_origins == (
        "https://app.example.com",
        "http://localhost:3000",
        "*",
    )


@pytest.mark.parametrize(
    "origin", ["app.example.com", "https://app.example.com/", "https://*.example.com", "null"]
)
def test_settings__an_invalid_origin_is_refused(origin):
    with pytest.raises(ValidationError):
        Settings(allowed_origins=(origin,))
