from datetime import datetime
from typing import Annotated

from pydantic import Field

from sandbox_client.models.access import KeyScope
from sandbox_client.models.wire import Told


class LoginRead(Told):
    """A browser that is signed in, and the API key that it was signed in with."""

    id: str
    tenant: str
    key_id: str
    key_name: str
    key_prefix: Annotated[str, Field(description="How the key begins.")]
    scopes: list[KeyScope]
    expires_at: datetime
