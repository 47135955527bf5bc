import pytest

from sandbox_server.domain.tasks.refs import is_branch, is_ref


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("refs/heads/task-42", True),
        ("refs/heads/feature/ünïcode", True),
        ("refs/heads/a.lock", False),
        ("refs/heads/.a", False),
        ("refs/heads/a.", False),
        ("refs/heads/a..b", False),
        ("refs/heads/a@{1}", False),
        ("refs/heads//a", False),
        ("refs/heads/", False),
        ("refs/heads/a\x7f", False),
        ("heads/a", False),
    ],
)
def test_is_ref(name, valid):
    assert is_ref(name) is valid


def test_is_branch__no_option_and_no_head():
    assert is_branch("feature/task-42")
    assert not is_branch("-f")
    assert not is_branch("HEAD")
    assert not is_branch("")
