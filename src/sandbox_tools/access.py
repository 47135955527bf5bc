import secrets

from fastmcp.server.auth import AccessToken, TokenVerifier

from sandbox_tools.toolkit.settings_file import SettingsFile


class TokenOfTheFile(TokenVerifier):
    """Lets in who has the token that the file of settings has at this moment."""

    def __init__(self, settings: SettingsFile) -> None:
        super().__init__()
        self._settings = settings

    async def verify_token(self, token: str) -> AccessToken | None:
        known = self._settings.read().token
        if known is None or not secrets.compare_digest(token.encode(), known.encode()):
            return None
        return AccessToken(token=token, client_id="server", scopes=[])
