"""Small image files in folders and archives, as the tests of loaders need them."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from fca.data.splits import Share

VAL = Share(0.1, 0)


def png(seed: int = 0, size: tuple[int, int] = (4, 5)) -> bytes:
    """A PNG of noise, height and width given."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), "PNG")


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    """The file that Pillow writes."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def plant(root: Path, paths: list[str]) -> Path:
    """A directory with a different image at every path; other files hold text, a trailing slash makes a folder."""
    for seed, path in enumerate(paths):
        target = root / path
        if path.endswith("/"):
            target.mkdir(parents=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(png(seed) if target.suffix.lower() in (".png", ".jpg") else b"text")
    return root


def pack(archive: Path, paths: list[str]) -> Path:
    """The same as a .zip."""
    with zipfile.ZipFile(archive, "w") as file:
        for seed, path in enumerate(paths):
            file.writestr(path, b"" if path.endswith("/") else png(seed))
    return archive


def patched(archive: Path, at: int, entry: bytes) -> Path:
    """The archive with these bytes in the first entry of its central directory, the list of its members."""
    content = bytearray(archive.read_bytes())
    start = content.index(b"PK\x01\x02") + at
    content[start : start + len(entry)] = entry
    archive.write_bytes(content)
    return archive


def grid(*splits: str, classes: tuple[str, ...] = ("cat", "dog"), each: int = 4) -> list[str]:
    """split/class/number.png for all of them; without splits class/number.png."""
    prefixes = [f"{split}/" for split in splits] or [""]
    return [f"{prefix}{label}/{i}.png" for prefix in prefixes for label in classes for i in range(each)]
