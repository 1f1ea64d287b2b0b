"""Pictures inside tables: a column of data URIs is shown as pictures, on the page and in W&B; thumbnails of images."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from PIL import Image, ImageOps

from fca.store import Store
from fca.store.files import content_of, write_whole
from fca.types import Table, UnreadableImage

URI = "data:image/png;base64,"


def is_pictures(values: pd.Series) -> bool:
    """Whether every value of a column that is not missing is a PNG in a data URI (RFC 2397), and there is one.

    >>> is_pictures(pd.Series([None, URI + "iVBORw0K"])), is_pictures(pd.Series([URI, "javascript:"]))
    (True, False)
    """
    present_values = values.dropna()
    if present_values.empty:
        return False
    return all(isinstance(value, str) and value.startswith(URI) for value in present_values)


def picture(uri: str) -> Image.Image:
    """The picture of a data URI."""
    return Image.open(BytesIO(base64.b64decode(uri.removeprefix(URI), validate=True)), formats=["PNG"])


ACROSS = 8  # pictures in a row of a figure
THUMBNAIL = 128  # pixels a side
LARGEST = 1_600  # pixels of the longer side of a picture at full size


class Pictures(NamedTuple):
    """Data URIs of PNG pictures, None where there is none, and the run that described their data set, if one did."""

    thumbnails: list[str | None]
    run_id: str | None


def data_uri(png: bytes) -> str:
    """A PNG in a data URI (RFC 2397): a picture that needs no file.

    >>> data_uri(png_of(np.zeros((1, 1, 3), np.uint8)))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    return URI + base64.b64encode(png).decode("ascii")


def png_of(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """RGB pixels as a PNG."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def pictures(store: Store, image_ids: Sequence[str], fingerprint: str | None) -> Pictures:
    """Thumbnails of these images (as data URIs), in their order, with the run of task `describe` on their data set.

    They come from the cache if an earlier page made them. Otherwise they are made of the images, if these still exist,
    or taken from a run of `describe` by version 0.1, which stored a thumbnail of every image. Other images get None in
    place of a thumbnail. The run is None if the data set was not described, or if no image has a thumbnail.

    fingerprint: the fingerprint of their data set. None if it is unknown, as for responses from a file: then the first
                 described data set that has all of the images is taken.
    """
    rows = store.rows("task == 'describe'")
    run_id_by_fingerprint = dict(zip(rows["fingerprint"], rows["run_id"], strict=True))
    if fingerprint is None:
        requested_ids = pd.Index(image_ids)
        for described_fingerprint in run_id_by_fingerprint:
            if requested_ids.isin(store.items(str(described_fingerprint))["image_id"]).all():
                fingerprint = described_fingerprint
                break
    if fingerprint is None:
        return Pictures([None] * len(image_ids), None)

    run_id = run_id_by_fingerprint.get(fingerprint)
    unique_ids = list(dict.fromkeys(image_ids))
    uri_by_image = _thumbnail_uris(store, str(fingerprint), unique_ids, run_id)
    thumbnails = [uri_by_image.get(image_id) for image_id in image_ids]
    used_run_id = run_id if uri_by_image else None  # no thumbnail, so nothing comes from the run
    return Pictures(thumbnails, used_run_id)


def _thumbnail_uris(store: Store, fingerprint: str, image_ids: Sequence[str], run_id: str | None) -> dict[str, str]:
    """Image id -> its thumbnail as a data URI, for images that have a thumbnail.

    Thumbnails and full-size pictures that the cache lacks are made and added to it, if the images still exist.

    fingerprint: of the data set.
    run_id:      the run of the task `describe` on this data set; None if the data set was not described.
    """
    uri_by_image = {}
    file_by_image = {}
    for image_id in image_ids:
        # the name depends on the data set, the image and the size of thumbnails; \x1f separates the three
        name = hashlib.sha256(f"{fingerprint}\x1f{image_id}\x1f{THUMBNAIL}".encode()).hexdigest()[:24]
        file_by_image[image_id] = store.outputs / "cache" / "thumbnails" / f"{name}.png"
        png = _picture_bytes(file_by_image[image_id])
        if png:
            uri_by_image[image_id] = data_uri(png)

    def is_incomplete(image_id: str) -> bool:
        """Whether the cache lacks the thumbnail or the full-size picture, whose name is made from the thumbnail."""
        return image_id not in uri_by_image or _full_size(_large_file(store, uri_by_image[image_id])) is None

    incomplete_ids = [image_id for image_id in image_ids if is_incomplete(image_id)]
    if not incomplete_ids:
        return uri_by_image

    for image_id, pixels, image in _thumbnails(store, fingerprint, incomplete_ids, run_id):
        with suppress(OSError):  # a read-only store or a full disk: the page shows the picture all the same
            if image_id not in uri_by_image:
                png = png_of(pixels)
                uri_by_image[image_id] = data_uri(png)
                write_whole(file_by_image[image_id], methodcaller("write", png))
            if image is not None:
                write_whole(_large_file(store, uri_by_image[image_id]), methodcaller("write", _jpeg_of(image)))
    return uri_by_image


def name_of_large(uri: str) -> str:
    """The name of the file with the picture of a thumbnail at full size."""
    return f"{hashlib.sha256(uri.encode()).hexdigest()[:24]}.jpg"


def large_pictures(store: Store, tables: Iterable[Table]) -> dict[str, Path]:
    """Thumbnail -> the cached file of the same picture at full size, for the thumbnails in these tables that have one.

    There is no file for a picture that is no larger than its thumbnail, or whose thumbnail was stored by version 0.1.
    Symbolic links are not followed: they would let a store from a stranger copy any file of this machine into a page.
    """
    uris: dict[str, None] = {}
    for table in tables:
        if "thumbnail" in table.frame:
            uris.update(dict.fromkeys(table.frame["thumbnail"].dropna()))

    file_by_uri = {}
    for uri in uris:
        file = _large_file(store, uri)
        size = _full_size(file)  # None for a missing file and for a link
        if size is not None and max(size) > THUMBNAIL:
            file_by_uri[uri] = file
    return file_by_uri


def _full_size(file: Path) -> tuple[int, int] | None:
    """Width and height of a picture that is stored at full size; None where there is none, or a link."""
    if file.is_symlink():
        return None
    content = _picture_bytes(file, "JPEG")
    if content is None:
        return None
    return Image.open(BytesIO(content)).size


def _large_file(store: Store, uri: str) -> Path:
    """Where the picture of a thumbnail is cached at full size."""
    return store.outputs / "cache" / "pictures" / name_of_large(uri)


def _jpeg_of(image: Image.Image) -> bytes:
    """A JPEG of an image, shrunk in place to LARGEST where it is larger."""
    image.thumbnail((LARGEST, LARGEST), Image.Resampling.LANCZOS)
    file = BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def _picture_bytes(file: Path, image_format: str = "PNG") -> bytes | None:
    """The bytes of a picture; None where it is missing, damaged or of another format."""
    try:
        content = content_of(file)
        Image.open(BytesIO(content), formats=[image_format]).verify()
    except Exception:  # Pillow raises many kinds
        return None
    return content


def _thumbnails(
    store: Store, fingerprint: str, image_ids: Sequence[str], run_id: str | None
) -> Iterator[tuple[str, UInt8[np.ndarray, "height width 3"], Image.Image | None]]:
    """Yield image id, thumbnail and full image of each image that can be read.

    A thumbnail is the image fitted into a square, on white. If `run_id` was made by version 0.1, the thumbnails come
    from this run, and the full images are None. Otherwise they are made of the images of the data set, if it still
    exists; if not, nothing is yielded.

    run_id: the run of the task `describe` on this data set; None if there is none.
    """
    if run_id is not None and (store.folder(run_id) / "thumbnails.npy").exists():  # a run of version 0.1
        positions = pd.Index(store.items(fingerprint)["image_id"]).get_indexer(pd.Index(image_ids))
        thumbnails = np.asarray(store.array(run_id, "thumbnails")[positions])
        for image_id, pixels in zip(image_ids, thumbnails, strict=True):
            yield image_id, pixels, None
        return

    data = store.images(fingerprint)
    if not data:
        return
    positions = pd.Index(data.items["image_id"]).get_indexer(pd.Index(image_ids))
    for image_id, position in zip(image_ids, positions.tolist(), strict=True):
        with suppress(UnreadableImage):
            image = Image.fromarray(data.read(position))
            thumbnail = ImageOps.pad(image, (THUMBNAIL, THUMBNAIL), Image.Resampling.BICUBIC, "white")
            yield image_id, np.asarray(thumbnail), image
