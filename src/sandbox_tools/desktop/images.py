"""Encode pixels of the display. Pillow works outside of Python's lock, so call these in a thread."""

import io
from dataclasses import dataclass
from typing import Literal

from PIL import Image

Format = Literal["png", "jpeg"]
Region = tuple[int, int, int, int]


@dataclass(frozen=True)
class Picture:
    """Pixels of the display at one instant."""

    width: int
    height: int
    pixels: bytes

    def encode(self, form: Format = "png", quality: int = 80) -> bytes:
        return _encode(self._image(), form, quality)

    def zoom(self, region: Region) -> bytes:
        """Return a part as PNG, enlarged to the size of the display."""
        part = self._image().crop(region)
        scale = min(self.width / part.width, self.height / part.height)
        size = (max(1, round(part.width * scale)), max(1, round(part.height * scale)))
        return _encode(part.resize(size, Image.Resampling.LANCZOS), "png", 0)

    def fit(self, width: int, height: int) -> bytes:
        """Return the pixels in another size, with black bars if its shape differs."""
        if (width, height) == (self.width, self.height):
            return self.pixels
        scale = min(width / self.width, height / self.height)
        size = (max(1, round(self.width * scale)), max(1, round(self.height * scale)))
        frame = Image.new("RGB", (width, height))
        place = ((width - size[0]) // 2, (height - size[1]) // 2)
        frame.paste(self._image().resize(size), place)
        return frame.tobytes("raw", "BGRX")

    def _image(self) -> Image.Image:
        size = (self.width, self.height)
        return Image.frombuffer("RGB", size, self.pixels, "raw", "BGRX", 0, 1)


def _encode(image: Image.Image, form: Format, quality: int) -> bytes:
    file = io.BytesIO()
    if form == "png":
        image.save(file, "png", compress_level=1)
    else:
        image.save(file, "jpeg", quality=quality)
    return file.getvalue()
