"""What these tests share with those of the API, whose metrics they are."""

from tests.server.api.conftest import (  # noqa: F401 - fixtures
    admin,
    app,
    backends,
    commands,
    controller,
    locks,
    make_key,
    notifications,
    services,
    settings,
    stranger,
    streams,
    vault,
)
