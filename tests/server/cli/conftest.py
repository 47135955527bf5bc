from tests.server.supervisor.conftest import running, server, started  # noqa: F401 - fixtures
