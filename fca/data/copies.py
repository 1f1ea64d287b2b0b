"""Images that belong together: copies of one picture, images of one group, and what these connect."""

from __future__ import annotations

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int

from fca.identity import UNREADABLE
from fca.types import SPLITS

CONTENT = "content"  # the column with a digest of each image's file, where images are known by it


def connected_images(items: pd.DataFrame, group: str | None = None) -> Int[np.ndarray, " images"]:
    """Number the sets of images that belong together, from 0 on, and return for each image the number of its set.

    Two images belong together if their content is equal (column CONTENT), if they are in one group, or if a chain of
    such images connects them. An image that is connected to no other is a set by itself.

    group: a column whose values name the groups; an image without a value is in no group. None = there are no groups.

    >>> connected_images(pd.DataFrame({"content": list("abac"), "patient": ["1", "2", "3", "2"]}), "patient").tolist()
    [0, 1, 0, 1]
    """
    positions = pd.Series(np.arange(len(items)))
    # By content and by group: for each image the number of its content or group, missing if the image has none.
    partitions = []
    if CONTENT in items:
        content = items[CONTENT].reset_index(drop=True).astype("str")
        number_of_content = pd.Series(pd.factorize(content)[0])
        # All unreadable images have the content UNREADABLE, but they are no copies of each other.
        partitions.append(number_of_content.mask(content == UNREADABLE))
    if group is not None:
        names = items[group].reset_index(drop=True).astype("str").mask(without_group(items, group).to_numpy())
        partitions.append(pd.Series(pd.factorize(names)[0]).where(names.notna()))

    # A partition connects images only if a content or group occurs more than once. If none does, all are alone.
    joining = [partition for partition in partitions if partition.dropna().duplicated().any()]
    if not joining:
        return positions.to_numpy()

    from scipy.sparse import coo_array  # imported here: it is not needed to plan runs
    from scipy.sparse.csgraph import connected_components

    # A graph with an edge from each image to the first image of the same content or group. Images of one connected
    # component belong together.
    first_images = []
    for partition in joining:
        # All images of a group have the same number, so `idxmin` is the position of the first one. An image without a
        # number gets an edge to itself.
        first = partition.groupby(partition).transform("idxmin").fillna(positions)
        first_images.append(first.astype(np.int64))
    sources = np.concatenate([positions] * len(first_images))
    targets = np.concatenate(first_images)
    edges = coo_array((np.ones(len(sources), np.int8), (sources, targets)), shape=(len(items), len(items)))
    components = connected_components(edges, directed=False)[1]
    return pd.factorize(components)[0].astype(np.int64)  # numbered in the order of their first images


def are_copies(items: pd.DataFrame) -> Bool[np.ndarray, " images"]:
    """For each image, whether another image has equal content; all False if the content of the images is not known."""
    picture = connected_images(items)
    n_images = np.bincount(picture, minlength=1)  # of each picture
    return np.asarray(n_images[picture] > 1)


def without_group(items: pd.DataFrame, group: str) -> pd.Series:
    """Which images have no value of this column, so that they are in no group."""
    return items[group].isna() | (items[group] == "")


def pictures_of_copies(items: pd.DataFrame) -> pd.DataFrame:
    """The pictures that exist as several images of equal content, one line per picture; empty if content is not known.

    Columns: train, val and test (how many of the picture's images are in each split), `labels` (how many different
    labels its images have) and `images` (their ids, separated by \\x1f, a character that no id has). The index is the
    content of the picture.
    """
    copies = items[are_copies(items)]
    if copies.empty:
        return pd.DataFrame(columns=[*SPLITS, "labels", "images"])

    pictures = copies[CONTENT].astype("str").to_numpy()
    counts = pd.crosstab(pictures, copies["split"].to_numpy()).reindex(columns=list(SPLITS), fill_value=0)
    by_picture = copies.assign(label=copies["label"].astype("str")).groupby(pictures)
    return counts.assign(
        labels=by_picture["label"].nunique(),
        images=by_picture["image_id"].agg("\x1f".join),
    )


def copies_in_test(pictures: pd.DataFrame) -> int:
    """The number of test images with a copy among training or validation images, from `pictures_of_copies`."""
    is_seen = (pictures[["train", "val"]] > 0).any(axis=1)
    return int(pictures["test"][is_seen].sum())
