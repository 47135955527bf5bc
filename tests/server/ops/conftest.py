"""What these tests share with those of the API, whose metrics they are."""

from tests.server.api.conftest import (  # noqa: F401 - fixtures
    admin,
    app,
    backends,
    controller,
    make_key,
    services,
    settings,
    stranger,
    vault,
)
