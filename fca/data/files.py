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
from fca.data.kinds import HEAD, RAW, formats_of, is_heic, why_not_read
from fca.progress import track
from fca.types import FcaError, UnreadableImage, choices_in_words

log = logging.getLogger(__name__)

MASK_OBJECTS = ("bright", "dark")
GREY = (32, 223)  # values of a mask that are neither black nor white; those beside come from JPEG
WHITE = 65535
"""The value of a 16-bit file that is shown white where nothing else is asked for."""

LARGEST = 10**9
"""Bytes of a file that is read whole: Pillow refuses images that need more, and an archive may promise any number."""


def decode(content: bytes, path: str, white: int | None = None) -> UInt8[np.ndarray, "height width 3"]:
    """The RGB pixels of an encoded image, turned upright by its EXIF orientation.

    Transparent parts show white, as on a page (the colours under them are arbitrary and never visible). 16 bits
    are scaled to 8 (65535 -> 255), not clipped. Grey, palette, 1 bit and CMYK are converted. Of an animation the first
    frame counts.

    white: the value of 16-bit files that becomes 255, for those that use fewer bits (4095 of 12); None = 65535. Files
    of 8 bits, and those that state their largest value (PGM, PPM), are as they are.

    Raises UnreadableImage naming `path` for anything else: truncated, no image, floating point, a raw photograph, HEIC
    without its package, a value above `white`.
    """
    if record := IN_FILE.get():
        record.damage = damage(content)
    return np.array(_upright(content, path, "RGB", white))


def decode_mask(content: bytes, path: str, objects: str) -> Bool[np.ndarray, "height width"]:
    """The object mask that an image file shows: True on the object.

    objects: "bright" (values above half) or "dark" (the others). A file that holds no value above 1 counts 1 as bright.

    Soft edges and JPEG's noise are cut at half. Raises UnreadableImage for what is no mask: more than half of its
    pixels are grey (GREY), as in 9 of 10 photographs, or some are and no pixel lies on the other side of half.
    """
    values = np.asarray(_upright(content, path, "L"))
    bright = values > (127 if values.max() > 1 else 0)
    grey = float(((values >= GREY[0]) & (values <= GREY[1])).mean())
    if grey > 0.5 or (grey > 0 and bright.all() == bright.any()):
        reach = f"values {values.min()} to {values.max()}, {grey:.0%} of the pixels grey ({GREY[0]} to {GREY[1]})"
        raise UnreadableImage(f"{path}: {reach}: no mask, which is black and white, or 0 and 1")
    return bright if objects == "bright" else ~bright


def upright_size(content: bytes, path: str) -> tuple[int, int]:
    """Height and width of the decoded image, from its header alone."""
    with _naming(path), _opened(content, path) as image:
        turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8)  # orientations with the sides exchanged
        return (image.width, image.height) if turned else (image.height, image.width)


REDUCED: ContextVar[int] = ContextVar("REDUCED", default=0)
"""Where it is set, images are read to be resized to this shorter side: libjpeg decodes at a half, quarter or eighth of
the scale, as long as both sides stay at least twice as long."""


@dataclass
class InFile:
    """What a file holds beside its pixels.

    largest: the largest value of its 16-bit channels, at most 255 too large where Pillow reads their high bytes alone;
             None where it stores no 16 bits, or white is stated or asked for.
    damage:  what is wrong with its JPEG data; "" where nothing is.
    """

    largest: int | None = None
    damage: str = ""


IN_FILE: ContextVar[InFile | None] = ContextVar("IN_FILE", default=None)
"""Where it is set, `decode` fills it in, which takes longer."""


def _upright(content: bytes, path: str, mode: str, white: int | None = None) -> Image.Image:
    with _naming(path), _opened(content, path) as image:
        if side := REDUCED.get():
            image.draft(None, (2 * side, 2 * side))
        if _states_range(image):
            white = WHITE
        low = _low_bytes(content, image, white) if white or IN_FILE.get() else None
        has_high_bytes_alone = IN_FILE.get() is not None and low is None and _raw_modes_of_16_bits(image) != []
        ImageOps.exif_transpose(image, in_place=True)
        image.load()
        if has_high_bytes_alone:
            _note_largest_by_high_bytes(image, white)
        upright = _eight_bits(image, low, white)
        return upright if upright.mode == mode else upright.convert(mode)  # a copy less, under Python's lock


def _opened(content: bytes, path: str) -> ImageFile:
    """The image, not decoded. Raises ValueError for a picture of a kind that is not read."""
    head = content[:HEAD]
    if reason := why_not_read(head, path):
        raise ValueError(reason)
    if is_heic(head):
        _add_heic()
        return Image.open(io.BytesIO(content), formats=["HEIF"])
    image = Image.open(io.BytesIO(content), formats=formats_of(path))
    if image.format == "TIFF" and _is_raw(image):
        raise ValueError(RAW)
    return image


@cache
def _add_heic() -> None:
    """Let Pillow read HEIC, by an optional package."""
    import pillow_heif

    pillow_heif.register_heif_opener()


def _is_raw(image: Any) -> bool:
    """Whether a TIFF is a raw photograph, of which Pillow reads the thumbnail.

    DNG has its version as a tag; in others the first image is a reduced one, and the tag of further images leads on.
    """
    tags = image.tag_v2
    is_reduced = bool(tags.get(254, 0) & 1)
    return 50706 in tags or (is_reduced and 330 in tags)


def _states_range(image: ImageFile) -> bool:
    """Whether the file says itself which value is white, as PGM and PPM do; Pillow scales such values."""
    return any(tile.codec_name.startswith("ppm") for tile in image.tile)


OTHER_BYTE_ORDER = {"B": "L", "L": "B", "N": "B" if sys.byteorder == "little" else "L"}


def _low_bytes(content: bytes, image: ImageFile, white: int | None) -> Image.Image | None:
    """The low bytes of an image with 16-bit colours, upright; None for all other images.

    Pillow reads only the high byte of such colours. Here it is made to read the file in the other byte order, so that
    the byte that it keeps is the low one. Both are needed to scale colours to a `white` below the largest value.
    Raises ValueError if they are needed and Pillow cannot read the file so.
    """
    raw_modes = _raw_modes_of_16_bits(image)
    if not raw_modes:
        return None
    if not all(mode.startswith(("RGB;16", "RGBA;16")) for mode in raw_modes):
        needs_low_bytes = white not in (None, WHITE)
        if needs_low_bytes:
            raise ValueError(f"of 16 bits as {raw_modes[0]} only 8 are read: store them as grey, RGB or RGBA")
        return None

    with Image.open(io.BytesIO(content), formats=[str(image.format)]) as low:
        low.tile = [tile._replace(args=_with_other_byte_order(tile.args)) for tile in low.tile]
        ImageOps.exif_transpose(low, in_place=True)
        low.load()
        return low


def _raw_modes_of_16_bits(image: ImageFile) -> list[str]:
    """How a file stores 16-bit channels of which Pillow reads the high bytes, as "RGB;16B"; empty for all others."""
    if image.mode.startswith("I"):
        return []
    raw_modes = [str(tile.args if isinstance(tile.args, str) else tile.args[0]) for tile in image.tile if tile.args]
    return raw_modes if any(";16" in mode for mode in raw_modes) else []


def _with_other_byte_order(args: Any) -> Any:
    """The arguments of a Pillow decoder, for the other byte order."""
    if isinstance(args, str):
        return args[:-1] + OTHER_BYTE_ORDER[args[-1]]
    return (_with_other_byte_order(args[0]), *args[1:])


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Any error becomes an UnreadableImage that names the file.

    Pillow's formats raise OSError, SyntaxError, ValueError, struct.error, zlib.error ...; a file may have gone away, or
    its checksum in the archive may be wrong: OSError, KeyError, ...
    """
    try:
        yield
    except UnidentifiedImageError:  # its message names a Python object
        raise UnreadableImage(f"{path}: no image of a known format") from None
    except Exception as error:
        raise UnreadableImage(f"{path}: {error}") from error


def _eight_bits(image: Image.Image, low: Image.Image | None, white: int | None) -> Image.Image:
    """Opaque, with 8 bits per channel.    low: see `_low_bytes`."""
    if image.mode == "F":
        raise ValueError("floating point pixels have no agreed range; store 8 or 16 bits")
    if image.mode.startswith("I"):
        values = np.asarray(image).astype(np.int64)
        if values.min() < 0 or values.max() > WHITE:
            raise ValueError("32-bit pixels have no agreed range; store 8 or 16 bits")
        _note_largest(values, white)
        return Image.fromarray(_scaled(values, white))
    if low is not None:
        values = np.asarray(image).astype(np.int64) * 256 + np.asarray(low)
        colours = values[..., :3] if image.mode == "RGBA" else values
        _note_largest(colours, white)
        if white not in (None, WHITE):
            image = _scaled_colours(image, colours, white)
    if image.has_transparency_data:
        colours = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", colours.size, "white"), colours)
    return image


def _note_largest(values: Int[np.ndarray, "..."], white: int | None) -> None:
    if (record := IN_FILE.get()) and white is None:
        record.largest = int(values.max())


def _note_largest_by_high_bytes(image: Image.Image, white: int | None) -> None:
    """As `_note_largest`, of 16-bit channels whose low bytes are not read: these may be 255."""
    colours = [np.asarray(image.getchannel(band)) for band in image.getbands() if band != "A"]
    high = np.stack(colours).astype(np.int64)
    _note_largest(np.where(high > 0, high * 256 + 255, 0), white)


def _scaled(values: Int[np.ndarray, "*shape"], white: int | None) -> UInt8[np.ndarray, "*shape"]:
    """0 to `white` become 0 to 255, rounded. Raises ValueError for larger values."""
    white = white or WHITE
    if (largest := int(values.max())) > white:
        raise ValueError(f"a value of {largest}, above dataset.white={white}; take {fewest_bits(largest)} or more")
    return ((values * 255 + white // 2) // white).astype(np.uint8)


def _scaled_colours(image: Image.Image, colours: Int[np.ndarray, "..."], white: int | None) -> Image.Image:
    scaled = Image.fromarray(_scaled(colours, white))
    if image.mode == "RGBA":
        scaled.putalpha(image.getchannel("A"))
    return scaled


def fewest_bits(largest: int) -> int:
    """The largest value of as many bits as this value needs.

    >>> fewest_bits(3000), fewest_bits(255), fewest_bits(0)
    (4095, 255, 1)
    """
    return 2 ** max(1, largest.bit_length()) - 1


SYSTEM = frozenset(
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
    """Whether the bytes of a file's name are UTF-8; Python has a lone surrogate in the place of others."""
    return name.isascii() or name == name.encode(errors="ignore").decode()


def is_hidden(name: str) -> bool:
    """Whether files and folders of this name are passed over: it begins with a dot, or a system made them.

    >>> is_hidden(".ipynb_checkpoints"), is_hidden("@eaDir"), is_hidden("$Recycle.Bin"), is_hidden("cat")
    (True, True, True, False)
    """
    return name.startswith(".") or name.casefold() in SYSTEM


FILE = pa.schema(
    {
        "path": pa.string(),  # relative to the root, with forward slashes; twice if an archive holds it twice
        "size": pa.int64(),  # bytes
        "mtime_ns": pa.int64(),  # these three are the archive's if the file is in one
        "ctime_ns": pa.int64(),  # unlike mtime nobody can set it: `cp -p` and `touch -r` leave a new one
        "inode": pa.uint64(),
    }
)
"""What is known of a file without reading it; some of it changes with the file's bytes."""


@dataclass(frozen=True)
class Listing:
    """The files and folders under a root, without hidden ones.    files: a line a file, with the columns of FILE."""

    files: pa.Table
    folders: frozenset[str]

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Path -> bytes."""
        return dict(zip(self.files["path"].to_pylist(), self.files["size"].to_pylist(), strict=True))


LONGEST = 4096  # letters of a path, as on Linux: folders are listed for every level of it
WALKERS = 8  # threads that look at files: on a network most of their time is waiting
TOGETHER = 512  # files that a thread looks at in one go
Part = TypeVar("Part")
WAITING_S = 1e-4  # for one file; a look that takes less does not wait, and threads would only wait for each other


def map_in_batches(look: Callable[[Sequence[str]], Part], paths: Sequence[str], pool: ThreadPoolExecutor) -> list[Part]:
    """`look` at all of these paths, TOGETHER at once; by several threads where the first look had to wait."""
    batches = [paths[start : start + TOGETHER] for start in range(0, len(paths), TOGETHER)]

    began = time.perf_counter()
    results = [look(batch) for batch in batches[:1]]
    had_to_wait = time.perf_counter() - began > WAITING_S * TOGETHER

    map_batches = pool.map if had_to_wait else map
    results += map_batches(look, batches[1:])
    return results


class Inside(NamedTuple):
    """Paths directly in a folder.

    links: those that lead to folders, with their targets.    dead_links: those that lead nowhere, as in a data set of
        git-annex or DVC whose files were not fetched.
    """

    files: list[str]
    folders: list[str]
    links: list[tuple[str, str]]
    dead_links: list[str]


@cache
def _warn_of_dead_links(root: str, links: tuple[str, ...]) -> None:
    """A line, once a process."""
    if links:
        number = "1 link that leads" if len(links) == 1 else f"{len(links)} links that lead"
        log.warning("%s: left out: %s nowhere; fetch what is missing: %s", root, number, choices_in_words(links))


@dataclass(frozen=True)
class Directory:
    """Files of a directory tree.

    Links to directories are followed, but not up to a folder that they lie in; behind a link, only where no link led
    before: links that lead to each other would give a folder under any number of names.
    """

    root: str

    def listing(self) -> Listing:
        """All files, one look at each; a warning names links that lead nowhere.

        Raises FcaError for a folder that cannot be read and a name that is no text.
        """
        paths: list[str] = []
        folders: list[str] = []
        dead_links: list[str] = []
        entered_targets: set[str] = set()  # of links

        # Level by level: the folders of a level -> whether a link led there.
        level = {"": False}
        with ThreadPoolExecutor(WALKERS) as pool:
            while level:
                next_level: dict[str, bool] = {}
                for is_behind_link, inside in zip(level.values(), pool.map(self._inside, level), strict=True):
                    paths += inside.files
                    dead_links += inside.dead_links
                    next_level |= dict.fromkeys(inside.folders, is_behind_link)
                    for folder, target in inside.links:
                        if is_behind_link and target in entered_targets:
                            continue
                        next_level[folder] = True
                        entered_targets.add(target)

                level = dict(sorted(next_level.items()))  # in any order on the disk, the same links are followed
                folders += level
            tables = [FILE.empty_table(), *map_in_batches(self._looked_at, paths, pool)]

        _warn_of_dead_links(self.root, tuple(sorted(dead_links)))
        return Listing(pa.concat_tables(tables).combine_chunks(), frozenset(folders))

    def _inside(self, folder: str) -> Inside:
        """The paths directly in a folder, without pipes and devices."""
        inside = Inside([], [], [], [])
        try:
            with os.scandir(f"{self.root}/{folder}") as entries:
                for entry in entries:
                    if not is_hidden(entry.name):
                        self._sort_in(entry, folder, inside)
        except OSError as error:
            step = f"make it readable, or take another root ({error.strerror})"
            raise FcaError("dataset.root", f"{self.root}/{folder}", "folders that can be read", step) from error
        inside.links.sort()
        return inside

    def _sort_in(self, entry: os.DirEntry[str], folder: str, inside: Inside) -> None:
        """Add an entry of a folder to the list that it belongs to; pipes and devices belong to none."""
        if not _is_utf8(entry.name):
            raise FcaError("file name", os.fsencode(entry.path), "UTF-8", "rename the file")
        path = f"{folder}/{entry.name}" if folder else entry.name
        if not entry.is_symlink():
            if entry.is_dir(follow_symlinks=False):
                inside.folders.append(path)
            elif entry.is_file():
                inside.files.append(path)
        elif os.path.isdir(entry.path):  # noqa: PTH112  False for a circle of links
            target = os.path.realpath(entry.path)
            is_around_folder = Path(os.path.realpath(f"{self.root}/{folder}")).is_relative_to(target)
            if not is_around_folder:  # following such a link would never end
                inside.links.append((path, target))
        elif os.path.isfile(entry.path):  # noqa: PTH113
            inside.files.append(path)
        elif not os.path.exists(entry.path):  # noqa: PTH110
            inside.dead_links.append(path)

    def _looked_at(self, paths: Sequence[str]) -> pa.Table:
        """The lines of these files, but for those that went away meanwhile."""
        lines = []
        for path in paths:
            with suppress(FileNotFoundError):
                found = os.stat(f"{self.root}/{path}")  # noqa: PTH116  a third of the time of Path, over 100,000 files
                lines.append((path, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino))
        return _table(lines)

    def read(self, path: str) -> bytes:
        """The file's bytes. Raises ValueError for a path that leads out of the folder: a journal may name any."""
        if path.startswith(("/", "~")) or ".." in path.split("/"):
            raise ValueError(f"{path} lies outside of the data set's folder")
        return bytes_of(f"{self.root}/{path}")

    def head(self, path: str) -> bytes:
        """The file's first bytes, HEAD at most."""
        descriptor = _open_at_once(f"{self.root}/{path}", os.O_RDONLY)
        try:
            return os.read(descriptor, HEAD)
        finally:
            os.close(descriptor)


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # else a pipe waits for a writer


def bytes_of(path: str | Path) -> bytes:
    """All bytes of a file. Raises ValueError for a pipe or a device, which might never end, and above LARGEST."""
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no file with an end")
        _check_size(found.st_size)
        return file.read()


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise ValueError(f"{size} bytes, more than the {LARGEST} that are read")


def _table(lines: Sequence[tuple[str, int, int, int, int]]) -> pa.Table:
    return pa.table([*zip(*lines, strict=True)] if lines else [()] * len(FILE), FILE)


@dataclass(frozen=True)
class Archive:
    """Files of a .zip archive."""

    root: str

    def listing(self) -> Listing:
        """All files of the archive, and the folders that hold them or have an entry of their own.

        Raises FcaError for an archive whose central directory, the list of its members, is damaged, and for a member
        that would be outside of a folder into which the archive is unpacked.
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
            names = member.filename.rstrip("/").split("/")
            has_windows_paths = member.create_system == 0 and "\\" in member.filename  # no Windows name has a \\
            if {"", ".", ".."} & set(names) or len(member.filename) > LONGEST or has_windows_paths:
                what, allowed = "member of the archive", f"plain/paths/like/this, at most {LONGEST} letters"
                raise FcaError(what, f"{member.filename:.200}", allowed, f"pack {self.root} again")
            if any(is_hidden(name) for name in names):
                continue

            folder_names = names if member.is_dir() else names[:-1]
            for depth in range(1, len(folder_names) + 1):
                folders.add("/".join(folder_names[:depth]))
            if not member.is_dir():
                times = status.st_mtime_ns, status.st_ctime_ns
                files.append((member.filename, member.file_size, *times, status.st_ino))
        return Listing(_table(files), frozenset(folders))

    def read(self, path: str) -> bytes:
        """A member's bytes. Raises ValueError above LARGEST, and what zipfile raises for a damaged or unknown one."""
        archive = self._open()
        _check_size(archive.getinfo(path).file_size)  # no more are unpacked, whatever the member holds
        return archive.read(path)

    def head(self, path: str) -> bytes:
        """The member's first bytes, HEAD at most. Raises what zipfile raises for a damaged or unknown one."""
        with self._open().open(path) as member:
            return member.read(HEAD)

    def _open(self) -> zipfile.ZipFile:
        found = Path(self.root).stat()
        return _archive(self.root, found.st_size, found.st_mtime_ns, os.getpid())


@lru_cache(maxsize=16)
def _archive(root: str, _size: int, _mtime_ns: int, _process: int) -> zipfile.ZipFile:
    """One open archive per process: threads may share it (it locks its file), a forked child must not."""
    return zipfile.ZipFile(root)


Files = Directory | Archive
"""A root that can be listed, and read from any thread and process."""


def open_root(root: str, needs: str) -> Files:
    """The files of a directory or .zip archive; `~` is expanded.

    needs: what the root should hold, for the FcaError that a missing or unusable root raises.
    """
    path = Path(root).expanduser()
    if path.is_dir():
        return Directory(str(path))
    if path.is_file() and zipfile.is_zipfile(path):
        return Archive(str(path))
    allowed = "a directory or a whole .zip archive" if path.exists() else "an existing directory or .zip archive"
    raise FcaError("dataset.root", root, allowed, f"set dataset.root to {needs}")


def content_of(files: Files, path: str) -> tuple[bytes, str]:
    """A file's bytes and its full name for messages; raises UnreadableImage when it cannot be read."""
    name = f"{files.root}/{path}"
    with _naming(name):
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


BATCH = 256  # results waiting in memory at most
LONG = 2000  # images from which on a progress bar is shown

Result = TypeVar("Result")


def watched(parts: Sequence[Part], doing: str, *, long: bool) -> Iterable[Part]:
    """The same parts, with a passing progress bar beside `doing` when they take long and a terminal shows it."""
    return track(parts, doing, long=long)


def threads(workers: int) -> int:
    """The number of threads; 0 = one for each core that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return workers or allowed or 1


def parallel_map(work: Callable[[int], Result], n: int, workers: int, doing: str) -> Iterator[Result]:
    """work(0), ..., work(n - 1), computed side by side, `doing` shown beside a progress bar when there are many.

    >>> list(parallel_map(lambda i: i * i, 4, workers=2, doing="squaring"))
    [0, 1, 4, 9]
    """
    with ThreadPoolExecutor(threads(workers)) as pool:
        for start in watched(range(0, n, BATCH), doing, long=n >= LONG):
            yield from pool.map(work, range(start, min(start + BATCH, n)))
