from datetime import timedelta

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """Camel case on the wire; unknown fields are ignored, as E2B does."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def seconds(count: int) -> timedelta:
    """Read a duration, held to what arithmetic on dates can take."""
    return timedelta(seconds=max(-1, min(count, 10**9)))
