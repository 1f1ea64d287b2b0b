"""Whether the compressed data of a JPEG are whole: decoders fill in what is missing, and Pillow does not mention it."""

from __future__ import annotations

import re

START, END = b"\xff\xd8\xff", b"\xff\xd9"
EXTRANEOUS = re.compile(r"Corrupt JPEG data: (\d+) extraneous bytes before marker 0x(..)")
OF_PIXELS = ("Corrupt JPEG data", "Premature end of JPEG file")  # how libjpeg's warnings about them begin
NOT_OF_PIXELS = "bad ICC marker"
PADDING = 16  # bytes; of larger files a hundredth, as some cameras fill up what they write


def damage(content: bytes) -> str:
    """libjpeg-turbo's warning about the pixels of a JPEG; "" if there is none, and for other formats.

    Found are missing, overwritten and altered data that leave the decoder without, or with surplus, data, or with
    codes that there are not. Altered data that decode to another picture are not. CMYK with reduced colours is not
    looked at, which this decoder does not know.
    """
    if not content.startswith(START):
        return ""

    import simplejpeg

    try:
        simplejpeg.decode_jpeg(
            content, "GRAY", fastdct=True, fastupsample=True, min_height=1, min_width=1, min_factor=8
        )
    except ValueError as error:
        warning = str(error)
        is_of_pixels = warning.startswith(OF_PIXELS) and NOT_OF_PIXELS not in warning
        return warning if is_of_pixels and not _is_harmless(warning, content) else ""
    return ""


def _is_harmless(warning: str, content: bytes) -> bool:
    """Whether a warning is about bytes that belong to no picture: between headers, or a filling before the end."""
    match = EXTRANEOUS.match(warning)
    if match is None:
        return False

    n_extraneous = int(match[1])
    marker = bytes.fromhex(f"ff{match[2]}")
    if marker != END:
        return content.find(marker) < content.find(b"\xff\xda")  # before the first scan

    end = content.rfind(END)
    filling = content[end - n_extraneous : end]
    last_data = content[end - n_extraneous - 4 : end - n_extraneous]
    # Zeros up to the end would also be of one value.
    is_one_value = len(set(filling)) == 1 and set(last_data) != set(filling)
    return is_one_value and n_extraneous <= max(PADDING, len(content) // 100)
