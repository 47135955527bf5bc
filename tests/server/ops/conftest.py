"""What these tests share with those of the API, whose metrics they are."""

from tests.server.api.conftest import *  # noqa: F403 - fixtures
