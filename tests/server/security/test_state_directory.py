"""A state directory that another local account can write to."""

import os

import pytest

from sandbox_server.supervisor.errors import CannotServe
from sandbox_server.supervisor.state_directory import sole_server

NOBODY = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_state_directory__one_of_another_account_is_not_used_by_root(tmp_path):
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(CannotServe, match="Other accounts can write"), sole_server(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_state_directory__a_world_writable_one_is_not_used(tmp_path):
    tmp_path.chmod(0o1777)
    with pytest.raises(CannotServe, match="chmod o-w"), sole_server(tmp_path):
        pass


def test_state_directory__a_symlink_in_place_of_the_lock_is_not_followed(tmp_path):
    (precious := tmp_path / "precious").write_text("something")
    (state := tmp_path / "state").mkdir()
    (state / "server.lock").symlink_to(precious)
    with pytest.raises(CannotServe, match="symbolic link"), sole_server(state):
        pass
    assert precious.read_text() == "something"
