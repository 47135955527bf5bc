from dataclasses import dataclass, field

from sandbox_engine.system.errors import InvalidRequest


@dataclass(frozen=True)
class RegistryCredentials:
    """Credentials for a registry."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if ":" in self.username or not self.username or not self.password:
            raise InvalidRequest("A registry's user name must not be empty or contain a colon.")
