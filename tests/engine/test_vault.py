import pytest

from sandbox_engine.secrets.vault import SecretUnreadable, Vault


@pytest.fixture
def vault(tmp_path):
    return Vault(tmp_path)


def record_of(directory, secret):
    return directory / "secrets" / secret.id / "record.json"


def test_a_value_is_opened_by_a_vault_with_the_same_key(vault, tmp_path):
    vault.create("name", "välue", {})
    vault.update("name", "välue 2", None)
    assert Vault(tmp_path).reveal("name") == "välue 2"
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert len((tmp_path / "key").read_bytes()) == 32


def test_a_value_does_not_open_with_another_key(vault, tmp_path):
    vault.create("name", "value", {})
    (tmp_path / "key").unlink()
    with pytest.raises(SecretUnreadable):
        Vault(tmp_path).reveal("name")


def test_a_sealed_value_put_into_another_secret_does_not_open(vault, tmp_path):
    one, other = (vault.create(name, f"value of {name}", {}) for name in ("one", "other"))
    moved = record_of(tmp_path, other).read_text().replace(other.sealed, one.sealed)
    record_of(tmp_path, other).write_text(moved)
    again = Vault(tmp_path)
    assert again.reveal("one") == "value of one"
    with pytest.raises(SecretUnreadable):
        again.reveal("other")


def test_a_value_put_back_after_an_update_does_not_open(vault, tmp_path):
    old = vault.create("name", "old", {})
    new = vault.update("name", "new", None)
    replayed = record_of(tmp_path, new).read_text().replace(new.sealed, old.sealed)
    record_of(tmp_path, new).write_text(replayed)
    with pytest.raises(SecretUnreadable):
        Vault(tmp_path).reveal("name")


def test_the_same_value_is_never_sealed_twice_alike(vault):
    one, other = (vault.create(name, "value", {}) for name in ("one", "other"))
    assert one.sealed != other.sealed
    assert vault.update("one", "value", None).sealed != one.sealed


def test_a_removed_secret_leaves_nothing(vault, tmp_path):
    secret = vault.create("name", "value", {})
    vault.remove("name")
    assert not record_of(tmp_path, secret).parent.exists()
    assert Vault(tmp_path).all() == []
