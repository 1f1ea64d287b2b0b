"""Networks and encoders: frozen dataclasses, cheap to plan with; `build` imports their library.

Shared here: names, weights, class keys, input and identity of a model that is planned but not built; no torch.
"""

from __future__ import annotations

import difflib
import math
import re
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fca.geometry import INTERPOLATIONS, ResizeCrop
from fca.identity import canonical, file_sha256
from fca.models.package_weights import PACKAGE, no_package
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError, Model
from fca.validation import Allowed

if TYPE_CHECKING:
    from torch import Tensor

PRETRAINED = "pretrained"
"""The value of `weights` for the weights that the family publishes."""

STATE_DICT_FILE = "a file that holds a state dict, as safetensors or torch.save write it"
SAFETENSORS = "safetensors"
TORCH = "torch"
LONGEST_HEADER = 100_000_000  # bytes, by the format's own rule
SNIFFED_BYTES = 512  # a tar archive has its mark at 257
FORMAT_BY_START = (  # formats of files that are saved in place of weights
    (b"<", "an HTML or XML page, such as a login or error page saved in place of the file"),
    (b"version https://git-lfs.github.com/", "a git-lfs pointer: the file itself was not fetched (git lfs pull)"),
    (b"\x89HDF", "an HDF5 file, as Keras writes it"),
    (b"\x1f\x8b", "a gzip archive: unpack it"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"{", "a JSON text"),
)
SCANNED_BYTES = 2**22  # at the beginning of a file of torch's older format, which contain the names of its tensors
AVERAGED = re.compile(r"(?:^|[._])(?:ema|swa|averaged?|averaging|shadow)(?=[._]|$)")
"""In the names under which averaged weights are stored."""
_SHORT_TEXT = re.compile(rb"X(.)\0\0\0", re.DOTALL)  # in a pickle as torch writes it: a length, then a text
Mean = Annotated[list[float] | None, Allowed(0, 1)]  # of RGB in [0, 1]
Std = Annotated[list[float] | None, Allowed(above=0, most=1)]
IMAGENET_MEAN = (0.485, 0.456, 0.406)  # of RGB in [0, 1]
IMAGENET_STD = (0.229, 0.224, 0.225)
IMAGENETS = tuple(f"imagenet-{name}" for name in ("1k", "12k", "21k-goog", "21k-miil", "22k", "22k-ms"))  # in timm


# Networks that a library has names for


@dataclass(frozen=True)
class LibraryModel(Model):
    """A network by its name in a library.

    name:    any name that the library has for a classifier, with or without the tag of its weights.
    weights: null = from scratch; pretrained = the library's, fetched on first use; or the path of a state dict.
    kwargs:  any keyword that the library takes for this network.
    input_size, crop_pct, interpolation: of its images, see fca.geometry.ResizeCrop. Null: as in the library's record of
             the weights.
    classes: class keys of the weights' logits in their order, or the name of an ImageNet (imagenet-1k).
    """

    name: str
    weights: str | None
    kwargs: dict[str, Any]
    input_size: Annotated[int | None, Allowed(1, 8192)]
    crop_pct: Annotated[float | None, Allowed(above=0, most=1)]
    interpolation: Annotated[str | None, Allowed(choices=tuple(INTERPOLATIONS))]
    classes: Any

    family = ""  # in identities and messages

    def label(self) -> str:
        """The model's name in tables: its name without tag, and its keywords, in which lists are joined by hyphens.

        >>> LibraryModel("resnet18.v1", None, {"channels": [16, 32], "drop_rate": 0.1}, None, None, None, None).label()
        'resnet18 channels=16-32 drop_rate=0.1'
        """
        words = [self.architecture]
        for key, value in self.kwargs.items():
            text = "-".join(map(str, value)) if isinstance(value, list) else str(value)
            words.append(f"{key}={text}")
        return " ".join(words)

    def weights_label(self) -> str | None:
        if self.pretrained:
            return self._published().removeprefix(f"{self.architecture}.")
        return file_label(self.weights)

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, with the weights by content or by their published name.

        Raises FcaError for impossible settings. The library is imported only for a tag or for its weights, so that
        planning stays quick.
        """
        self._check()
        if self.pretrained:
            return identity_of(self.family, self, self._published(), name=self.architecture)
        return identity_of(self.family, self)

    def from_scratch(self) -> Model:
        return replace(self, weights=None)

    @property
    def pretrained(self) -> bool:
        """Whether the library publishes its weights."""
        return self.weights == PRETRAINED

    @property
    def architecture(self) -> str:
        return self.name.partition(".")[0]

    def refused(self, error: Exception) -> FcaError:
        """The error for keywords or an input size that the network does not accept."""
        values = {"input_size": self.input_size, **self.kwargs}
        allowed = f"what {self.family}'s {self.name} takes ({one_line(error)})"
        return FcaError("model.kwargs", values, allowed, "correct or remove them, or choose another network")

    def _check(self) -> None:
        """Raise FcaError for an unknown name and for impossible settings."""
        raise NotImplementedError

    def _published(self) -> str:
        """The full name of the library's weights; raises FcaError if it has none."""
        raise NotImplementedError


def package_files(package: str, pattern: str) -> list[Path]:
    """The files of an installed package that match a glob pattern inside it. Raises FcaError if there are none.

    The package is not imported, which can take seconds.
    """
    spec = find_spec(package)  # does not run the package's __init__
    folders = (spec and spec.submodule_search_locations) or []  # none if it is not installed
    files = [file for folder in folders for file in Path(folder).glob(pattern)]
    if not files:
        allowed = f"a family whose package is installed; {package} is not"
        step = f"install it: pip install -c constraints.txt 'fca[{package.replace('_', '-')}]'"
        raise FcaError("model", package, allowed, step)
    return files


@cache
def networks_of(package: str, first_argument: str, files: str = "models/*.py") -> frozenset[str]:
    """The names of a package's networks: its functions with this first argument, found in the text of its files.

    first_argument: a regular expression.
    files:          glob pattern inside the package.

    The package is not imported, since that can take seconds.
    """
    pattern = re.compile(rf"^def (\w+)\(\s*{first_argument}\b", re.M)  # functions at the beginning of a line
    names: set[str] = set()
    for file in package_files(package, files):
        names.update(pattern.findall(file.read_text()))
    return frozenset(names)


def unknown_name(library: str, name: str, all_names: Collection[str], step: str, kind: str = "names") -> FcaError:
    """The error for a name that a library does not know, with the names most like it.

    all_names: what the library knows.
    step:      what to do next.
    kind:      what the message calls the names.
    """
    examples = difflib.get_close_matches(name, all_names) or sorted(all_names)[:3]  # any, if none is like it
    allowed = f"one of {library}'s {len(all_names)} {kind}, such as {', '.join(examples)}"
    return FcaError("model.name", name, allowed, step)


def one_line(error: Exception) -> str:
    """The class of another library's error and the first line of its text, for a message.

    >>> one_line(ValueError("too short\\nsee above")), one_line(EOFError())
    ('ValueError: too short', 'EOFError')
    """
    first_line, _, _ = str(error).strip().partition("\n")
    kind = type(error).__name__
    return f"{kind}: {first_line}" if first_line else kind


# Weights and the classes of their logits


def identity_of(family: str, model: Any, published: str | None = None, **replaced_fields: Any) -> dict[str, Any]:
    """The part of a model that enters the ids of runs: all its fields, with its weights by content, not by path.

    family:          the model's family, such as timm.
    model:           a dataclass with the fields `weights` and `classes`.
    published:       name of published weights, which stands for their content. None = `weights` is a file, which enters
                     by its sha256, or None.
    replaced_fields: values that enter in place of the model's own fields.

    The field `classes` gives the classes of the weights' logits, so it is left out where there are no weights. A file
    in which earlier versions of fca overlooked averaged weights also gets the key `weights_read`.
    Raises FcaError for a file that is missing or holds no weights, and for classes that are not class keys.
    """
    weights = None
    classes = None
    were_averages_overlooked = False
    if model.weights is not None:
        classes = classes_meaning(model.classes)
        if published is not None:
            weights = published  # the name stands for the content, so nothing is downloaded to plan a run
        else:
            file = weights_file(model.weights)
            weights = file_sha256(file)
            were_averages_overlooked = has_newly_read_averages(file)

    values = {**asdict(model), **replaced_fields, "weights": weights, "classes": classes}
    # canonical: fields that were added later and keep the old behaviour are left out, so that ids stay the same
    identity = {"family": family, **canonical("model", values)}
    if were_averages_overlooked:  # earlier versions read other weights from the file: their runs need another id
        identity["weights_read"] = "averaged first"
    return identity


def has_newly_read_averages(file: Path) -> bool:
    """Whether a file may hold averaged weights that earlier versions of fca did not read.

    Those versions read other weights from the same file, so their runs must not have the same id. It concerns averages
    under other names than state_dict_ema, model_ema and ema, and averages that count their updates (n_averaged).
    """
    stat = file.stat()
    return _names_new_averages(file.resolve(), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _names_new_averages(file: Path, _size: int, _mtime_ns: int) -> bool:
    """Whether a file of weights names averaged weights that earlier versions of fca did not read.

    A file of torch.save often holds a dictionary with several state dicts, such as `model` and `ema`. The keys of this
    dictionary are searched for names of averages (AVERAGED, such as swa).

    file: its absolute path.
    _size, _mtime_ns: size and time of change. They are only part of the cache's key, so that a changed file is searched
                      again.
    """
    if file_format(file) == SAFETENSORS:  # such a file holds one state dict, so averages are not stored beside others
        return False

    names = _texts_of_pickle(file)
    # torch's AveragedModel counts its updates under this name. Earlier versions passed over averages with such a count,
    # whatever their key.
    if "n_averaged" in names:
        return True
    keys_read_before = {"state_dict_ema", "model_ema", "ema"}  # earlier versions read averages under these keys
    # Names with a full stop are names of tensors, such as ema.fc.bias, and no keys of a state dict.
    new_keys = [name for name in names - keys_read_before if "." not in name]
    return any(AVERAGED.search(key) for key in new_keys)


def _texts_of_pickle(file: Path) -> set[str]:
    """All texts of less than 256 bytes in a file of torch.save, which is a pickle: keys, names of tensors and others.

    Nothing is unpickled, so no code of the file runs. Of a file in torch's older format only the first SCANNED_BYTES
    are searched.
    """
    if zipfile.is_zipfile(file):  # torch's format since 1.6: an archive with one pickle
        with zipfile.ZipFile(file) as archive:
            pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            content = archive.read(pickles[0])  # `file_format` has refused archives without one
    else:  # torch's format before 1.6: first the pickles, with the names of all tensors, then the numbers
        with file.open("rb") as legacy:
            content = legacy.read(SCANNED_BYTES)

    # A pickle holds a text as the letter X, its length in four bytes (the lowest first), and the text itself.
    # _SHORT_TEXT matches the letter and the four bytes if the last three are 0; its group is the first of the four.
    texts = set()
    for match in _SHORT_TEXT.finditer(content):
        length = match[1][0]  # the byte as a number
        text = content[match.end() : match.end() + length]
        texts.add(text.decode(errors="replace"))
    return texts


def weights_file(weights: str) -> Path:
    """The path of a file of weights.

    weights: that path as the user gives it; ~ is the home folder.

    Raises FcaError if there is no such file, or if its content cannot be a state dict.
    """
    path = Path(weights).expanduser()
    if not path.is_file():
        if weights == PACKAGE:  # of a family whose models name no package
            raise no_package("this model")
        raise FcaError("model.weights", weights, f"{STATE_DICT_FILE}; this file is not there", "correct the path")
    file_format(path)  # raises FcaError for another content
    return path


def file_format(path: Path) -> str:
    """The format of a file of weights, SAFETENSORS or TORCH, by its first bytes: its name may be wrong.

    Raises FcaError for any other format, naming it. All pickles count as TORCH, although not all are torch's: torch's
    reader refuses the others later.
    """
    try:
        with path.open("rb") as file:
            start = file.read(SNIFFED_BYTES)
    except OSError as error:
        raise FcaError("model.weights", str(path), f"a file that can be read ({one_line(error)})", "mend it") from error

    other_format: str | None  # a format that cannot be read, in words; None for torch's
    # safetensors begins with 8 bytes, the length of a JSON text; the text follows
    header_bytes = int.from_bytes(start[:8], "little")
    if start[8:9] == b"{" and header_bytes < LONGEST_HEADER:
        if 8 + header_bytes <= path.stat().st_size:  # the header is complete
            return SAFETENSORS
        other_format = "a cut safetensors file"
    elif start.startswith(b"PK\x03\x04"):
        other_format = _archive_format(path)  # a zip file: torch's, or another one
    elif start[:1] == b"\x80":  # a pickle
        other_format = None
    elif start[257:262] == b"ustar":  # the mark of a tar archive
        other_format = "a tar archive: unpack it"
    else:
        other_format = _format_by_start(start)

    if other_format is None:
        return TORCH
    raise FcaError("model.weights", str(path), f"{STATE_DICT_FILE}; this is {other_format}", "fetch or export it again")


def _format_by_start(start: bytes) -> str:
    """The format of a file that begins with these bytes, in words for a message."""
    if not start:
        return "an empty file"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")  # without a byte order mark, spaces and empty lines
    for beginning, name in FORMAT_BY_START:
        if text.startswith(beginning):
            return name
    return f"nothing known: it begins with {start[:16]!r}"


def _archive_format(path: Path) -> str | None:
    """The format of a zip file that holds no weights, in words for a message; None for a file that torch.save wrote.

    The formats are recognised by the names of the files inside.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return f"a cut or damaged archive ({one_line(error)})"

    if any(name.endswith("/constants.pkl") for name in names):
        return "a TorchScript program, which holds code: ask for its state dict"
    if any(name.endswith("/data.pkl") for name in names):
        return None
    ellipsis = ", ..." if len(names) > 3 else ""
    return f"a zip archive of other things ({', '.join(names[:3])}{ellipsis})"


def file_label(weights: str | None) -> str | None:
    """The name of weights in tables: the name of their file; None for a model from scratch."""
    return None if weights is None else Path(weights).name


def not_fetched(weights: object, source: object, reason: str) -> FcaError:
    """The error for published weights that cannot be downloaded, with the address to copy them from."""
    step = f"connect once, or copy {source} here and set model.weights=PATH"
    return FcaError("model.weights", weights, f"weights that can be fetched ({reason})", step)


def check_count(keys: Sequence[str], logits: int, what: str = "the logits") -> None:
    """Raise FcaError unless there is one class key for every logit."""
    if len(keys) != logits:
        step = "give the class key of every logit, in their order: model.classes=[...]"
        raise FcaError("model.classes", f"{len(keys)} keys", f"{logits} keys, {what}", step)


def starts_from_scratch(model: Model) -> bool:
    """Whether a model has random weights until it is trained; not so models that learn nothing (hog, own)."""
    return model.learns and model.weights_label() is None


def no_weights() -> FcaError:
    """The error for a model that starts from scratch where weights are needed."""
    step = "train it first (task=train, then model=run model.run_id=...) or give its weights: model.weights=PATH"
    return FcaError("model.weights", None, "weights: a model from scratch has no classes and no features", step)


def build_model(model: Model) -> Classifier:
    """Build a model with its own weights, to predict or to embed.

    Raises FcaError if it has none. Any error in the `build` of a user's class is also raised as FcaError, with the
    advice to train the model first: before its training, such a model often can only be built for given classes.
    """
    try:
        return model.build()
    except FcaError:
        raise
    except Exception as error:
        kind = type(model)
        if kind.__module__.startswith("fca."):  # an error of ours, not of a user's class
            raise
        allowed = f"a model with weights; `build()` of {kind.__qualname__} gave {one_line(error)}"
        step = "train it (task=train), then model=run model.run_id=...; or correct `build`"
        raise FcaError("model", model.label(), allowed, step) from error


def check_built(model: Model, built: Any, classes: Sequence[str]) -> None:
    """Raise FcaError unless `build` of a model returned a Classifier for these classes whose weights can be stored.

    The check is needed because models that users write may return anything.

    built:   what `model.build(classes)` returned.
    classes: the class keys that were given to `build`.
    """
    kind = type(model).__qualname__
    if not isinstance(built, Classifier):
        value = type(built).__name__
        step = "return Classifier(module=..., ...)"
        raise FcaError(f"what `build` of {kind} returns", value, "a fca.types.Classifier", step)

    if tuple(built.classes) != tuple(classes):
        ellipsis = ", ..." if len(classes) > 3 else ""
        allowed = f"{len(classes)}, as given to `build`: {', '.join(classes[:3])}{ellipsis}"
        value = f"{len(built.classes)}: {', '.join(map(str, built.classes[:3]))}"
        step = "return Classifier(classes=tuple(classes), ...)"
        raise FcaError(f"classes of the network that {kind} builds", value, allowed, step)

    import torch

    state = f"state of the network that {kind} builds"
    for name, value in built.module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            allowed = "tensors only, which can be stored"
            step = "keep it as a buffer, or make it in `build`"
            raise FcaError(state, f"{name}: {type(value).__name__}", allowed, step)
        if torch.nn.parameter.is_lazy(value):
            allowed = "tensors whose shapes are known"
            step = "let `build` give the numbers of inputs, or show the network an image once"
            raise FcaError(state, f"{name}: not made yet", allowed, step)


def class_keys(classes: Any) -> tuple[str, ...]:
    """The class keys of a model's logits, in their order; none for null.

    A class key is the name that identifies a class.

    classes: a list of keys, or the name of an ImageNet, whose keys are WordNet's ids (wnids) in timm's order.
    Raises FcaError for an unknown name, for a list with other things than keys, and for keys that occur twice.

    >>> class_keys(["cat", 7]), class_keys(None)
    (('cat', '7'), ())
    """
    meaning = classes_meaning(classes)
    if not isinstance(meaning, str):
        return tuple(meaning or ())
    return tuple(imported("timm.data.imagenet_info").ImageNetInfo(meaning).label_names())


def classes_meaning(classes: Any) -> str | list[str] | None:
    """Class keys as they enter the ids of runs: as a list of texts; None if there are none.

    The name of an ImageNet stays a name: the list of its class keys comes with timm, and ids must not depend on whether
    timm is installed.

    classes: the setting `model.classes`: a list of class keys, the name of an ImageNet, or None.
    Raises FcaError for another text, for keys that are neither texts nor whole numbers, for repeated keys and for an
    empty list.

    >>> classes_meaning("imagenet-1k"), classes_meaning(["cat", 7])
    ('imagenet-1k', ['cat', '7'])
    """
    if classes is None or classes in IMAGENETS:
        return classes
    if isinstance(classes, str):
        allowed = f"a list of class keys, or one of {', '.join(IMAGENETS)}"
        raise FcaError("model.classes", classes, allowed, "correct model.classes")

    keys = [str(key) for key in classes]
    # YAML reads an unquoted no as false: refused, since its text would be "False".
    invalid_keys = [key for key in classes if isinstance(key, bool) or not isinstance(key, str | int)]
    repeated_keys = [key for key, count in Counter(keys).items() if count > 1]
    if invalid_keys or repeated_keys or not keys:
        allowed = "different class keys, in the order of the logits (quote a key such as 'no')"
        value = (invalid_keys or repeated_keys or keys)[:5]
        raise FcaError("model.classes", value, allowed, "correct model.classes")
    return keys


# Input


@dataclass(frozen=True)
class Normalise:
    """(x - mean) / std, channel by channel, of RGB images in [0, 1] and of shape (batch, channels, height, width).

    bgr: swap red and blue afterwards, for networks that were trained on OpenCV's order.

    >>> import torch
    >>> Normalise((0.5,), (0.25,))(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Sequence[float]
    std: Sequence[float]
    bgr: bool = False

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise images on their device and in their precision; bgr swaps the channels last."""
        mean = images.new_tensor(self.mean)[:, None, None]
        std = images.new_tensor(self.std)[:, None, None]
        normalised = (images - mean) / std
        return normalised.flip(1) if self.bgr else normalised

    @staticmethod
    def check(model: Any) -> None:
        """Raise FcaError if a model's `mean` or `std` is given and does not have three channels."""
        for key in ("mean", "std"):
            value = getattr(model, key)
            if value is not None and len(value) != 3:
                raise FcaError(f"model.{key}", value, "three numbers, of red, green and blue", f"correct model.{key}")


def resize_crop(
    crop: int, side: int, size: int | None, crop_pct: float | None, interpolation: str, squash: bool = False
) -> ResizeCrop:
    """The geometry of a model: its library's values, each replaced by the user's where that is given.

    crop, side:     the library's: sides in pixels of the crop, and of the resized image before it (its shorter side).
    size, crop_pct: the user's: side of the crop in pixels, and its share of the resized side; None = not given.
    interpolation:  filter of the resizing, whether the library's or the user's.
    squash:         whether both sides are resized to the same length.

    >>> resize_crop(224, 232, None, None, "bilinear").key, resize_crop(224, 256, 112, None, "bicubic").key
    ('224-232-bilinear', '112-128-bicubic')
    """
    size = size or crop
    crop_share = crop_pct or min(1.0, crop / side)
    # The crop of `size` pixels is cut from an image resized to size * side / crop, rounded down as in the library.
    # ResizeCrop resizes to floor(size / crop_share). Where rounding makes this a pixel too small, lower the share.
    if crop_pct is None and math.floor(size / crop_share) < size * side // crop:
        crop_share = math.nextafter(crop_share, 0)
    return ResizeCrop(size, crop_share, interpolation, squash)
