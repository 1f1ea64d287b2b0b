"""What a file holds, by its first bytes: an image that is read, a picture that is not and why, or something else."""

from __future__ import annotations

import struct
from importlib.util import find_spec
from typing import NamedTuple

from PIL import Image

SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm"),
    *(".jfif", ".jpe", ".jif", ".avif", ".jp2", ".j2k", ".jpx", ".pnm", ".dib", ".apng"),
)
"""Suffixes of images: such a file counts as an image without being opened."""

TEXT_SUFFIXES = (
    ".txt",
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".xml",
    ".yaml",
    ".yml",
    ".md",
    ".html",
    ".npy",
    ".npz",
    ".pkl",
)
"""Suffixes of files that accompany images, often one per image: such a file is no image, and it is not opened."""

HEAD_BYTES = 512
"""Bytes at the beginning of a file that show what it is."""

FORMATS = (
    *("JPEG", "PNG", "BMP", "DIB", "GIF", "TIFF", "WEBP", "PPM", "AVIF", "JPEG2000", "ICO"),
    *("BLP", "CUR", "DCX", "DDS", "FITS", "FLI", "FTEX", "GBR", "ICNS", "MSP", "PCX", "PIXAR", "PSD", "QOI", "SGI"),
    *("SUN", "XBM", "XPM"),
)
"""The formats that are read, whatever a file is called: all that Pillow decodes itself and knows by the first bytes.
PostScript is not among them, because an interpreter would run it, nor are formats that need other programs."""

UNAMBIGUOUS_FORMATS = frozenset(
    {"JPEG", "PNG", "GIF", "TIFF", "WEBP", "AVIF", "JPEG2000", "DDS", "ICNS", "PSD", "QOI", "SUN", "HEIF"}
)
"""Formats that begin with bytes that no other file has by chance."""

TARGA = (".tga", ".icb", ".vda", ".vst")
"""Names of images in the one common format that has no first bytes of its own."""

RAW_REASON = "a camera's raw file, of which only the thumbnail could be read: develop it to JPEG, PNG or TIFF"
HEIC_REASON = "HEIC, which needs a package: pip install 'fca[heic]'"
CONVERT = "is not read: convert it to PNG or JPEG"

RAW_SUFFIXES = (
    *(".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq", ".kdc", ".mef", ".mos"),
    *(".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"),
)
TIFF_STARTS = (b"II\x2a\x00", b"MM\x00\x2a", b"II\x2b\x00", b"MM\x00\x2b")
HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")
CONTAINER_BRANDS = (b"mif1", b"msf1")  # of HEIC and AVIF


class Signature(NamedTuple):
    """The bytes by which an unsupported kind of picture is recognised, their position, and why it is not read."""

    at: int
    start: bytes
    reason: str


SIGNATURES = (
    Signature(0, b"FUJIFILMCCD-RAW", RAW_REASON),
    Signature(0, b"IIU\x00", RAW_REASON),
    Signature(0, b"IIRO", RAW_REASON),
    Signature(0, b"IIRS", RAW_REASON),
    Signature(0, b"MMOR", RAW_REASON),
    Signature(0, b"FOVb", RAW_REASON),
    Signature(0, b"\x00MRM", RAW_REASON),
    Signature(4, b"ftypcrx ", RAW_REASON),
    Signature(6, b"HEAPCCDR", RAW_REASON),
    Signature(8, b"CR\x02", RAW_REASON),
    Signature(0, b"%!PS", "PostScript, a program that is not run: save it as PNG"),
    Signature(0, b"\xc5\xd0\xd3\xc6", "PostScript, a program that is not run: save it as PNG"),
    Signature(0, b"\x00\x00\x00\x0cJXL ", f"JPEG XL {CONVERT}"),
    Signature(0, b"II\xbc\x01", f"JPEG XR {CONVERT}"),
    Signature(0, b"\x76\x2f\x31\x01", f"OpenEXR {CONVERT}"),
    Signature(0, b"#?RADIANCE", f"Radiance HDR {CONVERT}"),
    Signature(0, b"#?RGBE", f"Radiance HDR {CONVERT}"),
    Signature(0, b"gimp xcf", f"a GIMP file {CONVERT}"),
    Signature(0, b"AT&TFORM", f"DjVu {CONVERT}"),
    Signature(0, b"\x8aMNG", f"MNG {CONVERT}"),
    Signature(0, b"\xd7\xcd\xc6\x9a", f"a Windows metafile {CONVERT}"),
    Signature(40, b" EMF", f"a Windows metafile {CONVERT}"),
    Signature(128, b"DICM", f"DICOM {CONVERT}"),
)


def why_not_read(head: bytes, path: str) -> str | None:
    """The reason why a picture cannot be read; None if it can (see FORMATS), and for a file that is no picture at all.

    head: the file's first bytes, up to HEAD_BYTES.
    path: its suffix distinguishes some formats with equal starts.

    >>> why_not_read(b"%!PS-Adobe-3.0 EPSF-3.0", "plot.eps")
    'PostScript, a program that is not run: save it as PNG'
    """
    suffix = suffix_of(path)
    if head.startswith(TIFF_STARTS) and suffix in RAW_SUFFIXES:  # many raw files are TIFFs
        return RAW_REASON
    if is_heic(head):
        return None if reads_heic() else HEIC_REASON  # an optional package reads it
    for at, start, reason in SIGNATURES:
        if head.startswith(start, at):
            return reason
    if suffix == ".jxl" and head.startswith(b"\xff\x0a"):  # two bytes alone may begin anything
        return f"JPEG XL {CONVERT}"
    if b"<svg" in head:
        return f"SVG, a drawing without pixels, {CONVERT}"
    return None


def suffix_of(path: str) -> str:
    """The suffix of a path's last name, in lower case; "" if it has none.

    >>> suffix_of("cat/1.JPG"), suffix_of("v1.2/README"), suffix_of(".hidden")
    ('.jpg', '', '')
    """
    stem, _, suffix = path.rpartition("/")[2].rpartition(".")
    return f".{suffix.lower()}" if stem else ""


def reads_heic() -> bool:
    """Whether the optional package that reads HEIC is installed."""
    return find_spec("pillow_heif") is not None


def is_heic(head: bytes) -> bool:
    """Whether a file is a HEIC photograph, as phones write it. AVIF uses the same container.

    head: the file's first bytes. A file of this container begins with a box: its length (4 bytes), "ftyp", the main
    brand (4 bytes), a version (4 bytes), and then all brands with which the file is compatible. A brand is a word of 4
    letters.
    """
    if head[4:8] != b"ftyp":
        return False
    main_brand = head[8:12]
    if main_brand in HEIC_BRANDS:
        return True
    # The main brand may name only the container, which HEIC and AVIF share. Then the compatible brands decide.
    brands = head[16 : int.from_bytes(head[:4])]  # up to the end of the box
    is_compatible = any(brand in brands for brand in HEIC_BRANDS)
    return main_brand in CONTAINER_BRANDS and b"avif" not in brands and is_compatible


def formats_of(path: str) -> tuple[str, ...]:
    """Pillow's names of the formats in which a file of this name may be."""
    return (*FORMATS, "TGA") if suffix_of(path) in TARGA else FORMATS


def format_of(head: bytes, path: str) -> str | None:
    """Pillow's name of the format that a file seems to have by its first bytes and its name; None if no format fits.

    The first bytes of a format that is not in UNAMBIGUOUS_FORMATS may also begin a text ("BM", "P5"); then only opening
    the file shows whether it is an image.

    >>> format_of(b"\\xff\\xd8\\xff\\xe0", "photo"), format_of(b"BMW, Audi", "cars"), format_of(b"a text", "notes")
    ('JPEG', 'BMP', None)
    """
    if is_heic(head):
        return "HEIF"
    Image.init()  # fills Image.OPEN with all of Pillow's formats
    return next((name for name in formats_of(path) if _may_begin(name, head)), None)


def _may_begin(name: str, head: bytes) -> bool:
    """Whether Pillow's test of the first bytes accepts them for a format; a format without a test accepts all."""
    accepts = Image.OPEN[name][1]
    try:
        return accepts is None or bool(accepts(head[:16]))
    except (struct.error, IndexError):  # fewer bytes than any such image has
        return False
