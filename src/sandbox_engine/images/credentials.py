from dataclasses import dataclass, field


@dataclass(frozen=True)
class RegistryCredentials:
    """What a registry asks for before it hands out an image."""

    username: str
    password: str = field(repr=False)
