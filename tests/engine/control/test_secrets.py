"""Secrets through the unmodified SDK: refused until sandboxes can use them."""

import json
import os
import shutil

import pytest
from e2b import Secret, SecretException

from tests.engine.engine_process import running_engine

pytestmark = pytest.mark.needs_engine


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("create", ("name", "value")),
        ("get_info", ("name",)),
        ("update", ("name", "value")),
        ("exists", ("name",)),
        ("destroy", ("name",)),
    ],
)
def test_secrets__methods_are_answered_with_501(options, method, given):
    with pytest.raises(SecretException, match=r"501.*Storing secrets is not implemented"):
        getattr(Secret, method)(*given, **options)


def test_secrets__list_is_answered_with_501(options):
    with pytest.raises(SecretException, match="501"):
        Secret.list(**options).next_items()


@pytest.mark.slow  # a crash needs an engine of its own
async def test_secrets__state_directory_with_stored_secrets_still_opens():
    with running_engine("--pool-size", "0", "--disk-mb", "64") as engine:
        stored = engine.state_dir / "vault" / "sec_0123456789"
        stored.mkdir(parents=True)
        (stored.parent / "key").write_bytes(os.urandom(32))
        record = {"id": stored.name, "name": "name", "version": 1, "sealed": "", "metadata": {}}
        (stored / "record.json").write_text(json.dumps(record))
        await engine.restart()
        with pytest.raises(SecretException, match="501"):
            Secret.get_info("name", **engine.options)
        shutil.rmtree(stored.parent)
