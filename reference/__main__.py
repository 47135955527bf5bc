"""Generates docs/openapi.json and docs/api.md from the API's description."""

from reference import document, snapshot


def main() -> None:
    snapshot.FILE.write_text(snapshot.written())
    document.FILE.write_text(document.written())


main()
