from datetime import timedelta

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    """Camel case on the wire; unknown fields are ignored, as in E2B."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def seconds(count: int) -> timedelta:
    """Convert to a duration, limited to what date arithmetic supports."""
    return timedelta(seconds=max(-1, min(count, 10**9)))
