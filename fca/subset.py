"""Subsets of classes: seeded random draws that anybody can repeat, named subsets, and groups of classes from a file."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Integer

from fca.csv_table import read_table
from fca.names import check_meant, check_spellings
from fca.types import ClassSubset, FcaError, check_choice

SAMPLERS = ("uniform", "fca")
SHIPPED = Path(__file__).parent / "groups"  # of classes, one file each


class NoSuchSubset(FcaError):
    """A data set has no subset of so many classes; another one of a grid may have."""


def draw_subset(num_classes: int, ncl: int, seed: int, sampler: str = "uniform") -> ClassSubset:
    """Draw `ncl` of `num_classes` classes; the same on every machine and Python (the standard library's generator).

    uniform: every class can be drawn, and the draws of different (num_classes, ncl, seed) are independent.
    fca:     the draws of the released Few-Class Arena: its range leaves out the last class, and the subsets of one
             seed are nested over small ncl (github.com/fewclassarena/fca, tools/dataset_converters/convert_ncls.py).

    Raises NoSuchSubset if ncl is outside 2..num_classes (fca: one less, unless ncl is all classes).

    >>> draw_subset(10, 3, seed=0).classes
    (2, 3, 8)
    >>> draw_subset(1000, 2, seed=0, sampler="fca").classes
    (394, 864)
    """
    check_choice("subset.sampler", sampler, SAMPLERS)
    if ncl == num_classes and ncl >= 2:
        return full_set(num_classes)
    reachable = num_classes - (sampler == "fca")
    if not 2 <= ncl <= reachable:
        also = f", or all {num_classes} (fca never draws the last class)" if sampler == "fca" else ""
        step = "change subset.ncl or take a dataset with more classes"
        raise NoSuchSubset("subset.ncl", ncl, f"2 to {reachable}{also}", step)
    rng = random.Random(seed if sampler == "fca" else f"{num_classes}:{ncl}:{seed}")
    return ClassSubset(tuple(sorted(rng.sample(range(reachable), ncl))), seed, sampler)


def number_of_classes(ncl: int | float, num_classes: int) -> int:
    """The number of classes meant by ncl: a whole number, or a share of them below 1 (rounded down, as in the paper).

    Raises FcaError for a number in between.

    >>> number_of_classes(5, 100), number_of_classes(0.1, 47)
    (5, 4)
    """
    if ncl != int(ncl) and not 0 < ncl < 1:
        allowed = f"a whole number from 2 to {num_classes}, or a share of them between 0 and 1"
        raise FcaError("subset.ncl", ncl, allowed, "e.g. subset.ncl=5, or subset.ncl=0.1 for a tenth of the classes")
    return int(ncl) if ncl == int(ncl) else int(num_classes * ncl)


def full_set(num_classes: int) -> ClassSubset:
    """All classes: one subset whatever the seed, so it has no record of a draw."""
    return ClassSubset(tuple(range(num_classes)))


def named_subset(classes: Sequence[str], wanted: Sequence[Any]) -> ClassSubset:
    """The subset of these class keys or label indices.

    >>> named_subset(("cat", "dog", "eel"), ["eel", 0]).classes
    (0, 2)
    """
    position = {key: index for index, key in enumerate(classes)}
    check_meant("subset.classes", [w for w in wanted if isinstance(w, str)], classes, "the data set")
    indices = [position.get(w, -1) if isinstance(w, str) else w for w in wanted]
    for w, index in zip(wanted, indices, strict=True):
        if type(index) is not int or not 0 <= index < len(classes):
            shown = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
            raise FcaError("subset.classes", w, f"{shown}; or 0 to {len(classes) - 1}", "name classes of this dataset")
    if len(set(indices)) != len(indices) or len(indices) < 2:
        raise FcaError("subset.classes", list(wanted), "two or more different classes", "name each class once")
    return ClassSubset(tuple(sorted(indices)))


@dataclass(frozen=True)
class Groups:
    """Classes that count as one (dog or not dog, a product's kind); a class that is not named belongs to no group.

    name: of the file.    of: class key -> group.
    """

    name: str
    of: Mapping[str, str]

    def codes(self, keys: Sequence[str]) -> Integer[np.ndarray, " keys"]:
        """Position of each key's group among the sorted groups; -1 for none.

        Raises FcaError for a key that the file spells in another way.

        >>> Groups("pets", {"tabby": "cat", "corgi": "dog", "pug": "dog"}).codes(["pug", "tench", "tabby"])
        array([ 1, -1,  0])
        """
        check_meant("class", keys, self.of, f"the file of groups {self.name}")
        position = {group: code for code, group in enumerate(sorted(set(self.of.values())))}
        return np.array([position[self.of[key]] if key in self.of else -1 for key in keys], dtype=np.int64)


def read_groups(where: str, columns: Sequence[str] = ("class", "group")) -> Groups:
    """The groups in a CSV file; lines that start with # are comments. A class without a group belongs to none.

    where:   a shipped name (imagenet_16: the entry-level categories of arXiv:1808.08750; imagenet_dog: dog, not dog),
             or the path of a file, which may lie inside a .zip: photos.zip/classes.csv.
    columns: its columns of class keys and of groups.

    Raises FcaError for a missing file, missing columns, a line with too many or too few cells, a group without a class,
    a class in two groups, no class with a group, and two spellings of one class or group (see fca.names).

    >>> sorted(set(read_groups("imagenet_dog").of.values()))
    ['dog', 'not dog']
    """
    shipped = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = SHIPPED / f"{where}.csv" if where in shipped else Path(where).expanduser()
    try:
        with _opened(path) as file:
            content = file.read()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        allowed = f"one of {', '.join(shipped)}, or the path of a CSV file ({error})"
        raise FcaError("groups", where, allowed, "name the file of classes and groups") from error
    table = read_table(content, where, comments=True)
    if len(columns) != 2 or not set(columns) <= set(table):
        allowed = f"two columns of {where}, of classes and of groups: {', '.join(map(repr, table))}"
        raise FcaError("group_columns", ", ".join(columns), allowed, "name them as group_columns=[class, group]")
    pairs = table[list(columns)].drop_duplicates().set_axis(["key", "group"], axis="columns")
    pairs = pairs[pairs["group"] != ""]
    if (pairs["key"] == "").any():
        group = pairs.loc[pairs["key"] == "", "group"].iloc[0]
        raise FcaError(f"group without a class in {where}", group, "a class in every line that has a group", "add it")
    if pairs.empty:
        raise FcaError(f"groups in {where}", "none", "a line for each class, with its group", "fill the file")
    step = f"write it in one way in {where}"
    check_spellings(f"class in {where}", pairs["key"], "lines", step)
    check_spellings(f"group in {where}", pairs["group"], "classes", step)
    twice = pairs.loc[pairs["key"].duplicated(), "key"].tolist()
    if twice:
        raise FcaError("class in two groups", ", ".join(twice[:5]), "one group a class", f"correct {where}")
    return Groups(path.stem, dict(zip(pairs["key"], pairs["group"], strict=True)))


def _opened(path: Path) -> IO[Any]:
    """The file, which may lie inside a .zip."""
    for parent in path.parents:
        if parent.suffix.lower() == ".zip" and parent.is_file():
            return zipfile.ZipFile(parent).open(str(path.relative_to(parent).as_posix()))
    return path.open("rb")
