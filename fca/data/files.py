"""Image files: a root that is a directory or a .zip is listed and read the same way; bytes become upright pixels.

Decoding and resizing leave Python's lock, so a few threads are enough for work on many images (`parallel_map`).
"""

from __future__ import annotations

import io
import logging
import os
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from jaxtyping import Bool, Int, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from fca.data.jpeg import damage
from fca.data.kinds import HEAD_BYTES, RAW_REASON, formats_of, is_heic, why_not_read
from fca.progress import track
from fca.types import FcaError, UnreadableImage, choices_in_words

log = logging.getLogger(__name__)

MASK_OBJECTS = ("bright", "dark")
GREY_RANGE = (32, 223)  # values of a mask that are neither black nor white; those beside come from JPEG
WHITE = 65535
"""The value of a 16-bit file that is shown white where nothing else is asked for."""

MAX_FILE_BYTES = 10**9
"""Bytes of a file that is read whole: Pillow refuses images that need more, and an archive may promise any number."""


def decode(content: bytes, path: str, white: int | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Decode an image file's bytes into RGB pixels, turned upright by the EXIF orientation.

    Transparent parts become white, as on a page (the colours under them are arbitrary and never visible). 16-bit values
    are scaled to 8 bits (65535 becomes 255), not clipped. Grey, palette, 1-bit and CMYK images are converted to RGB.
    Only the first frame of an animation is decoded. If the context variable IN_FILE is set, damage and the largest
    value of the file are noted in it.

    path:  the file's name, of which only the suffix is used; also for messages.
    white: the value that becomes 255 in a 16-bit file, for cameras that use fewer bits (4095 for 12 bits); None means
           65535. It has no effect on 8-bit files and on files that state their largest value (PGM, PPM).

    Raises UnreadableImage naming `path` if the content is truncated, no image, floating point, a raw photograph or HEIC
    without its package, or if a value exceeds `white`.
    """
    if record := IN_FILE.get():
        record.damage = damage(content)
    return np.array(_decode_upright(content, path, "RGB", white))


def decode_mask(content: bytes, path: str, objects: str) -> Bool[np.ndarray, "height width"]:
    """Decode an image file's bytes into an object mask, which is True on the object.

    path:    the file's name, of which only the suffix is used; also for messages.
    objects: which pixels are the object: "bright" (values above 127) or "dark" (all others). In a file without a value
             above 1, the value 1 is bright.

    Soft edges and JPEG noise are rounded to the nearer side. Raises UnreadableImage if the image is evidently no mask:
    if more than half of its pixels are grey (within GREY_RANGE), which is so in 9 of 10 photographs, or if some pixels
    are grey and all pixels are on the same side of the threshold.
    """
    values = np.asarray(_decode_upright(content, path, "L"))
    holds_zeros_and_ones = values.max() <= 1
    threshold = 0 if holds_zeros_and_ones else 127
    is_bright = values > threshold

    darkest_grey, brightest_grey = GREY_RANGE
    grey_share = float(((values >= darkest_grey) & (values <= brightest_grey)).mean())
    is_one_sided = is_bright.all() == is_bright.any()  # all bright or all dark
    if grey_share > 0.5 or (grey_share > 0 and is_one_sided):
        grey = f"{grey_share:.0%} of the pixels grey ({darkest_grey} to {brightest_grey})"
        value_range = f"values {values.min()} to {values.max()}, {grey}"
        raise UnreadableImage(f"{path}: {value_range}: no mask, which is black and white, or 0 and 1")
    return is_bright if objects == "bright" else ~is_bright


def upright_size(content: bytes, path: str) -> tuple[int, int]:
    """The height and width that the decoded image would have; only the file's header is read."""
    with _errors_as_unreadable(path), _open_without_decoding(content, path) as image:
        sides_are_exchanged = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # EXIF orientations turned by 90 degrees
        return (image.width, image.height) if sides_are_exchanged else (image.height, image.width)


REDUCED: ContextVar[int] = ContextVar("REDUCED", default=0)
"""If it is set, the images that are read will be resized to this shorter side: libjpeg then decodes at a half, quarter
or eighth of the scale, as long as both sides stay at least twice as long."""


@dataclass
class InFile:
    """What was noticed about a file while it was decoded, beside its pixels.

    largest: the largest value of its 16-bit channels, up to 255 too large if Pillow reads only their high bytes; None
             if the file has no 16-bit channels, states which value is white, or was decoded with an explicit `white`.
    damage:  what is wrong with its JPEG data; "" if nothing is.
    """

    largest: int | None = None
    damage: str = ""


IN_FILE: ContextVar[InFile | None] = ContextVar("IN_FILE", default=None)
"""If it is set, `decode` fills it in, which takes longer."""


def _decode_upright(content: bytes, path: str, mode: str, white: int | None = None) -> Image.Image:
    """Decode an image into 8 bits per channel and turn it upright by its EXIF orientation.

    mode:  Pillow's mode of the result, such as "RGB" or "L".
    white: the 16-bit value that becomes 255; None means 65535.

    If the context variable IN_FILE is set, the file's largest 16-bit value is noted in it: `task=describe` reports how
    many bits of a file are in use. Any error becomes an UnreadableImage that names `path`.
    """
    with _errors_as_unreadable(path), _open_without_decoding(content, path) as image:
        if side := REDUCED.get():  # the shorter side to which the image will be resized
            image.draft(None, (2 * side, 2 * side))  # a JPEG is then decoded at a smaller scale, which is faster
        if _states_range(image):
            white = WHITE  # the file (PGM or PPM) states which value is white, and Pillow scales that to 65535

        # Pillow reads only the high bytes of 16-bit colours, which are enough for the pixels if white is 65535. The low
        # bytes are read, too, if a `white` is given, which may be lower, or if the largest value is to be noted.
        notes_largest = IN_FILE.get() is not None
        low_bytes = _low_bytes(content, image, white) if white or notes_largest else None

        # Pillow has no way to the low bytes of some files with 16-bit colours. Their largest value is estimated from
        # the high bytes, once the image is loaded. But whether a file is of that kind is asked before: its raw modes
        # (Pillow's names of how pixels are stored) are gone after loading.
        estimates_largest = notes_largest and low_bytes is None and len(_raw_modes_of_16_bits(image)) > 0

        ImageOps.exif_transpose(image, in_place=True)
        image.load()
        if estimates_largest:
            _note_largest_by_high_bytes(image, white)

        upright = _to_eight_bits(image, low_bytes, white)
        return upright if upright.mode == mode else upright.convert(mode)  # `convert` would copy an equal mode, too


def _open_without_decoding(content: bytes, path: str) -> ImageFile:
    """Open an image with Pillow, which reads its header only.

    Raises ValueError with the reason if it is a picture of a kind that is not supported.
    """
    head = content[:HEAD_BYTES]
    if reason := why_not_read(head, path):
        raise ValueError(reason)
    if is_heic(head):
        _register_heic_reader()
        return Image.open(io.BytesIO(content), formats=["HEIF"])

    image = Image.open(io.BytesIO(content), formats=formats_of(path))
    if image.format == "TIFF" and _is_raw_photograph(image):
        raise ValueError(RAW_REASON)
    return image


@cache
def _register_heic_reader() -> None:
    """Let Pillow read HEIC, with an optional package."""
    import pillow_heif

    pillow_heif.register_heif_opener()


def _is_raw_photograph(image: Any) -> bool:
    """Whether a TIFF is a camera's raw file, of which Pillow would read only the thumbnail.

    A DNG has a tag with its version. In other raw files the first image is a thumbnail that refers to further images.
    """
    tags = image.tag_v2  # tag number -> value. 254: NewSubfileType, 330: SubIFDs, 50706: DNGVersion
    is_thumbnail = bool(tags.get(254, 0) & 1)  # the lowest bit marks a reduced version of another image
    return 50706 in tags or (is_thumbnail and 330 in tags)


def _states_range(image: ImageFile) -> bool:
    """Whether the file itself states which value is white, as PGM and PPM do; Pillow scales such values."""
    return any(tile.codec_name.startswith("ppm") for tile in image.tile)


OTHER_BYTE_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}
"""The last letter of a Pillow raw mode (big, little or native byte order) -> the letter of the opposite order."""


def _low_bytes(content: bytes, image: ImageFile, white: int | None) -> Image.Image | None:
    """The low bytes of an image with 16-bit colours, as an upright 8-bit image; None for all other images.

    High and low bytes together are needed to scale colours to a `white` below 65535. Pillow reads only the high byte of
    such colours. Here it is made to read the file in the other byte order, so that the byte that it keeps is the low
    one. For some kinds of files Pillow has no decoder of the other byte order. For these, ValueError is raised if
    `white` is below 65535, and otherwise the result is None.

    content: the file's bytes.
    image:   the same file, opened but not decoded.
    white:   the 16-bit value that becomes 255; None means 65535.
    """
    raw_modes = _raw_modes_of_16_bits(image)
    if not raw_modes:
        return None

    # Only for these two modes Pillow has decoders of both byte orders.
    has_other_byte_order = all(mode.startswith(("RGB;16", "RGBA;16")) for mode in raw_modes)
    if not has_other_byte_order:
        needs_low_bytes = white not in (None, WHITE)
        if needs_low_bytes:
            raise ValueError(f"of 16 bits as {raw_modes[0]} only 8 are read: store them as grey, RGB or RGBA")
        return None

    with Image.open(io.BytesIO(content), formats=[str(image.format)]) as low:
        # A tile is a part of the file, with the arguments of its decoder, which include the byte order.
        low.tile = [tile._replace(args=_with_other_byte_order(tile.args)) for tile in low.tile]
        ImageOps.exif_transpose(low, in_place=True)
        low.load()
        return low


def _raw_modes_of_16_bits(image: ImageFile) -> list[str]:
    """The raw modes (such as "RGB;16B") of the parts of a file, if Pillow reads only the high bytes of its channels.

    A raw mode is Pillow's name of how pixels are stored. Empty for files without 16-bit channels, and for grey values,
    of which Pillow reads all bits.
    """
    if image.mode.startswith("I"):  # Pillow keeps all bits of these grey values
        return []

    decoder_args = [tile.args for tile in image.tile if tile.args]  # the raw mode alone, or a tuple that begins with it
    raw_modes = [str(args if isinstance(args, str) else args[0]) for args in decoder_args]
    return raw_modes if any(";16" in mode for mode in raw_modes) else []


def _with_other_byte_order(args: Any) -> Any:
    """The arguments of a Pillow decoder (a raw mode, or a tuple that begins with it) for the other byte order."""
    if isinstance(args, str):
        return args[:-1] + OTHER_BYTE_ORDER[args[-1]]
    return (_with_other_byte_order(args[0]), *args[1:])


@contextmanager
def _errors_as_unreadable(path: str) -> Iterator[None]:
    """Turn any error inside the context into an UnreadableImage that names the file.

    Any Exception, because there is no common class: Pillow's formats raise OSError, SyntaxError, ValueError,
    struct.error, zlib.error and others; a file that has gone away or a wrong checksum in an archive raises more.
    """
    try:
        yield
    except UnidentifiedImageError:  # its own message names a Python object, which helps nobody
        raise UnreadableImage(f"{path}: no image of a known format") from None
    except Exception as error:
        raise UnreadableImage(f"{path}: {error}") from error


def _to_eight_bits(image: Image.Image, low_bytes: Image.Image | None, white: int | None) -> Image.Image:
    """The decoded image with 8 bits per channel, on a white background where it is transparent.

    low_bytes: the low bytes of 16-bit colours, of which `image` holds the high bytes; None for all other images.
    white:     the value that becomes 255; None means 65535.

    The largest 16-bit value is noted in IN_FILE, if that is set and `white` is None: then nobody has chosen a white
    yet. Raises ValueError for floating point or 32-bit pixels and, when values are scaled, for a value above `white`.
    """
    if image.mode == "F":
        raise ValueError("floating point pixels have no agreed range; store 8 or 16 bits")

    if image.mode.startswith("I"):  # one grey channel of 16 or 32 bits
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > WHITE:
            raise ValueError("32-bit pixels have no agreed range; store 8 or 16 bits")
        _note_largest(values, white)  # only if `white` is None
        return Image.fromarray(_scaled_to_eight_bits(values, white))

    if low_bytes is not None:
        values = np.asarray(image).astype(np.int64) * 256 + np.asarray(low_bytes)
        colours = values[..., :3] if image.mode == "RGBA" else values
        _note_largest(colours, white)  # only if `white` is None
        if white not in (None, WHITE):  # else the high bytes, which `image` holds, are the scaled values
            image = _with_scaled_colours(image, colours, white)

    if image.has_transparency_data:
        with_alpha = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", with_alpha.size, "white"), with_alpha)
    return image


def _note_largest(values: Int[np.ndarray, "..."], white: int | None) -> None:
    """Record the largest value in IN_FILE, if that is set and nobody chose a `white`."""
    if (record := IN_FILE.get()) and white is None:
        record.largest = int(values.max())


def _note_largest_by_high_bytes(image: Image.Image, white: int | None) -> None:
    """Like `_note_largest`, but for 16-bit channels of which only the high bytes are known.

    The low byte is taken as 255, its largest value, except in black pixels.
    """
    colours = [np.asarray(image.getchannel(band)) for band in image.getbands() if band != "A"]
    high = np.stack(colours).astype(np.int64)
    _note_largest(np.where(high > 0, high * 256 + 255, 0), white)


def _scaled_to_eight_bits(values: Int[np.ndarray, "*shape"], white: int | None) -> UInt8[np.ndarray, "*shape"]:
    """Scale values of 0 to `white` (None = 65535) to 0 to 255, rounded. Raises ValueError if one is larger."""
    white = white or WHITE
    if (largest := int(values.max())) > white:
        raise ValueError(f"a value of {largest}, above dataset.white={white}; take {fewest_bits(largest)} or more")
    return ((values * 255 + white // 2) // white).astype(np.uint8)  # + white // 2: integer division rounds down


def _with_scaled_colours(image: Image.Image, colours: Int[np.ndarray, "..."], white: int | None) -> Image.Image:
    """The 16-bit `colours` scaled to 8 bits, with the alpha channel that `image` has if it is RGBA."""
    scaled = Image.fromarray(_scaled_to_eight_bits(colours, white))
    if image.mode == "RGBA":
        scaled.putalpha(image.getchannel("A"))
    return scaled


def fewest_bits(largest: int) -> int:
    """The largest number that has as many bits as this one: 4095 for a 12-bit value.

    >>> fewest_bits(3000), fewest_bits(255), fewest_bits(0)
    (4095, 255, 1)
    """
    return 2 ** max(1, largest.bit_length()) - 1


SYSTEM_NAMES = frozenset(
    {
        *("__macosx", "network trash folder", "temporary items"),  # macOS
        *("$recycle.bin", "system volume information", "found.000"),  # Windows
        *("thumbs.db", "ehthumbs.db", "desktop.ini"),
        *("lost+found", "lost.dir"),  # Linux and Android, after a crash
        *("@eadir", "@tmp", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "~snapshot"),  # network storage
    }
)
"""Names, in lower case, of folders and files that operating and storage systems add: thumbnails, deleted files, ..."""


def _is_utf8(name: str) -> bool:
    """Whether the bytes of a file's name are UTF-8; Python puts a lone surrogate in place of any other byte."""
    return name.isascii() or name == name.encode(errors="ignore").decode()


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name is skipped: it begins with a dot, or a system made it.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("@eaDir"), is_hidden("$Recycle.Bin"), is_hidden("cat")
    (True, True, True, False)
    """
    return name.startswith(".") or name.casefold() in SYSTEM_NAMES


FILE_SCHEMA = pa.schema(
    {
        "path": pa.string(),  # relative to the root, with forward slashes; twice if an archive holds it twice
        "size": pa.int64(),  # bytes
        "mtime_ns": pa.int64(),  # these three are the archive's if the file is in one
        "ctime_ns": pa.int64(),  # unlike mtime nobody can set it: `cp -p` and `touch -r` leave a new one
        "inode": pa.uint64(),
    }
)
"""What is known of a file without reading it. A change of the file's bytes changes some of these values."""


@dataclass(frozen=True)
class Listing:
    """The files and folders under a root, without hidden ones.

    files:   one line per file, with the columns of FILE_SCHEMA.
    folders: their paths relative to the root.
    """

    files: pa.Table
    folders: frozenset[str]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Path -> size of the file in bytes."""
        return dict(zip(self.files["path"].to_pylist(), self.files["size"].to_pylist(), strict=True))


MAX_PATH_LENGTH = 4096  # letters of a path, as on Linux: every folder on the path is listed, too
READER_THREADS = 8  # threads that look at files: on a network most of their time is waiting
FILES_PER_BATCH = 512  # files that a thread looks at in one call
WAITING_S_PER_FILE = 1e-4  # a faster look did not wait for the disk, and threads would only wait for Python's lock
Part = TypeVar("Part")


def map_in_batches(work: Callable[[Sequence[str]], Part], paths: Sequence[str], pool: ThreadPoolExecutor) -> list[Part]:
    """Call `work` with batches of the paths, and return its results in order.

    The first batch is timed. Only if the files are slow to reach, as on a network, the other batches go to the threads
    of `pool`; otherwise threads would be no faster.

    work: takes at most FILES_PER_BATCH paths.
    """
    batches = [paths[start : start + FILES_PER_BATCH] for start in range(0, len(paths), FILES_PER_BATCH)]

    began = time.perf_counter()
    results = [work(batch) for batch in batches[:1]]
    had_to_wait = time.perf_counter() - began > WAITING_S_PER_FILE * FILES_PER_BATCH

    map_batches = pool.map if had_to_wait else map
    results += map_batches(work, batches[1:])
    return results


class FolderEntries(NamedTuple):
    """The paths directly in a folder, relative to the root, by their kind.

    links:      (path, real path of the target) of links to folders.
    dead_links: links that lead nowhere, as in a data set of git-annex or DVC whose files were not fetched.
    """

    files: list[str]
    folders: list[str]
    links: list[tuple[str, str]]
    dead_links: list[str]


@cache  # the same warning only once per process
def _warn_of_dead_links(root: str, links: tuple[str, ...]) -> None:
    """Log one line that names the links below `root` that lead nowhere; nothing if there are none."""
    if links:
        number = "1 link that leads" if len(links) == 1 else f"{len(links)} links that lead"
        log.warning("%s: left out: %s nowhere; fetch what is missing: %s", root, number, choices_in_words(links))


@dataclass(frozen=True)
class Directory:
    """The files of a directory tree.

    Links to folders are followed, with two exceptions. A link to a folder that contains the link is not followed,
    because that would never end. Inside a folder that was reached through a link, a link is followed only if no link
    led to its target before: links that lead to each other would give a folder under any number of names.
    """

    root: str

    def listing(self) -> Listing:
        """List all files and folders, without hidden ones; a warning names the links that lead nowhere.

        Raises FcaError for a folder that cannot be read and for a name that is not UTF-8.
        """
        paths: list[str] = []
        folders: list[str] = []
        dead_links: list[str] = []
        link_targets: set[str] = set()  # of all links that were followed

        # The tree is read one depth after another, the folders of one depth in parallel. `depth` maps each folder of
        # the present depth to whether it was reached through a link. "" is the root.
        depth = {"": False}
        with ThreadPoolExecutor(READER_THREADS) as pool:
            while depth:
                entries_of_folders = pool.map(self._entries, depth)
                next_depth: dict[str, bool] = {}
                for is_behind_link, entries in zip(depth.values(), entries_of_folders, strict=True):
                    paths += entries.files
                    dead_links += entries.dead_links
                    next_depth |= dict.fromkeys(entries.folders, is_behind_link)  # as the folder around them
                    for folder, target in entries.links:
                        # Behind a link, a second link to the same folder is not followed: folders that link to each
                        # other would be found under any number of names.
                        if is_behind_link and target in link_targets:
                            continue
                        next_depth[folder] = True
                        link_targets.add(target)

                # Sorted, so that the same links are followed whatever the order on the disk.
                depth = dict(sorted(next_depth.items()))
                folders += depth.keys()
            file_tables = map_in_batches(self._file_table, paths, pool)

        _warn_of_dead_links(self.root, tuple(sorted(dead_links)))
        all_files = pa.concat_tables([FILE_SCHEMA.empty_table(), *file_tables])  # the empty one: for no files
        return Listing(all_files.combine_chunks(), frozenset(folders))

    def _entries(self, folder: str) -> FolderEntries:
        """The entries directly in a folder, without hidden ones, pipes and devices. `folder` is relative to the root.

        Raises FcaError if the folder cannot be read or a name in it is not UTF-8.
        """
        entries = FolderEntries([], [], [], [])
        try:
            with os.scandir(f"{self.root}/{folder}") as scan:
                for entry in scan:
                    if not is_hidden(entry.name):
                        self._add_entry(entry, folder, entries)
        except OSError as error:
            step = f"make it readable, or take another root ({error.strerror})"
            raise FcaError("dataset.root", f"{self.root}/{folder}", "folders that can be read", step) from error
        entries.links.sort()  # so that the same links are followed whatever the order on the disk
        return entries

    def _add_entry(self, entry: os.DirEntry[str], folder: str, entries: FolderEntries) -> None:
        """Append an entry of a folder to the list of `entries` (files, folders, links, dead links) to which it belongs.

        Pipes, devices, and links to a folder around this one are appended to no list. Raises FcaError if the name is
        not UTF-8.

        folder: its path relative to the root; "" for the root.
        """
        if not _is_utf8(entry.name):
            raise FcaError("file name", os.fsencode(entry.path), "UTF-8", "rename the file")

        path = f"{folder}/{entry.name}" if folder else entry.name
        if not entry.is_symlink():
            if entry.is_dir(follow_symlinks=False):
                entries.folders.append(path)
            elif entry.is_file():
                entries.files.append(path)
        elif os.path.isdir(entry.path):  # noqa: PTH112  False for a circle of links
            target = os.path.realpath(entry.path)
            contains_folder = Path(os.path.realpath(f"{self.root}/{folder}")).is_relative_to(target)
            if not contains_folder:  # following such a link would never end
                entries.links.append((path, target))
        elif os.path.isfile(entry.path):  # noqa: PTH113
            entries.files.append(path)
        elif not os.path.exists(entry.path):  # noqa: PTH110
            entries.dead_links.append(path)

    def _file_table(self, paths: Sequence[str]) -> pa.Table:
        """Path, size, times and inode of these files, one line each, without files that have gone away meanwhile."""
        lines = []
        for path in paths:
            with suppress(FileNotFoundError):
                status = os.stat(f"{self.root}/{path}")  # noqa: PTH116  a third of the time of Path, over 100,000 files
                lines.append((path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino))
        return _table_of_files(lines)

    def read(self, path: str) -> bytes:
        """The bytes of a file at `path` relative to the root.

        Raises ValueError for a path that leads out of the root (a stored journal may name any), for a pipe or device,
        and for a file above MAX_FILE_BYTES.
        """
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            raise ValueError(f"{path} lies outside of the data set's folder")
        return bytes_of(f"{self.root}/{path}")

    def head(self, path: str) -> bytes:
        """The first bytes of a file, at most HEAD_BYTES."""
        descriptor = _open_without_waiting(f"{self.root}/{path}", os.O_RDONLY)
        try:
            return os.read(descriptor, HEAD_BYTES)
        finally:
            os.close(descriptor)


def _open_without_waiting(name: str, flags: int) -> int:
    """The descriptor of an opened file, for `open(opener=...)`."""
    return os.open(name, flags | os.O_NONBLOCK)  # without it, opening a pipe would wait for a writer


def bytes_of(path: str | Path) -> bytes:
    """All bytes of a file.

    Raises ValueError for a pipe or device, because reading it might never end, and for a file above MAX_FILE_BYTES.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("no file with an end")
        _check_size(status.st_size)
        return file.read()


def _check_size(size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise ValueError(f"{size} bytes, more than the {MAX_FILE_BYTES} that are read")


def _table_of_files(lines: Sequence[tuple[str, int, int, int, int]]) -> pa.Table:
    """A table with the columns of FILE_SCHEMA from one tuple of its values per file."""
    columns = [*zip(*lines, strict=True)] if lines else [()] * len(FILE_SCHEMA)
    return pa.table(columns, FILE_SCHEMA)


@dataclass(frozen=True)
class Archive:
    """The files of a .zip archive."""

    root: str

    def listing(self) -> Listing:
        """List the files of the archive without hidden ones, and the folders that hold files or have an entry.

        Raises FcaError if the archive's central directory (the list of its members) is damaged, and for a member whose
        path is absolute, contains "..", an empty name or the separator of Windows, or is longer than MAX_PATH_LENGTH.
        """
        status = Path(self.root).stat()
        try:
            members = self._open().infolist()
        except (zipfile.BadZipFile, NotImplementedError) as error:
            step = f"bring it again ({error})"
            raise FcaError("dataset.root", self.root, "a whole .zip archive", step) from error

        files = []
        folders: set[str] = set()
        for member in members:
            names = member.filename.rstrip("/").split("/")  # a folder's own entry ends with a slash
            leaves_root = bool({"", ".", ".."} & set(names))  # "" also begins an absolute path
            made_on_windows = member.create_system == 0
            has_windows_separator = made_on_windows and "\\" in member.filename  # on Windows no file name contains it
            if leaves_root or len(member.filename) > MAX_PATH_LENGTH or has_windows_separator:
                what, allowed = "member of the archive", f"plain/paths/like/this, at most {MAX_PATH_LENGTH} letters"
                raise FcaError(what, f"{member.filename:.200}", allowed, f"pack {self.root} again")
            if any(is_hidden(name) for name in names):
                continue

            folder_names = names if member.is_dir() else names[:-1]
            for depth in range(1, len(folder_names) + 1):
                folders.add("/".join(folder_names[:depth]))
            if not member.is_dir():
                archive_times = status.st_mtime_ns, status.st_ctime_ns  # a member's own time can be set to anything
                files.append((member.filename, member.file_size, *archive_times, status.st_ino))
        return Listing(_table_of_files(files), frozenset(folders))

    def read(self, path: str) -> bytes:
        """A member's bytes.

        Raises ValueError for a member above MAX_FILE_BYTES, and zipfile's own errors for a damaged or unknown one.
        """
        archive = self._open()
        _check_size(archive.getinfo(path).file_size)  # zipfile unpacks no more than this, whatever the member holds
        return archive.read(path)

    def head(self, path: str) -> bytes:
        """A member's first bytes, at most HEAD_BYTES. Raises zipfile's errors for a damaged or unknown member."""
        with self._open().open(path) as member:
            return member.read(HEAD_BYTES)

    def _open(self) -> zipfile.ZipFile:
        """The opened archive, opened again if the file has changed or the process was forked."""
        status = Path(self.root).stat()
        return _opened_archive(self.root, status.st_size, status.st_mtime_ns, os.getpid())


@lru_cache(maxsize=16)
def _opened_archive(root: str, _size: int, _mtime_ns: int, _process: int) -> zipfile.ZipFile:
    """One open archive per process: threads may share it (it locks its file), a forked child must not."""
    return zipfile.ZipFile(root)


Files = Directory | Archive
"""A root that can be listed, and read from any thread and process."""


def open_root(root: str, needs: str) -> Files:
    """The files of a directory or .zip archive at `root`, in which `~` is expanded.

    needs: what the root should hold, for an error message.

    Raises FcaError if there is neither.
    """
    path = Path(root).expanduser()
    if path.is_dir():
        return Directory(str(path))
    if path.is_file() and zipfile.is_zipfile(path):
        return Archive(str(path))
    allowed = "a directory or a whole .zip archive" if path.exists() else "an existing directory or .zip archive"
    raise FcaError("dataset.root", root, allowed, f"set dataset.root to {needs}")


def content_of(files: Files, path: str) -> tuple[bytes, str]:
    """A file's bytes, and its full name for messages. Raises UnreadableImage if the file cannot be read."""
    name = f"{files.root}/{path}"
    with _errors_as_unreadable(name):
        return files.read(path), name


def image_of(files: Files, path: str, white: int | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """Upright RGB pixels, see `decode`; raises UnreadableImage naming the file."""
    return decode(*content_of(files, path), white)


def name_of(root: str) -> str:
    """The default name of a data set: the name of its root, without .zip.

    >>> name_of("/data/birds.v2/"), name_of("pets.zip")
    ('birds.v2', 'pets')
    """
    path = Path(root).expanduser().resolve()
    return path.stem if path.suffix.lower() == ".zip" else path.name


MAX_WAITING_RESULTS = 256  # computed results that wait in memory for the caller
MANY_IMAGES = 2000  # images from which on a progress bar is shown

Result = TypeVar("Result")


def watched(parts: Sequence[Part], doing: str, *, long: bool) -> Iterable[Part]:
    """The same parts, with a progress bar labelled `doing` if they take `long` and the output is a terminal."""
    return track(parts, doing, long=long)


def threads(workers: int) -> int:
    """The number of threads for a setting `workers`; 0 means one for each core that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return workers or allowed or 1


def parallel_map(work: Callable[[int], Result], n: int, workers: int, doing: str) -> Iterator[Result]:
    """Yield work(0), ..., work(n - 1) in this order, computed by several threads.

    workers: number of threads; 0 means one per core.
    doing:   label of the progress bar that many items get.

    >>> list(parallel_map(lambda i: i * i, 4, workers=2, doing="squaring"))
    [0, 1, 4, 9]
    """
    with ThreadPoolExecutor(threads(workers)) as pool:
        # In batches: otherwise `pool.map` would compute all results ahead, whether or not the caller has taken any.
        for start in watched(range(0, n, MAX_WAITING_RESULTS), doing, long=n >= MANY_IMAGES):
            yield from pool.map(work, range(start, min(start + MAX_WAITING_RESULTS, n)))
