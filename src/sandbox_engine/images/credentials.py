from dataclasses import dataclass, field

from sandbox_engine.system.errors import InvalidRequest


@dataclass(frozen=True)
class RegistryCredentials:
    """What a registry asks for before it hands out an image."""

    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        if ":" in self.username or not self.username or not self.password:
            raise InvalidRequest("a registry's user name must not be empty nor hold a colon")
