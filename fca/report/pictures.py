"""Pictures inside tables: a column of data URIs is shown as pictures, on the page and in W&B."""

from __future__ import annotations

import base64
from io import BytesIO

import pandas as pd
from PIL import Image

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
