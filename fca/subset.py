"""Subsets of classes: reproducible seeded draws, named subsets, and groups of classes from a file."""

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
from jaxtyping import Integer

from fca.csv_table import read_table
from fca.names import check_meant, check_spellings
from fca.types import ClassSubset, FcaError, check_choice, choices_in_words

SAMPLERS = ("uniform", "fca")
SHIPPED = Path(__file__).parent / "groups"  # the folder of CSV files of classes and groups that fca brings


class NoSuchSubset(FcaError):
    """A data set has no subset of this many classes; another data set of a grid may have one."""


def draw_subset(num_classes: int, ncl: int, seed: int, sampler: str = "uniform") -> ClassSubset:
    """Draw `ncl` of `num_classes` classes at random, the same ones on every machine and Python.

    sampler: how they are drawn.
      uniform: every class can be drawn, and the draws of different (num_classes, ncl, seed) are independent.
      fca:     as the released code of the Few-Class Arena: it never draws the last class, and the subsets of one seed
               are nested over small ncl (github.com/fewclassarena/fca, tools/dataset_converters/convert_ncls.py);
               `random.sample` draws large samples in another way.

    If ncl is num_classes, the subset is all classes, whatever the seed. Raises NoSuchSubset if ncl is outside of
    2..num_classes; the sampler fca draws at most num_classes - 1.

    >>> draw_subset(10, 3, seed=0).classes
    (2, 3, 8)
    >>> draw_subset(1000, 2, seed=0, sampler="fca").classes
    (394, 864)
    """
    check_choice("subset.sampler", sampler, SAMPLERS)
    if ncl == num_classes and ncl >= 2:
        return full_set(num_classes)

    is_fca = sampler == "fca"
    drawable = num_classes - 1 if is_fca else num_classes
    if not 2 <= ncl <= drawable:
        allowed = f"2 to {drawable}"
        if is_fca:
            allowed += f", or all {num_classes} (fca never draws the last class)"
        raise NoSuchSubset("subset.ncl", ncl, allowed, "change subset.ncl or take a dataset with more classes")

    # fca: the seed alone, as in the released code; uniform: all three numbers, so that draws are independent
    rng = random.Random(seed if is_fca else f"{num_classes}:{ncl}:{seed}")
    classes = rng.sample(range(drawable), ncl)
    return ClassSubset(tuple(sorted(classes)), seed, sampler)


def number_of_classes(ncl: int | float, num_classes: int) -> int:
    """The number of classes in a subset for the setting `ncl`: a whole number itself, or a fraction of all classes.

    A fraction is rounded down, as in the paper. Raises FcaError for other numbers.

    >>> number_of_classes(5, 100), number_of_classes(0.1, 47)
    (5, 4)
    """
    if ncl == int(ncl):
        return int(ncl)
    if 0 < ncl < 1:
        return int(num_classes * ncl)

    allowed = f"a whole number from 2 to {num_classes}, or a share of them between 0 and 1"
    raise FcaError("subset.ncl", ncl, allowed, "e.g. subset.ncl=5, or subset.ncl=0.1 for a tenth of the classes")


def full_set(num_classes: int) -> ClassSubset:
    """All classes: the same subset for every seed, so it has no record of a draw."""
    return ClassSubset(tuple(range(num_classes)))


def named_subset(classes: Sequence[str], wanted: Sequence[Any], what: str = "subset.classes") -> ClassSubset:
    """The subset of the classes that a user names by their keys or by label indices.

    classes: all class keys.
    wanted:  what the user named.
    what:    the setting's name, for messages.

    A value that YAML or the command line has read as a number, a truth value or null stands for the class key with this
    text: with folders 1 to 5, [1, 2] are the classes 1 and 2, not the second and the third. A number is a label index
    only if no class key is a number. Raises FcaError for unknown classes, and unless two or more different ones remain.

    >>> named_subset(("cat", "dog", "eel"), ["eel", 0]).classes, named_subset(("1", "2", "3"), [1, 2]).classes
    ((0, 2), (0, 1))
    """
    wanted_texts = [value for value in wanted if isinstance(value, str)]
    check_meant(what, wanted_texts, classes, "the data set")  # an error for another spelling of a key
    index_of = {key: index for index, key in enumerate(classes)}
    has_numeric_key = any(_number(key) is not None for key in classes)

    indices = []
    for value in wanted:
        key = value if isinstance(value, str) else key_of(classes, value, what)
        index = index_of.get(key) if isinstance(key, str) else None
        is_position = type(value) is int and 0 <= value < len(classes) and not has_numeric_key  # True is no int here
        if index is None and is_position:
            index = value
        if index is None:
            allowed = choices_in_words(classes, str(value))
            if not has_numeric_key:
                allowed += f"; or 0 to {len(classes) - 1}"
            raise FcaError(what, value, allowed, "name classes of this dataset")
        indices.append(index)

    if len(set(indices)) != len(indices) or len(indices) < 2:
        raise FcaError(what, list(wanted), "two or more different classes", "name each class once")
    return ClassSubset(tuple(sorted(indices)))


def key_of(classes: Sequence[str], value: object, what: str) -> str | None:
    """The class key that a user meant by a value which YAML or the command line may have changed from text.

    Without quotes the key "01" is read as the number 1, for example, and "no" as False. So this function looks for the
    key that is read as this value; it returns None if there is none.

    classes: all class keys.
    value:   what was read.
    what:    the setting's name, for the message.
    Raises FcaError if several keys are read as the value and neither its text nor its type decides between them, such
    as 1.1 and 1.10.

    >>> key_of(("01", "02"), 1, "subset.classes"), key_of(("no", "yes"), True, "subset.classes")
    ('01', 'yes')
    """
    if isinstance(value, str):
        return value if value in classes else None
    if not isinstance(value, int | float | None):  # a list, for example, which no key is read as
        return None

    is_finite = not isinstance(value, float) or math.isfinite(value)
    # the key of `_keys_by_reading`: nan as text, because nan != nan; and whether it is a bool, because True == 1
    reading = (type(value) is bool, value if is_finite else str(value))
    keys = _keys_by_reading(tuple(classes)).get(reading, [])

    # Of several keys take the one with the value's own text, or else the one of its type: 1 is "1", not "1.0".
    if len(keys) > 1:
        text = str(value).casefold()
        # A key of digits alone, such as "1", is read as an int, and "1.0" as a float
        is_float = isinstance(value, float)
        keys_of_same_text = [key for key in keys if key.casefold() == text]
        keys_of_same_type = [key for key in keys if key.lstrip("+-").isdecimal() != is_float]
        if len(keys_of_same_text) == 1 and type(value) is not float:  # str(1.10) is "1.1", which may not be meant
            keys = keys_of_same_text
        elif len(keys_of_same_type) == 1:
            keys = keys_of_same_type

    if len(keys) > 1:
        step = f"""put quotes around it: "{what}=['{keys[0]}', ...]\""""
        raise FcaError(what, value, f"one of {', '.join(keys)}, which are all read as {value}", step)
    return keys[0] if keys else None


# Words that YAML does not read as text, in upper or lower case -> the value; nan as text, because nan != nan.
_VALUE_OF_WORD: dict[str, bool | str | None] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("null", "~"), None),
    **dict.fromkeys(("nan", ".nan"), "nan"),
    **dict.fromkeys(("inf", ".inf"), "inf"),
    **dict.fromkeys(("-inf", "-.inf"), "-inf"),
}


@lru_cache(maxsize=16)
def _keys_by_reading(classes: tuple[str, ...]) -> dict[tuple[bool, object], list[str]]:
    """Which class keys YAML or the command line reads as another value than text if they have no quotes.

    Maps each such value to the class keys that are read as it, for example 1 to "1" and "01". In the mapping a value is
    a pair: whether it is a bool, and the value; without the first part, True would equal 1.
    """
    keys_by_reading: dict[tuple[bool, object], list[str]] = {}
    for key in classes:
        if key.casefold() in _VALUE_OF_WORD:  # words such as yes, null and nan
            value = _VALUE_OF_WORD[key.casefold()]
            keys_by_reading.setdefault((type(value) is bool, value), []).append(key)

        number = _number(key)
        if number is not None:
            keys_by_reading.setdefault((False, number), []).append(key)
    return keys_by_reading


def _number(text: str) -> float | None:
    """The finite number that a text is read as; None for other texts.

    >>> _number("007"), _number("1e3"), _number("0x10"), _number("cat"), _number("nan")
    (7, 1000.0, 16, None, None)
    """
    for parse in (int, float, partial(int, base=0)):  # base 0: 0x10, 0b1
        with suppress(ValueError):
            number: float = parse(text)
            return number if math.isfinite(number) else None
    return None


@dataclass(frozen=True)
class Superclasses:
    """Superclasses: groups of classes that count as one class, such as dog and not dog.

    name: that of the file.
    of:   class key -> group; a class that is not in it belongs to no group.
    """

    name: str
    of: Mapping[str, str]

    def codes(self, keys: Sequence[str]) -> Integer[np.ndarray, " keys"]:
        """The number of each class key's group, its position among the sorted groups; -1 if it is in none.

        Raises FcaError for a key that the file spells in another way.

        >>> Superclasses("pets", {"tabby": "cat", "corgi": "dog", "pug": "dog"}).codes(["pug", "tench", "tabby"])
        array([ 1, -1,  0])
        """
        check_meant("class", keys, self.of, f"the file of groups {self.name}")
        groups = sorted(set(self.of.values()))
        code_of_group = {group: code for code, group in enumerate(groups)}
        codes = np.full(len(keys), -1, dtype=np.int64)
        for position, key in enumerate(keys):
            if key in self.of:
                codes[position] = code_of_group[self.of[key]]
        return codes


def read_superclasses(where: str, columns: Sequence[str] = ("class", "group")) -> Superclasses:
    """Read groups of classes from a CSV file. Lines that start with # are comments; a class may have no group.

    where:   the name of a file that fca brings (imagenet_16: the entry-level categories of arXiv:1808.08750;
             imagenet_dog: dog, not dog), or the path of a file, which may be inside a .zip: photos.zip/classes.csv.
    columns: the names of its columns of class keys and of groups.

    Raises FcaError for a missing file, missing columns, a line with too many or too few cells, a group without a class,
    a class in two groups, a file in which no class has a group, and two spellings of one class or group (see
    fca.names).

    >>> sorted(set(read_superclasses("imagenet_dog").of.values()))
    ['dog', 'not dog']
    """
    shipped_names = sorted(path.stem for path in SHIPPED.glob("*.csv"))
    path = SHIPPED / f"{where}.csv" if where in shipped_names else Path(where).expanduser()
    try:
        with _open_also_in_zip(path) as file:
            content = file.read()
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:  # KeyError: the .zip has no such file
        allowed = f"one of {', '.join(shipped_names)}, or the path of a CSV file ({error})"
        raise FcaError("groups", where, allowed, "name the file of classes and groups") from error

    table = read_table(content, where, comments=True)
    if len(columns) != 2 or not set(columns) <= set(table):
        allowed = f"two columns of {where}, of classes and of groups: {', '.join(map(repr, table))}"
        raise FcaError("group_columns", ", ".join(columns), allowed, "name them as group_columns=[class, group]")

    pairs = table[list(columns)].set_axis(["key", "group"], axis="columns").drop_duplicates()
    pairs = pairs[pairs["group"] != ""]  # the other classes belong to no group
    groups_without_class = pairs.loc[pairs["key"] == "", "group"]
    if len(groups_without_class):
        group = groups_without_class.iloc[0]
        raise FcaError(f"group without a class in {where}", group, "a class in every line that has a group", "add it")
    if pairs.empty:
        raise FcaError(f"groups in {where}", "none", "a line for each class, with its group", "fill the file")

    step = f"write it in one way in {where}"
    check_spellings(f"class in {where}", pairs["key"], "lines", step)
    check_spellings(f"group in {where}", pairs["group"], "classes", step)
    in_two_groups = pairs.loc[pairs["key"].duplicated(), "key"].tolist()
    if in_two_groups:
        raise FcaError("class in two groups", ", ".join(in_two_groups[:5]), "one group a class", f"correct {where}")
    group_of_class = dict(zip(pairs["key"], pairs["group"], strict=True))
    return Superclasses(path.stem, group_of_class)


def _open_also_in_zip(path: Path) -> IO[Any]:
    """Open a file for reading, which may be inside a .zip: the path then leads through the .zip like a folder."""
    for parent in path.parents:
        if parent.suffix.lower() == ".zip" and parent.is_file():
            path_in_zip = path.relative_to(parent).as_posix()
            return zipfile.ZipFile(parent).open(path_in_zip)
    return path.open("rb")
