"""Networks and encoders: frozen dataclasses, cheap to plan with; `build` imports their library. Here: what they share.

Names, weights, class keys, input and identity of a model that is planned but not built; no torch.
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

from fca.allowed import Allowed
from fca.geometry import INTERPOLATIONS, ResizeCrop
from fca.identity import canonical, file_sha256
from fca.models.package_weights import PACKAGE, no_package
from fca.torchvision_ops import imported
from fca.types import Classifier, FcaError, Model

if TYPE_CHECKING:
    from torch import Tensor

PRETRAINED = "pretrained"
"""The value of `weights` that stands for those which the family publishes."""

LOCAL = "a file that holds a state dict, as safetensors or torch.save write it"
SAFETENSORS, TORCH = "safetensors", "torch"
LONGEST_HEADER = 100_000_000  # bytes, by the format's own rule
SNIFFED = 512  # bytes; a tar archive has its mark at 257
STARTS = (  # what a file is that begins so, in place of weights
    (b"<", "an HTML or XML page, such as a login or error page saved in place of the file"),
    (b"version https://git-lfs.github.com/", "a git-lfs pointer: the file itself was not fetched (git lfs pull)"),
    (b"\x89HDF", "an HDF5 file, as Keras writes it"),
    (b"\x1f\x8b", "a gzip archive: unpack it"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"{", "a JSON text"),
)
SCANNED = 2**22  # bytes at the beginning of a file of torch's older format, in which the names of its tensors stand
AVERAGED = re.compile(r"(?:^|[._])(?:ema|swa|averaged?|averaging|shadow)(?=[._]|$)")
"""In the names under which averaged weights are stored."""
_SHORT_TEXT = re.compile(rb"X(.)\0\0\0", re.DOTALL)  # in a pickle as torch writes it: a length, then a text
Mean = Annotated[list[float] | None, Allowed(0, 1)]  # of RGB in [0, 1]
Std = Annotated[list[float] | None, Allowed(above=0, most=1)]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of RGB in [0, 1]
IMAGENETS = tuple(f"imagenet-{name}" for name in ("1k", "12k", "21k-goog", "21k-miil", "22k", "22k-ms"))  # in timm


# Networks that a library has names for


@dataclass(frozen=True)
class LibraryModel(Model):
    """A network by its name in a library. Null leaves a value of its input to the library's record of the weights.

    name:    any name that the library has for a classifier, with or without the tag of its weights.
    weights: null = from scratch; pretrained = the library's, fetched on first use; or the path of a state dict.
    kwargs:  any keyword that the library takes for this network.
    input_size, crop_pct, interpolation: see fca.geometry.ResizeCrop.
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
        """The name without tag, and the keywords.

        >>> LibraryModel("resnet18.v1", None, {"channels": [16, 32], "drop_rate": 0.1}, None, None, None, None).label()
        'resnet18 channels=16-32 drop_rate=0.1'
        """
        short = {key: "-".join(map(str, v)) if isinstance(v, list) else str(v) for key, v in self.kwargs.items()}
        return " ".join([self.architecture, *(f"{key}={value}" for key, value in short.items())])

    def weights_label(self) -> str | None:
        if self.pretrained:
            return self._published().removeprefix(f"{self.architecture}.")
        return file_label(self.weights)

    def identity(self) -> dict[str, Any]:
        """The library is imported only for a tag or for its weights, so that planning stays quick."""
        self._check()
        if self.pretrained:
            return identity_of(self.family, self, self._published(), name=self.architecture)
        return identity_of(self.family, self)

    def from_scratch(self) -> Model:
        return replace(self, weights=None)

    @property
    def pretrained(self) -> bool:
        """Whether its weights are those that the library publishes."""
        return self.weights == PRETRAINED

    @property
    def architecture(self) -> str:
        return self.name.partition(".")[0]

    def refused(self, error: Exception) -> FcaError:
        """The error for keywords or an input size that the network does not accept."""
        given = {"input_size": self.input_size, **self.kwargs}
        allowed = f"what {self.family}'s {self.name} takes ({one_line(error)})"
        return FcaError("model.kwargs", given, allowed, "correct or remove them, or choose another network")

    def _check(self) -> None:
        """Raise FcaError for an unknown name and for impossible settings."""
        raise NotImplementedError

    def _published(self) -> str:
        """The full name of the library's weights; raises FcaError if it has none."""
        raise NotImplementedError


def package_files(package: str, pattern: str) -> list[Path]:
    """Files of an installed package, found without importing it, which can take seconds. FcaError if there are none."""
    spec = find_spec(package)  # does not run the package's __init__
    files = [file for folder in (spec and spec.submodule_search_locations) or [] for file in Path(folder).glob(pattern)]
    if not files:
        step = f"install it: pip install -c constraints.txt 'fca[{package.replace('_', '-')}]'"
        raise FcaError("model", package, f"a family whose package is installed; {package} is not", step)
    return files


@cache
def networks_of(package: str, first_argument: str, files: str = "models/*.py") -> frozenset[str]:
    """Names of a package's networks by the text of its files: functions with this first argument (a pattern)."""
    pattern = re.compile(rf"^def (\w+)\(\s*{first_argument}\b", re.M)
    texts = (file.read_text() for file in package_files(package, files))
    return frozenset(name for text in texts for name in pattern.findall(text))


def unknown_name(library: str, name: str, known: Collection[str], step: str, kind: str = "names") -> FcaError:
    """The error for a network that a library has no name for, with the names most like it."""
    near = difflib.get_close_matches(name, known) or sorted(known)[:3]
    return FcaError("model.name", name, f"one of {library}'s {len(known)} {kind}, such as {', '.join(near)}", step)


def one_line(error: Exception) -> str:
    """Kind and first line of another library's error.

    >>> one_line(ValueError("too short\\nsee above")), one_line(EOFError())
    ('ValueError: too short', 'EOFError')
    """
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


# Weights and what their logits mean


def identity_of(family: str, model: Any, published: str | None = None, **changed: Any) -> dict[str, Any]:
    """All fields of a model (a dataclass); its weights enter by content (sha256), not by path.

    published: name of published weights, which then stands for them.    changed: values that stand for fields.

    `classes` are the meaning of the weights' logits: without weights they stay out.
    Raises FcaError for a file that is missing or no weights, and for classes that are no keys.
    """
    weights, classes = None, None
    read: dict[str, str] = {}
    if model.weights is not None:
        classes = classes_meaning(model.classes)
        weights = published
    if model.weights is not None and published is None:
        file = weights_file(model.weights)
        weights = file_sha256(file)
        read = {"weights_read": "averaged first"} if has_newly_read_averages(file) else {}
    values = {**asdict(model), **changed, "weights": weights, "classes": classes}
    return {"family": family, **canonical("model", values), **read}


def has_newly_read_averages(file: Path) -> bool:
    """Whether a file may hold averaged weights that earlier versions passed over: they read others under the same id.

    These are averages under other names than state_dict_ema, model_ema and ema, and all that count their updates.
    """
    stat = file.stat()
    return _names_averages(file.resolve(), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1024)
def _names_averages(file: Path, _size: int, _mtime_ns: int) -> bool:
    if file_format(file) == SAFETENSORS:
        return False
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            [listed] = [name for name in archive.namelist() if name.endswith("/data.pkl")][:1]
            content = archive.read(listed)
    else:
        with file.open("rb") as legacy:
            content = legacy.read(SCANNED)
    texts = (content[found.end() :][: found[1][0]] for found in _SHORT_TEXT.finditer(content))
    names = {text.decode(errors="replace") for text in texts}
    others = (name for name in names - {"state_dict_ema", "model_ema", "ema"} if "." not in name)
    return "n_averaged" in names or any(AVERAGED.search(name) for name in others)


def weights_file(weights: str) -> Path:
    """The file of these weights; raises FcaError if it is missing or cannot be a state dict by its content."""
    path = Path(weights).expanduser()
    if not path.is_file():
        if weights == PACKAGE:
            raise no_package("this model")
        raise FcaError("model.weights", weights, f"{LOCAL}; this file is not there", "correct the path")
    file_format(path)
    return path


def file_format(path: Path) -> str:
    """SAFETENSORS or TORCH by the file's content, whatever its name; FcaError names what else it looks like.

    torch's own reader decides about anything that begins like a pickle.
    """
    try:
        with path.open("rb") as file:
            start = file.read(SNIFFED)
    except OSError as error:
        raise FcaError("model.weights", str(path), f"a file that can be read ({one_line(error)})", "mend it") from error
    looks: str | None
    header = int.from_bytes(start[:8], "little")  # of safetensors: a length, then JSON of that length
    if start[8:9] == b"{" and header < LONGEST_HEADER:
        if 8 + header <= path.stat().st_size:
            return SAFETENSORS
        looks = "a cut safetensors file"
    elif start.startswith(b"PK\x03\x04"):
        looks = _archive(path)
    elif start[:1] == b"\x80":
        looks = None
    elif start[257:262] == b"ustar":
        looks = "a tar archive: unpack it"
    else:
        text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
        known = (name for begin, name in STARTS if text.startswith(begin))
        looks = next(known, f"nothing known: it begins with {start[:16]!r}") if start else "an empty file"
    if looks is None:
        return TORCH
    raise FcaError("model.weights", str(path), f"{LOCAL}; this is {looks}", "fetch or export it again")


def _archive(path: Path) -> str | None:
    """What a zip file is; None for one of torch.save."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return f"a cut or damaged archive ({one_line(error)})"
    if any(name.endswith("/constants.pkl") for name in names):
        return "a TorchScript program, which holds code: ask for its state dict"
    if any(name.endswith("/data.pkl") for name in names):
        return None
    return f"a zip archive of other things ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def file_label(weights: str | None) -> str | None:
    """The weights' name in tables: that of their file; None from scratch."""
    return None if weights is None else Path(weights).name


def not_fetched(weights: object, source: object, reason: str) -> FcaError:
    """The error for published weights that cannot be downloaded, with the address to copy them from."""
    step = f"connect once, or copy {source} here and set model.weights=PATH"
    return FcaError("model.weights", weights, f"weights that can be fetched ({reason})", step)


def check_count(known: Sequence[str], logits: int, what: str = "the logits") -> None:
    """Raise FcaError unless there is one class key for every logit."""
    if len(known) != logits:
        step = "give the class key of every logit, in their order: model.classes=[...]"
        raise FcaError("model.classes", f"{len(known)} keys", f"{logits} keys, {what}", step)


def starts_from_scratch(model: Model) -> bool:
    """Whether a model has random weights until it is trained; what has nothing to learn (hog, own) has none."""
    return model.learns and model.weights_label() is None


def no_weights() -> FcaError:
    """The error for a model that starts from scratch where weights are needed."""
    step = "train it first (task=train, then model=run model.run_id=...) or give its weights: model.weights=PATH"
    return FcaError("model.weights", None, "weights: a model from scratch has no classes and no features", step)


def built(model: Model) -> Classifier:
    """The network with weights of its own.

    Raises FcaError for a model of the user's that can only be built for given classes: it was never trained.
    """
    try:
        return model.build()
    except FcaError:
        raise
    except Exception as error:
        kind = type(model)
        if kind.__module__.startswith("fca."):
            raise
        allowed = f"a model with weights; `build()` of {kind.__qualname__} gave {one_line(error)}"
        step = "train it (task=train), then model=run model.run_id=...; or correct `build`"
        raise FcaError("model", model.label(), allowed, step) from error


def check_built(model: Model, built: Any, classes: Sequence[str]) -> None:
    """Raise FcaError for what is no network, or not one for these classes: models of one's own may err.

    Its state must be tensors that exist: they are what is stored of a training.
    """
    kind = type(model).__qualname__
    if not isinstance(built, Classifier):
        value, allowed = type(built).__name__, "a fca.types.Classifier"
        raise FcaError(f"what `build` of {kind} returns", value, allowed, "return Classifier(module=..., ...)")

    if tuple(built.classes) != tuple(classes):
        allowed = f"{len(classes)}, as given to `build`: {', '.join(classes[:3])}{', ...' if len(classes) > 3 else ''}"
        value = f"{len(built.classes)}: {', '.join(map(str, built.classes[:3]))}"
        step = "return Classifier(classes=tuple(classes), ...)"
        raise FcaError(f"classes of the network that {kind} builds", value, allowed, step)

    import torch

    for name, value in built.module.state_dict().items():
        if not isinstance(value, torch.Tensor):
            allowed = "tensors only, which can be stored"
            step = "keep it as a buffer, or make it in `build`"
            raise FcaError(f"state of the network that {kind} builds", f"{name}: {type(value).__name__}", allowed, step)
        if torch.nn.parameter.is_lazy(value):
            allowed = "tensors whose shapes are known"
            step = "let `build` give the numbers of inputs, or show the network an image once"
            raise FcaError(f"state of the network that {kind} builds", f"{name}: not made yet", allowed, step)


def class_keys(classes: Any) -> tuple[str, ...]:
    """The class key of every logit: a list of them, or the name of an ImageNet (wnids in timm's order); none for null.

    Raises FcaError for an unknown name, a list of other things than keys, and keys that occur twice.

    >>> class_keys(["cat", 7]), class_keys(None)
    (('cat', '7'), ())
    """
    meaning = classes_meaning(classes)
    if not isinstance(meaning, str):
        return tuple(meaning or ())
    return tuple(imported("timm.data.imagenet_info").ImageNetInfo(meaning).label_names())


def classes_meaning(classes: Any) -> str | list[str] | None:
    """Class keys as they enter an identity: an ImageNet stays a name. Raises as `class_keys` does, and needs no timm.

    >>> classes_meaning("imagenet-1k"), classes_meaning(["cat", 7])
    ('imagenet-1k', ['cat', '7'])
    """
    if classes is None or classes in IMAGENETS:
        return classes
    if isinstance(classes, str):
        allowed = f"a list of class keys, or one of {', '.join(IMAGENETS)}"
        raise FcaError("model.classes", classes, allowed, "correct model.classes")
    odd = [key for key in classes if isinstance(key, bool) or not isinstance(key, str | int)]
    keys = [str(key) for key in classes]
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if odd or twice or not keys:
        allowed = "different class keys, in the order of the logits (quote a key such as 'no')"
        raise FcaError("model.classes", (odd or twice or keys)[:5], allowed, "correct model.classes")
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
        """On the images' device and in their precision."""
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        normal = (images - mean) / std
        return normal.flip(1) if self.bgr else normal

    @staticmethod
    def check(model: Any) -> None:
        """Raise FcaError for a model whose mean or std is given and not one of three channels."""
        for key in ("mean", "std"):
            value = getattr(model, key)
            if value is not None and len(value) != 3:
                raise FcaError(f"model.{key}", value, "three numbers, of red, green and blue", f"correct model.{key}")


def resize_crop(
    crop: int, side: int, size: int | None, crop_pct: float | None, interpolation: str, squash: bool = False
) -> ResizeCrop:
    """The geometry on record (resize the shorter side to `side`, crop to `crop`) with the user's values over it.

    >>> resize_crop(224, 232, None, None, "bilinear").key, resize_crop(224, 256, 112, None, "bicubic").key
    ('224-232-bilinear', '112-128-bicubic')
    """
    size = size or crop
    share = crop_pct or min(1.0, crop / side)
    if crop_pct is None and math.floor(size / share) < size * side // crop:
        share = math.nextafter(share, 0)  # the quotient was rounded up
    return ResizeCrop(size, share, interpolation, squash)
