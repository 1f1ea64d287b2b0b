"""Subsets of classes: seeded random draws that anybody can repeat, named subsets, and groups of classes from a file."""

from __future__ import annotations

import math
import random
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from jaxtyping import Integer

from fca.types import ClassSubset, FcaError, check_choice, listed

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


def named_subset(classes: Sequence[str], wanted: Sequence[Any], what: str = "subset.classes") -> ClassSubset:
    """The subset of these class keys; of label indices only where no class key is a number.

    A value that YAML or the command line has read as a number, a truth value or null is the key that is written so:
    with folders 1 to 5, [1, 2] are the classes 1 and 2, not the second and the third.    what: the key, for messages.

    >>> named_subset(("cat", "dog", "eel"), ["eel", 0]).classes, named_subset(("1", "2", "3"), [1, 2]).classes
    ((0, 2), (0, 1))
    """
    index_of = {key: index for index, key in enumerate(classes)}
    keys_are_numbers = any(_number(key) is not None for key in classes)
    indices = []

    for value in wanted:
        key = value if isinstance(value, str) else key_of(classes, value, what)
        index = index_of.get(key) if isinstance(key, str) else None
        is_position = type(value) is int and 0 <= value < len(classes) and not keys_are_numbers
        if index is None and is_position:
            index = value
        if index is None:
            positions = "" if keys_are_numbers else f"; or 0 to {len(classes) - 1}"
            allowed = f"{listed(classes, str(value))}{positions}"
            raise FcaError(what, value, allowed, "name classes of this dataset")
        indices.append(index)

    if len(set(indices)) != len(indices) or len(indices) < 2:
        raise FcaError(what, list(wanted), "two or more different classes", "name each class once")
    return ClassSubset(tuple(sorted(indices)))


def key_of(classes: Sequence[str], value: object, what: str) -> str | None:
    """The class key that a value means, which YAML or the command line may have read as something else than text.

    None where no key is written so. Raises FcaError, calling the value `what`, where several keys are: 1.1 and 1.10.

    >>> key_of(("01", "02"), 1, "subset.classes"), key_of(("no", "yes"), True, "subset.classes")
    ('01', 'yes')
    """
    if isinstance(value, str):
        return value if value in classes else None
    if not isinstance(value, int | float | None):
        return None

    is_endless = isinstance(value, float) and not math.isfinite(value)
    alike = _keys_by_reading(tuple(classes)).get((type(value) is bool, str(value) if is_endless else value), [])
    same_text = [key for key in alike if type(value) is not float and key.casefold() == str(value).casefold()]
    same_type = [key for key in alike if isinstance(value, float) == (not key.lstrip("+-").isdecimal())]
    for narrower in (same_text, same_type):
        if len(alike) > 1 and len(narrower) == 1:
            alike = narrower

    if len(alike) > 1:
        step = f"""put quotes around it: "{what}=['{alike[0]}', ...]\""""
        raise FcaError(what, value, f"one of {', '.join(alike)}, which are all read as {value}", step)
    return alike[0] if alike else None


_WORDS: dict[str, bool | str | None] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("null", "~"), None),
    **dict.fromkeys(("nan", ".nan"), "nan"),  # which equals nothing, itself not either
    **dict.fromkeys(("inf", ".inf"), "inf"),
    **dict.fromkeys(("-inf", "-.inf"), "-inf"),
}  # texts that YAML does not read as texts, in any case of letters


@lru_cache(maxsize=16)
def _keys_by_reading(classes: tuple[str, ...]) -> dict[tuple[bool, object], list[str]]:
    """What a class key without quotes is read as, in YAML or on the command line -> the keys that are.

    The first of each pair tells true and 1 apart, which are equal.
    """
    keys: dict[tuple[bool, object], list[str]] = {}
    for key in classes:
        if key.casefold() in _WORDS:
            word = _WORDS[key.casefold()]
            keys.setdefault((type(word) is bool, word), []).append(key)
        if (number := _number(key)) is not None:
            keys.setdefault((False, number), []).append(key)
    return keys


def _number(text: str) -> float | None:
    """The number that a text is; None for other texts.

    >>> _number("007"), _number("1e3"), _number("0x10"), _number("cat"), _number("nan")
    (7, 1000.0, 16, None, None)
    """
    for read in (int, float, partial(int, base=0)):
        with suppress(ValueError):
            number: float = read(text)
            return number if math.isfinite(number) else None
    return None


@dataclass(frozen=True)
class Groups:
    """Classes that count as one (dog or not dog, a product's kind); a class that is not named belongs to no group.

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
    """The groups in a CSV file; lines that start with # are comments.

    where:   a shipped name (imagenet_16: the entry-level categories of arXiv:1808.08750; imagenet_dog: dog, not dog),
             or the path of a file, which may lie inside a .zip: photos.zip/classes.csv.
    columns: its columns of class keys and of groups.

    Raises FcaError for a missing file, missing columns, and a class in two groups.

    >>> sorted(set(read_groups("imagenet_dog").of.values()))
    ['dog', 'not dog']
    """
    shipped = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = SHIPPED / f"{where}.csv" if where in shipped else Path(where).expanduser()
    try:
        with _opened(path) as file:
            table = pd.read_csv(file, comment="#", dtype=str, keep_default_na=False, na_values=[""])
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
    """The file, which may lie inside a .zip."""
    for parent in path.parents:
        if parent.suffix.lower() == ".zip" and parent.is_file():
            return zipfile.ZipFile(parent).open(str(path.relative_to(parent).as_posix()))
    return path.open("rb")
