"""The files under a root that is a directory or a .zip, listed and read the same way."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8

from fca.data.decode import decode
from fca.nouns import FcaError, UnreadableImage

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm")


@dataclass(frozen=True)
class Listing:
    """What lies under a root; paths are relative to it, with forward slashes, and hidden ones are left out."""

    files: list[tuple[str, int]]  # path, size in bytes; a path twice if an archive holds it twice
    folders: set[str]


@runtime_checkable
class Files(Protocol):
    """A root that can be listed, and read from any thread and process."""

    @property
    def root(self) -> str: ...

    def listing(self) -> Listing: ...

    def read(self, path: str) -> bytes: ...


def open_root(root: str, needs: str) -> Files:
    """The files of a directory or .zip archive; `~` is expanded.

    needs: what the root should hold, for the FcaError that a missing or unusable root raises.
    """
    path = Path(root).expanduser()
    step = f"set dataset.root to {needs}"
    if not path.exists():
        raise FcaError("dataset.root", root, "an existing directory or .zip archive", step)
    if path.is_dir():
        return Directory(str(path))
    if not zipfile.is_zipfile(path):
        raise FcaError("dataset.root", root, "a directory or a whole .zip archive", step)
    return Archive(str(path))


@dataclass(frozen=True)
class Directory:
    """Files of a directory tree; links to directories are followed."""

    root: str

    def listing(self) -> Listing:
        """All files and folders under the root."""
        found = Listing([], set())
        self._add(self.root, "", found)
        return found

    def _add(self, folder: str, prefix: str, found: Listing) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if _is_hidden(entry.name) or self._leads_up(entry):
                    continue
                if not _is_text(entry.name):
                    raise FcaError("file name", os.fsencode(entry.path), "UTF-8", "rename the file")
                if entry.is_dir():
                    found.folders.add(prefix + entry.name)
                    self._add(entry.path, prefix + entry.name + "/", found)
                elif entry.is_file():
                    found.files.append((prefix + entry.name, entry.stat().st_size))

    def _leads_up(self, entry: os.DirEntry[str]) -> bool:
        """A link to a folder that it lies in would be followed for ever."""
        return entry.is_symlink() and Path(entry.path).parent.resolve().is_relative_to(Path(entry.path).resolve())

    def read(self, path: str) -> bytes:
        """The content of one file."""
        return Path(self.root, path).read_bytes()


@dataclass(frozen=True)
class Archive:
    """Files of a .zip archive."""

    root: str

    def listing(self) -> Listing:
        """All files of the archive, and the folders that hold them or have an entry of their own."""
        found = Listing([], set())
        for info in self._open().infolist():
            parts = info.filename.rstrip("/").split("/")
            if any(_is_hidden(part) for part in parts):
                continue
            folders = parts if info.is_dir() else parts[:-1]
            found.folders.update("/".join(folders[: depth + 1]) for depth in range(len(folders)))
            if not info.is_dir():
                found.files.append((info.filename, info.file_size))
        return found

    def read(self, path: str) -> bytes:
        """The content of one file."""
        return self._open().read(path)

    def _open(self) -> zipfile.ZipFile:
        stat = Path(self.root).stat()
        return _archive(self.root, stat.st_size, stat.st_mtime_ns, os.getpid())


@lru_cache(maxsize=16)
def _archive(root: str, _size: int, _mtime_ns: int, _process: int) -> zipfile.ZipFile:
    """One open archive a process: threads may share it (it locks its file), a forked child must not."""
    return zipfile.ZipFile(root)


@dataclass(frozen=True)
class ImageReader:
    """Decodes the image at a position of a list of paths."""

    files: Files
    paths: Sequence[str]

    def __call__(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """Upright RGB pixels; raises UnreadableImage naming the file."""
        return decode(*content_of(self.files, self.paths[index]))


def content_of(files: Files, path: str) -> tuple[bytes, str]:
    """A file's bytes and its full name for messages; raises UnreadableImage when it cannot be read."""
    name = f"{files.root}/{path}"
    try:
        return files.read(path), name
    except Exception as error:  # the file went away, or its checksum in the archive is wrong: OSError, KeyError, ...
        raise UnreadableImage(f"{name}: {error}") from error


def images_of(listing: Listing) -> list[tuple[str, int]]:
    """The files that are images by their suffix."""
    return [(path, size) for path, size in listing.files if path.lower().endswith(SUFFIXES)]


def name_of(root: str) -> str:
    """What a data set is called when nobody says: the name of its root, without .zip.

    >>> name_of("/data/birds.v2/"), name_of("pets.zip")
    ('birds.v2', 'pets')
    """
    path = Path(root).expanduser().resolve()
    return path.stem if path.suffix.lower() == ".zip" else path.name


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
