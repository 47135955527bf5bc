from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from sandbox_engine.errors import InvalidRequest, NotImplementedHere

_GCP_USER = "_json_key"


@dataclass(frozen=True)
class RegistryCredentials:
    """What a registry asks for before it hands out an image."""

    username: str
    password: str = field(repr=False)

    @classmethod
    def of_request(cls, registry: Mapping[str, object]) -> Self:
        """Read the `fromImageRegistry` of a build request."""
        match registry:
            case {"type": "registry", "username": str(username), "password": str(password)}:
                return cls._checked(username, password)
            case {"type": "gcp", "serviceAccountJson": str(key)}:
                return cls._checked(_GCP_USER, key)
            case {"type": "aws"}:
                raise NotImplementedHere(
                    "Signing in to AWS with an access key (the password that `aws ecr "
                    "get-login-password` prints works, for the user AWS)"
                )
        raise InvalidRequest("fromImageRegistry is none of: registry, aws, gcp")

    @classmethod
    def _checked(cls, username: str, password: str) -> Self:
        if ":" in username or not username or not password:
            raise InvalidRequest("a registry's user name must not be empty nor hold a colon")
        return cls(username, password)
