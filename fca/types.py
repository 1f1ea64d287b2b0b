"""What every part of fca shares: types, a check, random numbers. It imports no part, and no torch."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    runtime_checkable,
)

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, UInt8
from typing_extensions import TypeVar

if TYPE_CHECKING:
    import torch

Arrays = dict[str, np.ndarray]
SPLITS = ("train", "val", "test")
LISTED = 10  # choices that a message lists
ALIKE = 0.7  # difflib's ratio from which on two names look alike
ALIKE_BEHIND_ANOTHER_LETTER = 0.85  # where the first letters differ: mouse is no house
ALIKE_IF_SHARED = 0.5  # where one name begins the other, or has its letters in another order
_USER_OF_URL = re.compile(r"(?<=://)[^\s/?#]*@")
BEST = "best"  # the snapshot of a training with the highest accuracy on val


class FcaError(Exception):
    """An error that a user can cause and mend: what was wrong, its value, what is allowed, the next step.

    >>> print(FcaError("subset.ncl", 11, "2 to 10, the classes of digits", "lower it or take a larger dataset"))
    subset.ncl = 11; allowed: 2 to 10, the classes of digits; next: lower it or take a larger dataset
    """

    def __init__(self, what: str, value: object, allowed: str, step: str) -> None:
        super().__init__(what, str(value), allowed, step)  # four texts: so it can be sent between processes

    def __str__(self) -> str:
        return without_password("{} = {}; allowed: {}; next: {}".format(*self.args))


def without_password(text: str) -> str:
    """A text as it may be printed and logged: *** in the place of a user name and password in a URL.

    >>> without_password("https://me:secret@example.org/api does not answer")
    'https://***@example.org/api does not answer'
    """
    return _USER_OF_URL.sub("***@", text)


def check_choice(what: str, value: object, choices: Iterable[object], step: str = "take one of these") -> None:
    """Raises FcaError for a value that is not among the choices, listing them."""
    if value not in (allowed := list(choices)):
        near = similar(map(str, allowed), str(value))[:1] if isinstance(value, str) else []
        meant = f"did you mean {near[0]}? " if near else ""
        raise FcaError(what, value, listed(allowed, str(value)), f"{meant}{step}")


def listed(choices: Iterable[object], typed: str = "") -> str:
    """Choices in a message: of more than LISTED those that look most like what was typed, then the first of the rest.

    >>> listed(["cat", "dog"]), listed(range(100, 200), "1999")
    ('cat, dog', '199, 100, 101, 102, 103, 104, 105, 106, 107, 108 and 90 more')
    """
    names = [str(choice) for choice in choices]
    if len(names) <= LISTED:
        return ", ".join(names)
    first = list(dict.fromkeys([*similar(names, typed), *names]))[:LISTED]
    return f"{', '.join(first)} and {len(names) - LISTED} more"


def similar(choices: Iterable[str], typed: str) -> list[str]:
    """Those of the choices that look like what was typed, the most alike first; of a/b, a, b or both may be alike.

    >>> similar(["resnet50", "resnet18", "vit_b16"], "ResNet-18"), similar(["corruption/fog", "clean"], "fog")
    (['resnet18', 'resnet50'], ['corruption/fog'])
    >>> similar(["house"], "mouse"), similar(["seed"], "serve"), similar(["vit_b16"], "vit")
    ([], [], ['vit_b16'])
    """
    wanted = _letters(typed)
    alike: dict[str, float] = {}
    for choice in choices:
        names = {_letters(choice), *map(_letters, choice.split("/"))}
        ratios = {name: difflib.SequenceMatcher(None, name, wanted).ratio() for name in names}
        enough = [ratio for name, ratio in ratios.items() if ratio >= _least_ratio(name, wanted)]
        if enough:
            alike[choice] = max(enough)
    return sorted(alike, key=lambda choice: -alike[choice])


def _least_ratio(name: str, wanted: str) -> float:
    """The ratio from which on these two look alike."""
    if name.startswith(wanted) or wanted.startswith(name) or sorted(name) == sorted(wanted):
        return ALIKE_IF_SHARED
    return ALIKE if name[:1] == wanted[:1] else ALIKE_BEHIND_ANOTHER_LETTER


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def keyed_rng(*key: object) -> np.random.Generator:
    """Random numbers that depend on this key alone: a counter (Philox), keyed by the first 128 bits of its sha256.

    >>> round(keyed_rng(0, "test/00017", "corruption/fog/1").random(), 3)
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
    side:    shorter side in pixels, where all images have the same and it is known without reading them.
    unused:  images that are left out of the set: outside of class folders, or of a class that train or test lacks.
    background: image id -> the image without its object, where it is known: object pixels (`mask`) of one image over
             the background of another are an image of the second scene with the first one's object; None elsewhere.
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
    side: int | None = None
    unused: int = 0
    background: Callable[[str], UInt8[np.ndarray, "height width 3"]] | None = None

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

    def number(self, split: str, classes: Sequence[int]) -> int:
        """How many rows there are; planning thousands of runs on a million images looks at them once."""
        if split not in self._numbers:
            every = range(len(self.classes))
            self._numbers[split] = np.bincount(self.labels[self.rows(split, every)], minlength=len(every))
        return int(self._numbers[split][list(set(classes))].sum())

    @cached_property
    def _numbers(self) -> dict[str, Int[np.ndarray, " classes"]]:
        return {}


@runtime_checkable
class Dataset(Protocol):
    """A configured data set: `dataset=...`."""

    def load(self) -> ImageData:
        """Its images, listed. Raises FcaError for data that are not there or not as configured."""


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


class Packed(NamedTuple):
    """Images of any shape, one after another: image i is `pixels[start:][: height[i] * width[i]]`, row by row."""

    pixels: UInt8[np.ndarray, "pixels 3"]
    height: Int[np.ndarray, " rows"]
    width: Int[np.ndarray, " rows"]


@runtime_checkable
class Originals(Protocol):
    """Images with their margins, to be cropped at random: resized as for a test, but not cropped.

    An array of row numbers gives them packed. Raises UnreadableImage, naming its path, if one of them cannot be read.
    """

    def __getitem__(self, rows: Any, /) -> Packed: ...


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
    """A configured network, not yet built: cheap to make and to plan with, no torch until `build`.

    A model of one's own may inherit from it, which gives it the two members below that have a body.
    learns: whether it has weights that a training finds; HOG and functions of one's own have none.
    """

    learns: ClassVar[bool] = True

    def label(self) -> str: ...  # its name in tables and figures

    def weights_label(self) -> str | None:
        """Which weights, for tables: a tag, a file name, a run; None from scratch."""

    def identity(self) -> dict[str, Any]:
        """JSON of all that decides its outputs: architecture, keywords, input, which weights (sha256, tag or run)."""

    def from_scratch(self) -> Model | None:
        """This network with random weights; None where it cannot be had without what it has learnt."""
        return self if self.learns and self.weights_label() is None else None

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """With `classes`: a fresh head for them (to train). Without: the weights' own classes (to predict or embed).

        Loads its own weights, but for those that fca stored: these are put into what this returns, tensor by tensor.
        """


@runtime_checkable
class OfSeveralDepths(Model, Protocol):
    """A network that can be cut before its last stage (see `fca.models.depths`)."""

    depth: str

    def depths(self) -> tuple[str, ...]:
        """The depths that this network has."""

    def at_depth(self, depth: str) -> Model: ...


@runtime_checkable
class OfAnySize(Model, Protocol):
    """A network whose input may have another size than usual."""

    input_size: int | None  # side in pixels; None: that of its record


@runtime_checkable
class Shift(Protocol):
    """A named, seeded change of images: the same pixels for the same image, in any order, worker or batch."""

    def label(self) -> str: ...  # its name in tables: clean, corruption/defocus_blur/3

    def identity(self) -> Any:
        """JSON of all that decides its pixels: kind, severity, seed, version or file content."""

    def reader(self, data: ImageData) -> Callable[[int], UInt8[np.ndarray, "height width 3"]]:
        """Position in `data.items` -> the changed pixels, before geometry. Raises FcaError if it has no such images."""


@runtime_checkable
class AtReference(Shift, Protocol):
    """A shift that may show images at ImageNet-C's reference size, Resize 256 and CenterCrop 224.

    corrupted_at: reference, where it does so for images above 96 pixels; stored, where all are as they are stored; None
    where no image is above.
    """

    @property
    def corrupted_at(self) -> str | None: ...

    def geometry(self, usual: Geometry) -> Geometry:
        """A network's geometry for these images: a margin that the reference has cut is not cut again."""


@runtime_checkable
class DependsOnSize(Shift, Protocol):
    """A shift whose identity depends on whether any of the images is above 96 pixels."""

    def for_images(self, any_above: bool) -> Shift: ...

    def masks(self, data: ImageData) -> Callable[[int], Bool[np.ndarray, "height width"] | None]:
        """Position in `data.items` -> the object mask of the changed image."""


Work = TypeVar("Work", covariant=True, default=Any)


@dataclass(frozen=True)
class Run(Generic[Work]):
    """One unit of work. `identity` is what it means (and all that `run_id` hashes); `metadata` fills its Row's columns.

    work: what the task that planned the run needs to do it, such as the data and the model: small, by reference. It is
    no part of the run's identity and is never pickled: a job in another process plans anew from its configuration.
    """

    task: str
    identity: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None  # the run whose weights or arrays this one reads; it is finished first
    light: bool = False  # a score from stored arrays: milliseconds, needs no launcher
    work: Work = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # of a task without any

    @cached_property
    def run_id(self) -> str:
        """12 hex digits of sha256 over the task and its identity, as sorted JSON."""
        text = json.dumps({"task": self.task, **self.identity}, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(eq=False, repr=False)
class Column(str):
    """A column, declared once, beside the table or task that has it; as a string it is the column's name.

    value_type: of its values: str, int, float, bool or tuple.
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
    value_type: type = str
    number_format: str = ""
    meaning: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)
    filters: bool = False

    def __new__(cls, name: str, *_: Any, **__: Any) -> Column:
        return super().__new__(cls, name)

    @property
    def low(self) -> Column:
        """Lower end of its 95 % interval."""
        return Column(
            f"{self}_low", self.value_type, self.number_format, f"{self.meaning}, lower end of the 95 % interval"
        )

    @property
    def high(self) -> Column:
        """Upper end of its 95 % interval."""
        return Column(
            f"{self}_high", self.value_type, self.number_format, f"{self.meaning}, upper end of the 95 % interval"
        )

    def with_format(self, number_format: str, label: str = "") -> Column:
        """The same column as one sentence or small figure shows it: in another format, with a shorter label.

        >>> column = Column("top1", float, ".2%", "top-1 accuracy").with_format(".0%", "accuracy")
        >>> column, column.number_format, column.meaning
        ('top1', '.0%', 'accuracy')
        """
        return Column(str(self), self.value_type, number_format, label or self.meaning, self.choices, self.filters)

    def with_choices(self, choices: Mapping[str, str], filters: bool = False) -> Column:
        """The same column in a table or figure that has these values of it, in words of its own.

        >>> Column("verdict", str, "", "verdict").with_choices({"yes": "rises", "no": "does not rise"}).choices["yes"]
        'rises'
        """
        return Column(str(self), self.value_type, self.number_format, self.meaning, choices, filters)


def interval_columns(column: Column) -> tuple[Column, Column, Column]:
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


@runtime_checkable
class Analysis(Protocol):
    """A configured analysis: a store -> its tables. Its findings stand beside it (`fca.report.finding`)."""

    tables: ClassVar[tuple[Any, ...]]
    """The declarations of its tables (`fca.tables.table.TableSpec`)."""

    def __call__(self, store: Any) -> Iterable[Table]:
        """The tables. Raises FcaError where the store has no rows for them."""


class Finished(NamedTuple):
    """What a task yields: a run, the columns it measured, and its arrays by name."""

    run: Run
    columns: Mapping[str, Any]
    arrays: Arrays
