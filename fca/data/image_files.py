"""Which files under a root are images, decided by what they hold; all others are counted in one line, by their suffix.

Files with an image's suffix count as images and are not opened: listing a large folder must not read it. All others are
opened, except files of the kinds that accompany images by the thousand (TEXT_SUFFIXES).
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial

from PIL import Image

from fca.data.files import READER_THREADS, Files, map_in_batches
from fca.data.kinds import SUFFIXES, TEXT_SUFFIXES, UNAMBIGUOUS_FORMATS, format_of, formats_of, suffix_of, why_not_read

log = logging.getLogger(__name__)
MAX_SUFFIXES = 5  # in a line


@dataclass(frozen=True)
class Sorted:
    """The files under a root.

    images:   paths of those that are read as images.
    not_read: path of a picture that cannot be read -> why.
    others:   paths of those that are no pictures.
    """

    images: list[str]
    not_read: dict[str, str]
    others: list[str]

    def left_out(self) -> str:
        """A phrase that counts the files left out; "" if there are none.

        >>> Sorted(["a.png"], {"b.nef": "a raw file"}, ["c.txt", "d.csv", "e.txt"]).left_out()
        'left out: 3 files that are no images: 2 .txt, 1 .csv; 1 picture: 1 .nef (a raw file)'
        """
        phrases = []
        if self.others:
            n_others = len(self.others)
            verb = "is no image" if n_others == 1 else "are no images"
            phrases.append(f"{with_count(n_others, 'file')} that {verb}: {count_by_suffix(self.others)}")
        if self.not_read:
            paths_by_reason: dict[str, list[str]] = {}
            for path, reason in self.not_read.items():
                paths_by_reason.setdefault(reason, []).append(path)
            reasons = [f"{count_by_suffix(paths)} ({reason})" for reason, paths in paths_by_reason.items()]
            phrases.append(f"{with_count(len(self.not_read), 'picture')}: {', '.join(reasons)}")
        return f"left out: {'; '.join(phrases)}" if phrases else ""


def with_count(n: int, what: str) -> str:
    """A number of things in words: `what` in the singular or with an s.

    >>> with_count(1, "sample"), with_count(2, "sample")
    ('1 sample', '2 samples')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def count_by_suffix(paths: Iterable[str]) -> str:
    """A phrase that counts the paths with each suffix, such as "2 .txt, 1 .csv".

    It names the most frequent suffixes (at most MAX_SUFFIXES), and counts the paths with other suffixes together.
    """
    counts = Counter(suffix_of(path) or "without a suffix" for path in paths)
    suffixes = sorted(counts, key=lambda suffix: (-counts[suffix], suffix))  # frequent first, then by name
    phrases = [f"{counts[suffix]} {suffix}" for suffix in suffixes[:MAX_SUFFIXES]]

    n_others = sum(counts[suffix] for suffix in suffixes[MAX_SUFFIXES:])
    if n_others:
        phrases.append(with_count(n_others, "other"))
    return ", ".join(phrases)


IMAGE, OTHER = "an image", "no picture"
BY_SUFFIX = {**dict.fromkeys(SUFFIXES, IMAGE), **dict.fromkeys(TEXT_SUFFIXES, OTHER)}


def sorted_files(files: Files, paths: Sequence[str], looks_into_texts: bool = False) -> Sorted:
    """Sort files into images, pictures that cannot be read, and others; each kind in the order of `paths`.

    A suffix of images (SUFFIXES) or of texts (TEXT_SUFFIXES) decides without a look into the file. Files with other
    suffixes are opened, by several threads.

    files:            the root.
    paths:            of its files.
    looks_into_texts: whether files with the suffix of a text are opened, too, in case they are images after all.
    """
    kind_of_suffix = dict.fromkeys(SUFFIXES, IMAGE) if looks_into_texts else BY_SUFFIX
    # For each file: IMAGE, OTHER, or None where the suffix does not decide.
    kinds_by_suffix = [kind_of_suffix.get(suffix_of(path)) for path in paths]

    # Open these files, and look at their first bytes.
    undecided = [path for path, kind in zip(paths, kinds_by_suffix, strict=True) if kind is None]
    with ThreadPoolExecutor(READER_THREADS) as pool:
        batches = map_in_batches(partial(_kinds_by_content, files), undecided, pool)
    kind_by_content: dict[str, str] = {}
    for batch in batches:
        kind_by_content |= batch

    result = Sorted([], {}, [])
    for path, kind_by_suffix in zip(paths, kinds_by_suffix, strict=True):
        kind = kind_by_suffix or kind_by_content[path]
        if kind == IMAGE:
            result.images.append(path)
        elif kind == OTHER:
            result.others.append(path)
        else:
            result.not_read[path] = kind  # the reason why the picture cannot be read
    return result


def _kinds_by_content(files: Files, paths: Sequence[str]) -> dict[str, str]:
    return {path: _kind_by_content(files, path) for path in paths}


def _kind_by_content(files: Files, path: str) -> str:
    """What a file below a root holds, see `kind_of`; if it cannot be opened, the reason."""
    try:
        return kind_of(files.head(path), path, partial(files.read, path))
    except Exception as error:  # no permission, gone, damaged in its archive: many kinds
        return f"cannot be opened: {getattr(error, 'strerror', None) or error}"


def kind_of(head: bytes, path: str, read: Callable[[], bytes]) -> str:
    """What a file holds: IMAGE, OTHER (no picture), or a sentence that gives the reason why its picture cannot be read.

    head: the file's first bytes, at most HEAD_BYTES.
    path: its name, of which only the suffix is used.
    read: a function that returns all bytes of the file; it is called only if the first ones do not decide.
    """
    if reason := why_not_read(head, path):
        return reason
    name = format_of(head, path)
    if name is None:
        return OTHER
    if name in UNAMBIGUOUS_FORMATS:
        return IMAGE
    # The first bytes of other formats may also begin a text.
    return IMAGE if _has_image_header(read(), path) else OTHER


def _has_image_header(content: bytes, path: str) -> bool:
    """Whether Pillow can open the file, for which it reads only the header."""
    try:
        with Image.open(io.BytesIO(content), formats=formats_of(path)):
            return True
    except Exception:  # formats raise many kinds
        return False


@cache  # the same warning only once per process
def warn_of_left_out(root: str, left_out: str) -> None:
    """Warn which files below `root` are left out.

    left_out: the phrase of `Sorted.left_out`; "" = none.
    """
    if left_out:
        log.warning("%s: %s", root, left_out)
