"""Pictures inside tables: a column of data URIs is shown as pictures, on the page and in W&B; and stored thumbnails."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from PIL import Image

from fca.store import Store

URI = "data:image/png;base64,"


def is_pictures(values: pd.Series) -> bool:
    """Whether every value of a column that is not missing is a PNG in a data URI (RFC 2397), and there is one.

    >>> is_pictures(pd.Series([None, URI + "iVBORw0K"])), is_pictures(pd.Series([URI, "javascript:"]))
    (True, False)
    """
    known = values.dropna()
    return len(known) > 0 and all(isinstance(value, str) and value.startswith(URI) for value in known)


def picture(uri: str) -> Image.Image:
    """The picture of a data URI."""
    return Image.open(BytesIO(base64.b64decode(uri.removeprefix(URI), validate=True)))


ACROSS = 8  # pictures in a row


class Pictures(NamedTuple):
    """Data URIs of PNG pictures, None where there is none, and the run that made them."""

    thumbnails: list[str | None]
    run_id: str | None


def data_uri(pixels: UInt8[np.ndarray, "height width 3"]) -> str:
    """RGB pixels as a PNG in a data URI (RFC 2397): a picture that needs no file.

    >>> data_uri(np.zeros((1, 1, 3), np.uint8))[:30]
    'data:image/png;base64,iVBORw0K'
    """
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return URI + base64.b64encode(file.getvalue()).decode("ascii")


def pictures(store: Store, image_ids: Sequence[str], fingerprint: str | None) -> Pictures:
    """The thumbnails that `task=describe` stored of these images.

    fingerprint: of their data set; None (responses from a file): the first described set that has all of them.
    """
    described = store.rows("task == 'describe'")
    if fingerprint is not None:
        described = described[described["fingerprint"] == fingerprint]
    for run_id, data in zip(described["run_id"], described["fingerprint"], strict=True):
        at = pd.Index(store.items(str(data))["image_id"]).get_indexer(pd.Index(image_ids))
        if (at >= 0).all():
            return Pictures([data_uri(np.asarray(small)) for small in store.array(run_id, "thumbnails")[at]], run_id)
    return Pictures([None] * len(image_ids), None)
