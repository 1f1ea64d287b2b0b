"""Weights that lie on the web: fetched once, kept where torch keeps them, checked against the sha256 in their name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from fca.models.weights import one_line
from fca.nouns import FcaError


def fetched(url: str) -> Path:
    """The local copy of a weights file, fetched on first use into torch.hub's folder (TORCH_HOME moves it).

    Names that end in -0123abcd.pth carry the first digits of their sha256, which is checked.
    Raises FcaError naming the file to bring when it is not there and cannot be fetched.
    """
    from torch.hub import download_url_to_file, get_dir

    name = Path(urlsplit(url).path).name
    file = Path(get_dir(), "checkpoints", name)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    digits = re.search(r"[-_]([0-9a-f]{8,})\.\w+$", name)
    try:
        download_url_to_file(url, str(file), hash_prefix=digits and digits[1], progress=False)
    except (OSError, RuntimeError) as error:  # no network; another content than its name says
        step = f"connect once, or copy {url} here and set model.weights=PATH"
        raise FcaError("model.weights", name, f"weights that can be fetched ({one_line(error)})", step) from error
    return file
