from tests.server.tools.conftest import api, make_sandbox, run  # noqa: F401 - fixtures
