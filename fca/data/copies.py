"""Images that belong together: copies of one picture, images of one group, and what these connect."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from fca.identity import UNREADABLE
from fca.types import SPLITS

CONTENT = "content"  # the column with a digest of each image's file, where images are known by it


def kept_together(items: pd.DataFrame, group: str | None = None) -> Int[np.ndarray, " images"]:
    """Which images belong together: those of equal content, those of one group, and all that these connect.

    A number for each image, 0 first, equal for images that belong together.
    group: a column; an image without a value is in no group.

    >>> kept_together(pd.DataFrame({"content": list("abac"), "patient": ["1", "2", "3", "2"]}), "patient").tolist()
    [0, 1, 0, 1]
    """
    alone = pd.Series(np.arange(len(items)))
    parts = [alone]
    if CONTENT in items:
        content = items[CONTENT].reset_index(drop=True).astype("str")
        parts.append(pd.Series(pd.factorize(content)[0]).mask(content == UNREADABLE))
    if group is not None:
        names = items[group].reset_index(drop=True).astype("str").mask(without_group(items, group).to_numpy())
        parts.append(pd.Series(pd.factorize(names)[0]).where(names.notna()))
    joined = [part for part in parts[1:] if part.dropna().duplicated().any()]
    if not joined:
        return alone.to_numpy()

    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    first = [part.groupby(part).transform("idxmin").fillna(alone).astype(np.int64) for part in joined]
    ends = np.concatenate([alone] * len(first)), np.concatenate(first)
    edges = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(len(items), len(items)))
    return pd.factorize(connected_components(edges, directed=False)[1])[0].astype(np.int64)


def are_copies(items: pd.DataFrame) -> Bool[np.ndarray, " images"]:
    """Whether another image has the same content; False for all where content is not known."""
    together = kept_together(items)
    return np.asarray(np.bincount(together, minlength=1)[together] > 1)


def without_group(items: pd.DataFrame, group: str) -> pd.Series:
    """Which images have no value of this column, so that they are in no group."""
    return items[group].isna() | (items[group] == "")


def pictures_of_copies(items: pd.DataFrame) -> pd.DataFrame:
    """A line for each content that several images have: images in train, val and test, `labels` (how many), `images`.

    images: their ids, separated by \\x1f. Empty where content is not known.
    """
    copies = are_copies(items)
    part = items[copies]
    if part.empty:
        return pd.DataFrame(columns=[*SPLITS, "labels", "images"])
    pictures = part[CONTENT].astype("str").to_numpy()
    counts = pd.crosstab(pictures, part["split"].to_numpy()).reindex(columns=list(SPLITS), fill_value=0)
    by = part.assign(label=part["label"].astype("str")).groupby(pictures)
    return counts.assign(labels=by["label"].nunique(), images=by["image_id"].agg("\x1f".join))


def copies_in_test(pictures: pd.DataFrame) -> int:
    """How many test images have a copy among training or validation images, of `pictures_of_copies`."""
    return int(pictures["test"][(pictures[["train", "val"]] > 0).any(axis=1)].sum())
