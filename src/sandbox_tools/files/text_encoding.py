import codecs
from dataclasses import dataclass

SAMPLE = 65_536


@dataclass(frozen=True)
class Encoding:
    """Encoding of a text file, with its byte order mark."""

    codec: str
    bom: bytes = b""

    def decode(self, content: bytes) -> str:
        return content.removeprefix(self.bom).decode(self.codec)

    def encode(self, text: str) -> bytes:
        return self.bom + text.encode(self.codec)


_WITH_BOM = (
    Encoding("utf-8", codecs.BOM_UTF8),
    Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("utf-16-be", codecs.BOM_UTF16_BE),
)


def detect_encoding(content: bytes) -> Encoding | None:
    """Detect the encoding from the beginning of a file; None for a binary file."""
    sample = content[:SAMPLE]
    for encoding in _WITH_BOM:
        if sample.startswith(encoding.bom):
            return encoding
    if b"\0" in sample:
        return None
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(content) <= SAMPLE)
    except UnicodeDecodeError:
        return Encoding(
            "latin-1"
        )  # decodes any bytes, and preserves them when they are written back
    return Encoding("utf-8")
