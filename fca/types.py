"""Types that all parts of fca share, checks of choices, and random numbers. It imports no other part, and no torch."""

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
BEST = "best"  # the snapshot of a training with the highest validation accuracy

# difflib's ratio from which two names are similar
SIMILAR = 0.7
SIMILAR_IF_FIRST_LETTER_DIFFERS = 0.85  # mouse is no house
SIMILAR_IF_SAME_LETTERS = 0.5  # one name begins the other, or has its letters in another order

_USER_OF_URL = re.compile(r"(?<=://)[^\s/?#]*@")


class FcaError(Exception):
    """An error that a user can cause and correct: what was wrong, its value, what is allowed, the next step.

    >>> print(FcaError("subset.ncl", 11, "2 to 10, the classes of digits", "lower it or take a larger dataset"))
    subset.ncl = 11; allowed: 2 to 10, the classes of digits; next: lower it or take a larger dataset
    """

    def __init__(self, what: str, value: object, allowed: str, step: str) -> None:
        super().__init__(what, str(value), allowed, step)  # four texts, so that it can be sent between processes

    def __str__(self) -> str:
        return without_password("{} = {}; allowed: {}; next: {}".format(*self.args))


def without_password(text: str) -> str:
    """A text that is safe to print and log: *** in place of the user name and password of a URL.

    >>> without_password("https://me:secret@example.org/api does not answer")
    'https://***@example.org/api does not answer'
    """
    return _USER_OF_URL.sub("***@", text)


def check_choice(what: str, value: object, choices: Iterable[object], step: str = "take one of these") -> None:
    """Raise FcaError if a value is not among the choices; the message lists them, and proposes a similar one.

    what: what the value is, for the message.
    step: the advice in it.
    """
    allowed = list(choices)
    if value in allowed:
        return

    if isinstance(value, str):
        near = similar_choices(map(str, allowed), value)
        if near:
            step = f"did you mean {near[0]}? {step}"
    raise FcaError(what, value, choices_in_words(allowed, str(value)), step)


def choices_in_words(choices: Iterable[object], typed: str = "") -> str:
    """Choices for a message, separated by commas.

    If there are more than LISTED, only that many are listed and the others counted. The choices that are similar to
    `typed`, the text that the user typed, then come first.

    >>> choices_in_words(["cat", "dog"]), choices_in_words(range(100, 200), "1999")
    ('cat, dog', '199, 100, 101, 102, 103, 104, 105, 106, 107, 108 and 90 more')
    """
    names = [str(choice) for choice in choices]
    if len(names) <= LISTED:
        return ", ".join(names)

    similar_first = list(dict.fromkeys([*similar_choices(names, typed), *names]))
    return f"{', '.join(similar_first[:LISTED])} and {len(names) - LISTED} more"


def similar_choices(choices: Iterable[str], typed: str) -> list[str]:
    """The choices that are similar to the text that the user typed, the most similar first.

    Case and punctuation do not count. A choice with slashes, like corruption/fog, is similar if the whole choice or one
    of its parts is.

    >>> similar_choices(["resnet50", "resnet18", "vit_b16"], "ResNet-18")
    ['resnet18', 'resnet50']
    >>> similar_choices(["corruption/fog", "clean"], "fog")
    ['corruption/fog']
    >>> similar_choices(["house"], "mouse"), similar_choices(["seed"], "serve"), similar_choices(["vit_b16"], "vit")
    ([], [], ['vit_b16'])
    """
    typed_letters = _only_letters(typed)
    ratio_by_choice: dict[str, float] = {}
    for choice in choices:
        names = {_only_letters(choice), *map(_only_letters, choice.split("/"))}  # the whole, and its parts
        similar_ratios = []
        for name in names:
            ratio = difflib.SequenceMatcher(None, name, typed_letters).ratio()
            if ratio >= _least_similar_ratio(name, typed_letters):
                similar_ratios.append(ratio)
        if similar_ratios:
            ratio_by_choice[choice] = max(similar_ratios)
    return sorted(ratio_by_choice, key=lambda choice: -ratio_by_choice[choice])


def _least_similar_ratio(name: str, typed: str) -> float:
    """The lowest difflib ratio at which a choice and the typed text count as similar; both without punctuation.

    It is lower if one text begins with the other or both have the same letters, and higher if they begin with different
    letters, because mouse is not a misspelt house.
    """
    one_begins_the_other = name.startswith(typed) or typed.startswith(name)
    if one_begins_the_other or sorted(name) == sorted(typed):
        return SIMILAR_IF_SAME_LETTERS
    return SIMILAR if name[:1] == typed[:1] else SIMILAR_IF_FIRST_LETTER_DIFFERS


def _only_letters(name: str) -> str:
    """The letters and digits of a name, in lower case."""
    return re.sub(r"[\W_]", "", name).casefold()


def keyed_rng(*key: object) -> np.random.Generator:
    """A generator of random numbers that depend only on this key, the same on every machine.

    It is the counter-based Philox generator, keyed by the first 128 bits of the sha256 of the key's text.

    >>> round(keyed_rng(0, "test/00017", "corruption/fog/1").random(), 3)
    0.743
    """
    text = "\x1f".join(map(str, key))
    digest = hashlib.sha256(text.encode()).digest()
    philox_key = int.from_bytes(digest[:16], "little")
    return np.random.Generator(np.random.Philox(key=philox_key))


class UnreadableImage(Exception):
    """An image file that cannot be decoded; the message names its path. Its run fails, but not its sweep."""


def no_mask(_: int) -> None:
    """The mask of a data set that has none."""


@dataclass(frozen=True)
class ImageData:
    """A set of labelled images, listed but not read.

    items:   one line per image: `image_id`, `label` (a class KEY), `split` (train, val or test) and annotation columns.
    classes: class keys in label order.
    read, mask: position in items -> upright RGB pixels; object mask of the same height and width, or None.
    mirror:  whether a mirrored image still shows its class.
    fingerprint_kind: the source of the fingerprint: the `content` of every file, or names and a declared `version`.
    group:   the annotation column whose values no random split separates, e.g. patient; None: there is none.
    limit:   the set has only this many first images of every class and split; None: all images.
    side:    shorter side in pixels, if all images have the same and it is known without reading them.
    unused:  number of images left out of the set: outside class folders, or of a class that train or test lacks.
    background: image id -> the image without its object; None for sets in which it is unknown. The object pixels
             (`mask`) of one image can then be put over the background of another image.
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
        labels = pd.Categorical(self.items["label"], categories=list(self.classes))
        return labels.codes.astype(np.int64)

    def rows(self, split: str, classes: Sequence[int] | None = None) -> Int[np.ndarray, " rows"]:
        """Positions in `items` of a split's images, optionally only those of some label indices."""
        is_chosen = (self.items["split"] == split).to_numpy()
        if classes is not None:
            is_chosen = is_chosen & np.isin(self.labels, np.asarray(classes))
        return np.flatnonzero(is_chosen)

    def n_images(self, split: str, classes: Sequence[int]) -> int:
        """Number of a split's images of these label indices: the length of `rows`, but fast.

        The images of each class are counted once, because planning asks for thousands of subsets.
        """
        if split not in self._images_by_class:
            all_classes = range(len(self.classes))
            labels = self.labels[self.rows(split, all_classes)]
            self._images_by_class[split] = np.bincount(labels, minlength=len(all_classes))
        images_by_class = self._images_by_class[split]
        return int(images_by_class[list(set(classes))].sum())

    @cached_property
    def _images_by_class(self) -> dict[str, Int[np.ndarray, " classes"]]:
        """Split -> the number of images of each class; `n_images` fills it."""
        return {}


@runtime_checkable
class Dataset(Protocol):
    """A configured data set: `dataset=...`."""

    def load(self) -> ImageData:
        """List the images. Raises FcaError for data that are missing or not as configured."""


@dataclass(frozen=True)
class ClassSubset:
    """The classes of a job. `classes` defines the subset; `seed` and `sampler` only record how it was drawn."""

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
        """Name of this geometry in the pixel cache."""

    @property
    def size(self) -> int:
        """Side of the square result, in pixels."""

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
    """Images with their margins, for random crops: resized as in the evaluation, but not cropped.

    An array of row numbers gives packed images. Raises UnreadableImage, naming its path, if one cannot be read.
    """

    def __getitem__(self, rows: Any, /) -> Packed: ...


@dataclass(frozen=True)
class Classifier:
    """A built network and the preprocessing of its images. logits = head(embed(normalise(pixels / 255))).

    classes:   class keys in logit order; empty for an encoder, whose `head` is None.
    geometry:  image, mask -> image and mask at input size.
    normalise: float images in [0, 1], shape (batch, 3, size, size) -> the input of the network.
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

    A user's model may inherit from it, and then has the two members below that have a body.
    learns: whether training changes its weights; HOG and functions of the user have none.
    """

    learns: ClassVar[bool] = True

    def label(self) -> str: ...  # its name in tables and figures

    def weights_label(self) -> str | None:
        """Which weights, for tables: a tag, a file name, a run; None from scratch."""

    def identity(self) -> dict[str, Any]:
        """JSON of everything that decides its outputs: architecture, keywords, input, weights (sha256, tag or run)."""

    def from_scratch(self) -> Model | None:
        """This network with random weights; None if it cannot be built without its trained weights."""
        return self if self.learns and self.weights_label() is None else None

    def build(self, classes: Sequence[str] | None = None) -> Classifier:
        """With `classes`: a new head for them (to train). Without: the classes of the weights (to predict or embed).

        Loads its weights, except those that fca stored: these are copied into the result later, tensor by tensor.
        """


@runtime_checkable
class OfSeveralDepths(Model, Protocol):
    """A network that can be truncated before its last stage (see `fca.models.depths`)."""

    depth: str

    def depths(self) -> tuple[str, ...]:
        """The depths of this network."""

    def at_depth(self, depth: str) -> Model: ...


@runtime_checkable
class OfAnySize(Model, Protocol):
    """A network whose input may have any size."""

    input_size: int | None  # side in pixels; None: that of its record


@runtime_checkable
class Shift(Protocol):
    """A named, seeded change of images: the same pixels for the same image, in any order, worker or batch."""

    def label(self) -> str: ...  # its name in tables: clean, corruption/defocus_blur/3

    def identity(self) -> Any:
        """JSON of everything that decides its pixels: kind, severity, seed, version or file content."""

    def reader(self, data: ImageData) -> Callable[[int], UInt8[np.ndarray, "height width 3"]]:
        """Position in `data.items` -> the changed pixels, before geometry. Raises FcaError if it has no such images."""


@runtime_checkable
class AtReference(Shift, Protocol):
    """A shift that may change images at ImageNet-C's reference size, Resize 256 and CenterCrop 224.

    corrupted_at: reference, if it does so for images above 96 pixels; stored, if all images are changed at their stored
    size; None if no image is above 96 pixels.
    """

    @property
    def corrupted_at(self) -> str | None: ...

    def geometry(self, usual: Geometry) -> Geometry:
        """A network's geometry for these images: a margin that the reference has cropped is not cropped again."""


@runtime_checkable
class DependsOnSize(Shift, Protocol):
    """A shift whose identity depends on whether any of the images is above 96 pixels."""

    def for_images(self, any_above: bool) -> Shift: ...

    def masks(self, data: ImageData) -> Callable[[int], Bool[np.ndarray, "height width"] | None]:
        """Position in `data.items` -> the object mask of the changed image."""


Work = TypeVar("Work", covariant=True, default=Any)


@dataclass(frozen=True)
class Run(Generic[Work]):
    """One unit of work of a task, such as one training or one prediction.

    identity: all that decides its result; `run_id` is a hash of it.
    metadata: further columns of the run's row, its stored record.
    work: the objects that the task needs to do the run, such as the data and the model. It is not part of the run's
    identity and is never pickled: a job in another process plans again from its configuration.
    """

    task: str
    identity: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None  # the run whose weights or arrays this one reads; it is finished first
    light: bool = False  # a score from stored arrays: milliseconds, needs no launcher
    work: Work = field(default=None, compare=False, repr=False)  # type: ignore[assignment]  # None: a task without work

    @cached_property
    def run_id(self) -> str:
        """12 hex digits of sha256 over the task and its identity, as sorted JSON."""
        content = {"task": self.task, **self.identity}
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(eq=False, repr=False)
class Column(str):
    """A column of a table, declared once, beside the table or task that has it; as a string it is the column's name.

    value_type: the type of its values: str, int, float, bool or tuple.
    number_format: in d3's notation (".2f", ".1%"); a percentage is stored as a fraction.
    meaning: its description for table headings and tooltips, with the unit.
    choices: its possible values -> their labels, in display order; empty: any value.
    filters: whether the page offers its values as a filter.

    Because it is a string, frames, `groupby` and figures accept it as a name. Because it is a variable in Python, a
    misspelt column is an error at import.

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
        """The column with the lower end of its 95 % interval."""
        return Column(
            f"{self}_low", self.value_type, self.number_format, f"{self.meaning}, lower end of the 95 % interval"
        )

    @property
    def high(self) -> Column:
        """The column with the upper end of its 95 % interval."""
        return Column(
            f"{self}_high", self.value_type, self.number_format, f"{self.meaning}, upper end of the 95 % interval"
        )

    def with_format(self, number_format: str, label: str = "") -> Column:
        """The same column in another number format and, if `label` is given, with a shorter meaning.

        It is for sentences and small figures.

        >>> column = Column("top1", float, ".2%", "top-1 accuracy").with_format(".0%", "accuracy")
        >>> column, column.number_format, column.meaning
        ('top1', '.0%', 'accuracy')
        """
        return Column(str(self), self.value_type, number_format, label or self.meaning, self.choices, self.filters)

    def with_choices(self, choices: Mapping[str, str], filters: bool = False) -> Column:
        """The same column with other choices: the values that occur in a certain table or figure -> their labels there.

        >>> Column("verdict", str, "", "verdict").with_choices({"yes": "rises", "no": "does not rise"}).choices["yes"]
        'rises'
        """
        return Column(str(self), self.value_type, self.number_format, self.meaning, choices, filters)


def interval_columns(column: Column) -> tuple[Column, Column, Column]:
    """A column, followed by the columns with the lower and upper end of its interval."""
    return column, column.low, column.high


@dataclass(frozen=True)
class Table:
    """The result of an analysis: a frame, its question and source (paper and equation), parameters and the runs used.

    columns: the declarations of the frame's columns, which format it in figures, exports and on the terminal.
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
    """A configured analysis: a store -> its tables. Its module also has its findings (`fca.report.finding`)."""

    tables: ClassVar[tuple[Any, ...]]
    """The declarations of its tables (`fca.tables.table.TableSpec`)."""

    def __call__(self, store: Any) -> Iterable[Table]:
        """The tables. Raises FcaError where the store has no rows for them."""


class Finished(NamedTuple):
    """The result of a run, as a task yields it: the run, its measured columns, and its arrays by name."""

    run: Run
    columns: Mapping[str, Any]
    arrays: Arrays
