"""Whether the compressed data of a JPEG are whole: decoders fill in what is missing, and Pillow does not mention it."""

from __future__ import annotations

import re

START, END = b"\xff\xd8\xff", b"\xff\xd9"
EXTRANEOUS = re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0x(..)")
PIXEL_WARNINGS = ("Corrupt JPEG data", "Premature end of JPEG file")  # how libjpeg's warnings about pixels begin
COLOUR_PROFILE_WARNING = "bad ICC marker"  # such a warning begins alike, but the pixels are intact
MAX_PADDING = 16  # bytes, or a hundredth of a larger file: some cameras fill up what they write


def damage(content: bytes) -> str:
    """libjpeg-turbo's warning that the compressed pixels of a JPEG are damaged; "" without one, and for other formats.

    content: the file's bytes.

    The decoder notices missing, overwritten and altered data if it runs out of data, has some left, or meets codes that
    do not exist. It does not notice altered data that decode to another picture.
    """
    if not content.startswith(START):
        return ""

    import simplejpeg  # imported here: only `task=describe` checks for damage

    try:
        # Grey at an eighth of the size (min_factor=8) is enough to notice damage, and fastest.
        simplejpeg.decode_jpeg(
            content, "GRAY", fastdct=True, fastupsample=True, min_height=1, min_width=1, min_factor=8
        )
    except ValueError as error:
        warning = str(error)
        # Other errors do not count: this decoder refuses CMYK files with reduced colour resolution, for example. Nor
        # does a warning about the colour profile, which begins alike: the pixels are intact.
        is_about_pixels = warning.startswith(PIXEL_WARNINGS) and COLOUR_PROFILE_WARNING not in warning
        return warning if is_about_pixels and not _is_harmless(warning, content) else ""
    return ""


def _is_harmless(warning: str, content: bytes) -> bool:
    """Whether a warning is about surplus bytes that belong to no picture: between headers, or padding before the end.

    warning: libjpeg's, which may state the number of surplus ("extraneous") bytes and the marker after them.
    content: the file's bytes.
    """
    match = EXTRANEOUS.match(warning)
    if match is None:
        return False

    n_extraneous = int(match[1])
    marker = bytes.fromhex(f"ff{match[2]}")
    if marker != END:
        # Harmless if that marker is of a header, which comes before the pixels.
        start_of_scan = b"\xff\xda"  # after this marker the pixels begin
        return content.find(marker) < content.find(start_of_scan)

    # Padding repeats one value, and the data before it have other values. If the data were overwritten with zeros up to
    # the end, the surplus bytes repeat one value, too, but then the bytes before them have the same value.
    end = content.rfind(END)
    extraneous = content[end - n_extraneous : end]
    last_data = content[end - n_extraneous - 4 : end - n_extraneous]  # four bytes are enough to find another value
    repeats_one_value = len(set(extraneous)) == 1
    is_padding = repeats_one_value and set(last_data) != set(extraneous)
    # Some cameras fill up what they write. That is accepted up to MAX_PADDING bytes, or a hundredth of a larger file.
    is_short = n_extraneous <= max(MAX_PADDING, len(content) // 100)
    return is_padding and is_short
