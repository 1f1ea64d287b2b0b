"""Weights on disk: what they are (for identities and tables), reading them, and fitting them to a network."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fca.identity import file_sha256, settled
from fca.models.inputs import classes_meaning
from fca.types import FcaError

if TYPE_CHECKING:
    from torch import Tensor, nn

SUFFIXES = (".safetensors", ".pt", ".pth")
SHOWN = 3  # keys of each kind in a message
_GLOBAL = re.compile(r"GLOBAL (\w[\w.]*\w)")  # torch's words for what it refused to call
LOGGED = (
    "mmengine.logging.history_buffer.HistoryBuffer",
    *(f"{module}.getattr" for module in ("builtins", "__builtin__")),  # how such a buffer names its own methods
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *("numpy.ndarray", "numpy.dtype"),
)
LOCAL = "a .safetensors, .pt or .pth file that holds a state dict"


def identity_of(family: str, model: Any) -> dict[str, Any]:
    """All fields of a model (a dataclass), with the content (sha256) of its weights file for its path.

    `classes` say what the weights' logits mean: without weights they mean nothing and stay out.
    Raises FcaError for a file that is not there or has another suffix, and for classes that are no keys.
    """
    weights, classes = None, None
    if model.weights is not None:
        weights = file_sha256(checked(model.weights))
        classes = classes_meaning(model.classes)
    values = {**asdict(model), "weights": weights, "classes": classes}
    return {"family": family, **settled("model", values)}


def checked(weights: str) -> Path:
    """The file of these weights; raises FcaError if it is not there or cannot be a state dict."""
    path = Path(weights).expanduser()
    if path.suffix not in SUFFIXES:
        raise FcaError("model.weights", weights, LOCAL, "give the path of one as model.weights=PATH")
    if not path.is_file():
        raise FcaError("model.weights", weights, f"{LOCAL}; this file is not there", "correct the path")
    return path


class _Skipped:
    """Stands for what lies in a checkpoint beside tensors: it does nothing, whatever the file says."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


def read_weights(weights: str) -> dict[str, Tensor]:
    """The state dict in a file, by key; never runs code from it. Raises FcaError for a file that is something else.

    Logged numbers and their buffers are passed over (the names in LOGGED, none of which is called).
    """
    import pickle

    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = checked(weights)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with torch.serialization.safe_globals([(_Skipped, name) for name in LOGGED]):
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, pickle.UnpicklingError, EOFError, RuntimeError) as error:
        raise _unread(path, weights, error) from error
    if isinstance(state, Mapping) and isinstance(state.get("state_dict"), Mapping):
        state = state["state_dict"]
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise FcaError("model.weights", weights, LOCAL, "write it with torch.save(module.state_dict(), path)")
    return dict(state)


def with_weights(
    make: Callable[[int], nn.Module],
    head: Sequence[str],
    weights: str | None,
    known: Sequence[str],
    classes: Sequence[str] | None,
    read: Callable[[str], dict[str, Tensor]] = read_weights,
) -> tuple[nn.Module, tuple[str, ...]]:
    """A network with its weights, and the class keys of its logits.

    make:    number of logits -> network with random weights; 0 = without a head.
    head:    names of the modules that give the logits.
    known:   class keys of the logits in the file; empty when it has none, or nobody told.
    classes: to train anew: the file's head, if any, is left out for a fresh one of these classes.
    read:    weights -> state dict, for files whose keys are not yet those of the network.

    Without `classes` the file's own head is kept, or none if `known` is empty. Raises FcaError for weights that do
    not fit (which keys), another number of logits than class keys, and neither weights nor classes.
    """
    if weights is None:
        return make(len(trainable(classes))), tuple(classes or ())
    state = read(weights)
    kept = tuple(known if classes is None else classes)
    if classes is None and known:
        _check_logits(state, head, known, weights)
        fresh: Sequence[str] = ()
    else:
        state = {key: value for key, value in state.items() if not _belongs(key, head)}
        fresh = head
    module = make(len(kept))
    fit_weights(module, state, fresh, weights)
    return module, kept


def trainable(classes: Sequence[str] | None) -> Sequence[str]:
    """The classes to train for; raises FcaError if there are none: random weights can be trained, and nothing else."""
    if classes is None:
        step = "train it first (task=train, then model=run model.run_id=...) or give its weights: model.weights=PATH"
        raise FcaError("model.weights", None, "weights: a model from scratch has no classes and no features", step)
    return classes


def fit_weights(module: nn.Module, state: Mapping[str, Tensor], fresh: Sequence[str], name: str) -> None:
    """Put a state dict into a network, key by key; only modules named in `fresh` may keep their random weights.

    Layers rename the keys of older files, as their libraries wrote them to: no file says which version it is of.
    Raises FcaError naming misshaped keys, or else missing and unexpected ones.
    """
    told = OrderedDict(state)
    told._metadata = {"": {"version": module._version}}  # type: ignore[attr-defined]  # MNASNet asks for its own
    try:
        found = module.load_state_dict(told, strict=False)
    except RuntimeError as error:
        misshaped = [line.strip().removeprefix("size mismatch for ") for line in str(error).splitlines()[1:]]
        problems = {"misshaped": misshaped}
    else:
        missing = [key for key in found.missing_keys if not _belongs(key, fresh)]
        problems = {"missing": missing, "unexpected": sorted(found.unexpected_keys)}
    said = [_shown(kind, keys) for kind, keys in problems.items() if keys]
    if said:
        allowed = f"the {len(module.state_dict())} keys of this network; {'; '.join(said)}"
        raise FcaError("model.weights", name, allowed, "choose the model that these weights belong to")


def one_line(error: Exception) -> str:
    """Kind and first line of another library's error.

    >>> one_line(ValueError("too short\\nsee above")), one_line(EOFError())
    ('ValueError: too short', 'EOFError')
    """
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _unread(path: Path, weights: str, error: Exception) -> FcaError:
    """Why a file is no state dict; for a pickle that names code: which, and how to be rid of it."""
    code = _GLOBAL.findall(str(error)) if path.suffix != ".safetensors" else []
    if not code:
        return FcaError("model.weights", weights, f"{LOCAL} ({one_line(error)})", "fetch or export it again")
    told = f"{LOCAL}, and no code; to read this one would run {', '.join(code)} ({type(error).__name__})"
    target = path.with_suffix(".safetensors").name
    step = (
        "if you trust it, convert it once, in a container without network or files of yours: python -c "
        f"\"import torch, safetensors.torch as s; d = torch.load('{path.name}', 'cpu', weights_only=False); "
        f"s.save_file(d.get('state_dict', d), '{target}')\"; then model.weights={target}"
    )
    return FcaError("model.weights", weights, told, step)


def _check_logits(state: Mapping[str, Tensor], head: Sequence[str], known: Sequence[str], name: str) -> None:
    logits = [len(state[key]) for key in (f"{part}.weight" for part in head) if key in state]
    if not logits:
        keys = ", ".join(head)
        step = "train a head for them (task=train), or use them as an encoder (model.classes=null)"
        raise FcaError("model.weights", name, f"weights with a head ({keys}); these have none", step)
    if logits[0] != len(known):
        step = "give the class key of every logit, in their order: model.classes=[...]"
        raise FcaError("model.classes", f"{len(known)} keys", f"{logits[0]} keys, the logits in {name}", step)


def _belongs(key: str, modules: Sequence[str]) -> bool:
    return any(key.startswith(f"{module}.") for module in modules)


def _shown(kind: str, keys: Sequence[str]) -> str:
    more = ", ..." if len(keys) > SHOWN else ""
    return f"{len(keys)} {kind}: {', '.join(keys[:SHOWN])}{more}"


# Weights that lie on the web: fetched once, kept where torch keeps them, checked against the sha256 in their name.


def fetched(url: str) -> Path:
    """The local copy of a weights file, fetched on first use into torch.hub's folder (TORCH_HOME moves it).

    Names that end in -0123abcd.pth carry the first digits of their sha256, which is checked.
    Raises FcaError naming the file to bring when it is not there and cannot be fetched.
    """
    from torch.hub import download_url_to_file, get_dir

    name = Path(urlsplit(url).path).name
    file = Path(get_dir(), "checkpoints", name)
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    digits = re.search(r"[-_]([0-9a-f]{8,})\.\w+$", name)
    try:
        download_url_to_file(url, str(file), hash_prefix=digits and digits[1], progress=False)
    except (OSError, RuntimeError) as error:  # no network; another content than its name says
        step = f"connect once, or copy {url} here and set model.weights=PATH"
        raise FcaError("model.weights", name, f"weights that can be fetched ({one_line(error)})", step) from error
    return file
