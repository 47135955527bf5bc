import secrets

from sandbox_engine.system.private_files import write_private
from sandbox_engine.system.settings import Settings

_BYTES = 20  # the SDK expects `e2b_` and forty hex digits


def find_api_key(settings: Settings) -> str:
    """Give the key callers send: the one in the settings, else the one kept, made when missing."""
    if settings.api_key is not None:
        return settings.api_key
    path = settings.state_dir / "api.key"
    if not path.exists():
        write_private(path, f"e2b_{secrets.token_hex(_BYTES)}\n".encode())
    return path.read_text().strip()
