import subprocess

import pytest

from sandbox_server.db.embedded import EmbeddedPostgres
from tests.server.support.databases import SETTINGS
from tests.server.support.scratch_directory import scratch_directory


@pytest.fixture(scope="session")
def made_cluster():
    """Make the files of a server once: initdb takes longer than most tests."""
    with scratch_directory() as directory:
        postgres = EmbeddedPostgres(directory / "postgres", settings=SETTINGS)
        postgres.start()
        postgres.stop()
        yield directory / "postgres"


@pytest.fixture
def directory(scratch, made_cluster):
    """Copy the files of a server that was started before, for a test to start again."""
    subprocess.run(["cp", "--archive", made_cluster, scratch], check=True)
    return scratch / "postgres"


@pytest.fixture
def postgres(directory):
    return EmbeddedPostgres(directory, settings=SETTINGS)
