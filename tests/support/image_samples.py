"""What several tests share: image files of every kind."""

import io
import struct
import tarfile


def tiff(tags, magic=b"II\x2a\x00"):
    """A little-endian TIFF of one grey pixel, with these tags besides: (tag, value)."""
    base = {256: 1, 257: 1, 258: 8, 259: 1, 262: 1, 273: 0, 277: 1, 278: 1, 279: 1} | dict(tags)
    base[273] = 8 + 2 + 12 * len(base) + 4
    lines = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(base.items()))
    return magic + struct.pack("<IH", 8, len(base)) + lines + bytes(4) + b"\x80"


def shard(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return str(path.parent)


def samples(contents):
    return {f"{key}.cls": str(at % 2).encode() for at, key in enumerate(contents)}
