"""Classes that count as one: dog or not dog, a product's kind. A file says which class belongs to which group."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from jaxtyping import Integer

from fca.nouns import FcaError

SHIPPED = Path(__file__).parent


@dataclass(frozen=True)
class Groups:
    """Which group a class belongs to; a class that is not named belongs to none.

    name: of the file.    of: class key -> group.
    """

    name: str
    of: Mapping[str, str]

    def codes(self, keys: Sequence[str]) -> Integer[np.ndarray, " keys"]:
        """Position of each key's group among the sorted groups; -1 for none.

        >>> Groups("pets", {"tabby": "cat", "corgi": "dog", "pug": "dog"}).codes(["pug", "tench", "tabby"])
        array([ 1, -1,  0])
        """
        position = {group: code for code, group in enumerate(sorted(set(self.of.values())))}
        return np.array([position[self.of[key]] if key in self.of else -1 for key in keys], dtype=np.int64)


def read_groups(where: str, columns: Sequence[str] = ("class", "group")) -> Groups:
    """The groups in a CSV file; lines that start with # are remarks.

    where:   a shipped name (imagenet_16: the entry-level categories of arXiv:1808.08750; imagenet_dog: dog, not dog),
             or the path of a file, which may lie inside a .zip: photos.zip/classes.csv.
    columns: its columns of class keys and of groups.

    Raises FcaError for a file that is not there, columns that it lacks, and a class in two groups.

    >>> sorted(set(read_groups("imagenet_dog").of.values()))
    ['dog', 'not dog']
    """
    shipped = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = SHIPPED / f"{where}.csv" if where in shipped else Path(where).expanduser()
    try:
        with _opened(path) as file:
            table = pd.read_csv(file, comment="#", dtype=str)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        allowed = f"one of {', '.join(shipped)}, or the path of a CSV file ({error})"
        raise FcaError("groups", where, allowed, "name the file of classes and groups") from error
    if len(columns) != 2 or not set(columns) <= set(table):
        allowed = f"two columns of {where}, of classes and of groups: {', '.join(map(str, table))}"
        raise FcaError("group_columns", ", ".join(columns), allowed, "name them as group_columns=[class, group]")
    pairs = table[list(columns)].dropna().drop_duplicates().set_axis(["key", "group"], axis="columns")
    twice = pairs.loc[pairs["key"].duplicated(), "key"].tolist()
    if twice:
        raise FcaError("class in two groups", ", ".join(twice[:5]), "one group a class", f"correct {where}")
    return Groups(path.stem, dict(zip(pairs["key"], pairs["group"], strict=True)))


def _opened(path: Path) -> IO[Any]:
    """The file, also below a path that leads through a .zip."""
    for parent in path.parents:
        if parent.suffix.lower() == ".zip" and parent.is_file():
            return zipfile.ZipFile(parent).open(str(path.relative_to(parent).as_posix()))
    return path.open("rb")
