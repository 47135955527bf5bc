import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_server.db.embedded import EmbeddedPostgres

_VAR_TMP = "/var/tmp"  # noqa: S108 - not in memory, as /tmp may be


@contextmanager
def running_postgres() -> Iterator[str]:
    """Run the server's PostgreSQL on an empty directory; yields its URL."""
    directory = Path(tempfile.mkdtemp(prefix="sandbox-bench-", dir=_VAR_TMP))
    directory.chmod(0o711)  # its account has to get through
    postgres = EmbeddedPostgres(directory / "postgres")
    try:
        yield postgres.start()
    finally:
        postgres.stop()
        shutil.rmtree(directory)
