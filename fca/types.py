"""What every part of fca shares: types, checks, what is trusted, random numbers. It imports no part, and no torch."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, fields, is_dataclass
from functools import cache, cached_property
from importlib import import_module
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    Protocol,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, UInt8

if TYPE_CHECKING:
    import torch

Arrays = dict[str, np.ndarray]
SPLITS = ("train", "val", "test")
LEVELS = ("easy", "medium", "hard")  # of difficulty, of an image
BEST = "best"  # the snapshot of a training with the highest accuracy on val


class FcaError(Exception):
    """An error that a user can cause and mend: what was wrong, its value, what is allowed, the next step.

    >>> print(FcaError("subset.ncl", 11, "2 to 10, the classes of digits", "lower it or take a larger dataset"))
    subset.ncl = 11; allowed: 2 to 10, the classes of digits; next: lower it or take a larger dataset
    """

    def __init__(self, what: str, value: object, allowed: str, step: str) -> None:
        super().__init__(what, str(value), allowed, step)  # four texts: so it can be sent between processes

    def __str__(self) -> str:
        return "{} = {}; allowed: {}; next: {}".format(*self.args)


def check_choice(what: str, value: object, choices: Iterable[object], step: str = "take one of these") -> None:
    """Raises FcaError for a value that is not among the choices, listing them."""
    if value not in (allowed := list(choices)):
        raise FcaError(what, value, ", ".join(map(str, allowed)), step)


def plain_name(what: str, value: object) -> str:
    """The value, which is to name a file or folder: letters, digits, `.`, `_`, `-` and spaces, at most 100 of them.

    Raises FcaError for anything else, such as a name that leads to another folder or is hidden.

    >>> plain_name("report.name", "few_class 2.0")
    'few_class 2.0'
    """
    if not (isinstance(value, str) and len(value) <= 100 and re.fullmatch(r"\w(?:[\w .-]*[\w-])?", value)):
        allowed = "a plain name: letters, digits, . _ - and spaces inside it, at most 100"
        raise FcaError(what, repr(value)[:120], allowed, "choose another name")
    return value


def fits(value: Any, hint: Any) -> bool:
    """Whether a value, as JSON and YAML give it, is of a type such as dict[str, list[float]] or int | None.

    >>> fits([1, 2.5], list[float] | None), fits({"a": 1}, dict[str, str]), fits(True, int)
    (True, False, False)
    """
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind is UnionType:
        return any(fits(value, part) for part in parts)
    if kind is Any:
        return True
    if type(value) is not (dict if kind is Mapping else kind):
        return kind is float and type(value) is int
    if isinstance(value, dict):
        return not parts or all(fits(key, parts[0]) and fits(one, parts[1]) for key, one in value.items())
    return not (isinstance(value, list) and parts) or all(fits(one, parts[0]) for one in value)


# Whose classes and functions a configuration, a store or a command line may name (docs/adr/0018).

PLUGINS = "FCA_PLUGINS"
"""The environment variable that lists modules as the key `plugins` does, with commas between them."""
_plugins: list[str] = []


def use_plugins(modules: Iterable[str]) -> None:
    """Trust these modules, and those in them, from now on and in place of earlier ones: the user typed their names."""
    _plugins[:] = modules


def plugins() -> list[str]:
    """The modules that the user lists: those of `use_plugins`, and those in FCA_PLUGINS."""
    listed = [*_plugins, *os.environ.get(PLUGINS, "").split(",")]
    return sorted({name.strip() for name in listed if name.strip()})


def is_within(module: str, *packages: str) -> bool:
    """Whether a module is one of these packages or lies in one.

    >>> is_within("fca.models.own", "fca.models"), is_within("fcax.models", "fca")
    (True, False)
    """
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def class_of(what: str, target: object, room: str = "fca") -> type:
    """The component class of this name, `module.Class`: a dataclass that `room` (a package of ours) or a plugin has.

    Nothing else is imported. Raises FcaError, calling the name `what`, for all other names.
    """
    name, ours = str(target), f"a component of {room}, or a dataclass in a module that you list under plugins"
    module, _, kind = name.rpartition(".")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", name) or not is_within(module, room, *plugins()):
        step = f"if you trust its code, type plugins=[{module}] (in Python: {PLUGINS} in the environment)"
        raise FcaError(what, name, ours, step if module else "correct it")
    try:
        found = getattr(import_module(module), kind, None)
    except Exception as error:  # whatever a user's module does when it is imported
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise FcaError(what, name, f"a class in a module that imports ({reason})", "correct the module") from error
    if not (isinstance(found, type) and is_dataclass(found)):
        raise FcaError(what, name, ours, f"{module} has no dataclass {kind}: correct the name")
    return found


@dataclass(frozen=True)
class Allowed:
    """What a key may be, declared where its dataclass has it: `epochs: Annotated[int, Allowed(1)]`.

    least, most: ends of a range that belong to it.    above, below: ends that do not.    choices: of a text.
    filled: whether a list needs a value. Of a list or a mapping, every value is meant.

    >>> str(Allowed(1)), str(Allowed(above=0, below=1)), str(Allowed(choices=("cpu", "gpu")))
    ('at least 1', 'above 0, below 1', 'cpu, gpu')
    """

    least: int | float | None = None
    most: int | float | None = None
    above: int | float | None = None
    below: int | float | None = None
    choices: tuple[str, ...] = ()
    filled: bool = False

    def __str__(self) -> str:
        ends = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return ", ".join(self.choices or [f"{end} {value:,}" for end, value in ends.items() if value is not None])

    def holds(self, value: object) -> bool:
        """Whether a text is a choice, or not empty; whether a number is finite and in the range."""
        if isinstance(value, str):
            return value in (self.choices or {value} - {""})
        if isinstance(value, bool) or not isinstance(value, int | float):
            return True
        low = self.above is None or value > self.above, self.least is None or value >= self.least
        high = self.below is None or value < self.below, self.most is None or value <= self.most
        return all((*low, *high)) and (isinstance(value, int) or math.isfinite(value))


Seed = Annotated[int, Allowed(0, 2**32 - 1)]  # what all generators of random numbers take
KINDS = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text, not empty"}
KINDS |= {list: "a list: [A, B]", dict: "keys with values: {A: B}"}


@cache
def declared(kind: Any) -> dict[str, tuple[Any, Allowed]]:
    """The fields of a dataclass: name -> its type, and what of it is allowed."""
    plain, marked = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    marks = {
        name: [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Allowed)]
        for name, hint in marked.items()
    }
    return {known.name: (plain[known.name], *(marks[known.name] or [Allowed()])) for known in fields(kind)}


def allowed_of(kind: Any, name: str) -> str:
    """What a field of a dataclass may be, in words.

    >>> allowed_of(Allowed, "least"), allowed_of(Allowed, "filled")
    ('a finite number, or null', 'true or false')
    """
    hint, rule = declared(kind)[name]
    options = list(get_args(hint)) if isinstance(hint, UnionType) else [hint]
    origins = [get_origin(option) or option for option in options if option is not NoneType]
    first = KINDS.get(origins[-1], "")
    each = "each " if origins[-1] in (list, dict) and str(rule) else ""
    words = [each + str(rule)] if rule.choices and not each else [first, each + str(rule)]
    return ", ".join(filter(None, words)) + (", or null" if NoneType in options else "")


def check_values(kind: type, values: Mapping[str, Any], name: str = "") -> None:
    """Raise FcaError for the first value that its field of a dataclass does not allow, naming the key as it is typed.

    Types are not looked at. Numbers must be finite, and texts not empty, in all fields.    name: of the group.
    """
    for key, (hint, rule) in declared(kind).items():
        value, typed = values.get(key), f"{name}.{key}".removeprefix(".")
        if isinstance(hint, type) and is_dataclass(hint) and isinstance(value, Mapping):
            check_values(hint, value, typed)
        elif is_dataclass(value):
            check_values(type(value), vars(value), typed)
        elif wrong := [single for single in _singles(value) if not rule.holds(single)]:
            raise FcaError(typed, wrong[0], allowed_of(kind, key), f"correct {typed}")
        elif rule.filled and value is not None and not value:
            raise FcaError(typed, value, "one value or more", f"correct {typed}")


def _singles(value: object) -> Iterator[object]:
    """The values in lists and mappings, or the value itself."""
    inner = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        for part in inner:
            yield from _singles(part)
    else:
        yield inner


def generator(*key: object) -> np.random.Generator:
    """Random numbers that depend on this key alone: a counter (Philox), keyed by the first 128 bits of its sha256.

    >>> round(generator(0, "test/00017", "corruption/fog/1").random(), 3)
    0.743
    """
    digest = hashlib.sha256("\x1f".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


class UnreadableImage(Exception):
    """An image file that cannot be decoded; the message names its path. It fails its run, not its sweep."""


def no_mask(_: int) -> None:
    """The mask of a data set that has none."""


@dataclass(frozen=True)
class ImageData:
    """A set of labelled images, listed but not read.

    items:   one line an image: `image_id`, `label` (a class KEY), `split` (train, val or test) and annotation columns.
    classes: class keys in label order.
    read, mask: position in items -> upright RGB pixels; object mask of the same height and width, or None.
    mirror:  whether a mirrored image still shows its class.
    fingerprint_kind: what it is of: the `content` of every file, or names and a declared `version`.
    group:   the annotation column whose values no split that we draw cuts apart, e.g. patient; None: there is none.
    limit:   the first images of every class and split are all that there are; None: the whole set.
    """

    name: str
    items: pd.DataFrame
    classes: tuple[str, ...]
    fingerprint: str
    read: Callable[[int], UInt8[np.ndarray, "height width 3"]]
    mask: Callable[[int], Bool[np.ndarray, "height width"] | None] = no_mask
    mirror: bool = True
    fingerprint_kind: str = "version"
    group: str | None = None
    limit: int | None = None

    @cached_property
    def labels(self) -> Int[np.ndarray, " images"]:
        """Label index (position in `classes`) of every image."""
        return pd.Categorical(self.items["label"], categories=list(self.classes)).codes.astype(np.int64)

    def rows(self, split: str, classes: Sequence[int] | None = None) -> Int[np.ndarray, " rows"]:
        """Positions in `items` of a split's images, optionally only those of some label indices."""
        chosen = (self.items["split"] == split).to_numpy()
        if classes is not None:
            chosen = chosen & np.isin(self.labels, np.asarray(classes))
        return np.flatnonzero(chosen)


@dataclass(frozen=True)
class ClassSubset:
    """Which classes a job has. `ncl`, `seed` and `sampler` only record how it was drawn; `classes` is what it is."""

    classes: tuple[int, ...]
    seed: int | None = None
    sampler: str | None = None

    @property
    def ncl(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def new_labels(self, labels: Int[np.ndarray, " images"]) -> Int[np.ndarray, " images"]:
        """Original label indices -> 0..ncl-1; every label must be one of the subset's.

        >>> ClassSubset((2, 7)).new_labels(np.array([7, 2, 7]))
        array([1, 0, 1])
        """
        return np.searchsorted(np.asarray(self.classes), labels)


@runtime_checkable
class Geometry(Protocol):
    """Resize and crop of an image and its mask to the model's input size."""

    @property
    def key(self) -> str:
        """Names this geometry among cached pixels."""

    @property
    def size(self) -> int:
        """Side of the square that comes out, in pixels."""

    def __call__(
        self, image: UInt8[np.ndarray, "height width 3"], mask: Bool[np.ndarray, "height width"] | None = None
    ) -> tuple[UInt8[np.ndarray, "size size 3"], Bool[np.ndarray, "size size"] | None]: ...


@runtime_checkable
class Pixels(Protocol):
    """Images at input size: an array of row numbers gives uint8 pixels of shape (rows, size, size, 3).

    Raises UnreadableImage, naming its path, if one of them cannot be read.
    """

    def __getitem__(self, rows: Any, /) -> UInt8[np.ndarray, "rows size size 3"]: ...


@dataclass(frozen=True)
class Classifier:
    """A built network and all that an image needs on its way in. logits = head(embed(normalise(pixels / 255))).

    classes:   class keys in logit order; empty for an encoder, whose `head` is None.
    geometry:  image, mask -> both at input size.
    normalise: float images in [0, 1], shape (batch, 3, size, size) -> what the network expects.
    """

    module: torch.nn.Module
    classes: tuple[str, ...]
    geometry: Geometry
    normalise: Callable[[torch.Tensor], torch.Tensor]
    embed: Callable[[torch.Tensor], torch.Tensor]
    head: Callable[[torch.Tensor], torch.Tensor] | None

    @property
    def input_size(self) -> int:
        """Side of the square input in pixels."""
        return self.geometry.size


@runtime_checkable
class Model(Protocol):
    """A configured network, not yet built: cheap to make and to plan with, no torch until `build`."""

    def label(self) -> str: ...  # its name in tables and figures

    def weights_label(self) -> str | None:
        """Which weights, for tables: a tag, a file name, a run; None from scratch."""

    def identity(self) -> dict[str, Any]:
        """JSON of all that decides its outputs: architecture, keywords, input, which weights (sha256, tag or run)."""

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """With `classes`: a fresh head for them (to train). Without: the weights' own classes (to predict or embed)."""


@runtime_checkable
class Shift(Protocol):
    """A named, seeded change of images: the same pixels for the same image, in any order, worker or batch."""

    def label(self) -> str: ...  # its name in tables: clean, corruption/defocus_blur/3

    def identity(self) -> Any:
        """JSON of all that decides its pixels: kind, severity, seed, version or file content."""

    def reader(self, data: ImageData) -> Callable[[int], UInt8[np.ndarray, "height width 3"]]:
        """Position in `data.items` -> the changed pixels, before geometry. Raises FcaError if it has no such images."""


@dataclass(frozen=True)
class Run:
    """One unit of work. `identity` is what it means (and all that `run_id` hashes); `about` fills its Row's columns.

    work: what the task that planned the run needs to do it, such as the data and the model: small, by reference. It is
    no part of the run's identity and is never pickled: a job in another process plans anew from its configuration.
    """

    task: str
    identity: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None  # the run whose weights or arrays this one reads; it is finished first
    light: bool = False  # a score from stored arrays: milliseconds, needs no launcher
    work: Any = field(default=None, compare=False, repr=False)

    @cached_property
    def run_id(self) -> str:
        """12 hex digits of sha256 over the task and its identity, as sorted JSON."""
        text = json.dumps({"task": self.task, **self.identity}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(eq=False, repr=False)
class Column(str):
    """A column, declared once, beside the table or task that has it; as a string it is the column's name.

    kind:    type of its values: str, int, float, bool or tuple.
    number_format: in d3's notation (".2f", ".1%"); a percentage is stored as a fraction.
    meaning: what a reader of a table heading or tooltip wants to know, with the unit.
    choices: the values that it may have -> how they are shown, in display order; empty: any.
    filters: whether the page offers its values as a filter.

    Frames, `groupby` and figures take it where they take a name, so that a misspelt column fails when it is imported.

    >>> TOP1 = Column("top1", float, ".1%", "accuracy")
    >>> TOP1, TOP1.low, TOP1.high.number_format
    ('top1', 'top1_low', '.1%')
    """

    name: InitVar[str]
    kind: type = str
    number_format: str = ""
    meaning: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    filters: bool = False

    def __new__(cls, name: str, *_: Any, **__: Any) -> Column:
        return super().__new__(cls, name)

    @property
    def low(self) -> Column:
        """Lower end of its 95 % interval."""
        return Column(f"{self}_low", self.kind, self.number_format, f"{self.meaning}, lower end of the 95 % interval")

    @property
    def high(self) -> Column:
        """Upper end of its 95 % interval."""
        return Column(f"{self}_high", self.kind, self.number_format, f"{self.meaning}, upper end of the 95 % interval")


def with_interval(column: Column) -> tuple[Column, Column, Column]:
    """A column and both ends of its interval, as a table lists them."""
    return column, column.low, column.high


@dataclass(frozen=True)
class Table:
    """The result of an analysis: a frame, its question and source (paper and equation), parameters and the runs used.

    columns: the declarations of the frame's columns; what is drawn, exported or shown is formatted by them.
    """

    name: str
    question: str
    source: str
    frame: pd.DataFrame
    parameters: Mapping[str, Any]
    runs: tuple[str, ...]
    columns: tuple[Column, ...] = ()


class Finished(NamedTuple):
    """What a task yields: a run, the columns it measured, and its arrays by name."""

    run: Run
    columns: Mapping[str, Any]
    arrays: Arrays
