"""Files of weights: the state dict of a network in a file, and the names of its tensors. No code of a file runs."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
from safetensors.torch import load_file
from torch import Tensor

from fca.models import AVERAGED, LOCAL, SAFETENSORS, file_format, not_fetched, one_line, weights_file
from fca.types import FcaError

Names = Sequence[str]  # of modules or tensors
State = dict[str, Tensor]
Tidy = Callable[[State], State]
SHOWN = 3  # keys of each kind in a message
MAX_DEPTH = 3  # keys of a file that lead to a state dict, at most
MAX_PREFIXES = 8  # that are tried for the keys of one state dict
COUNT = "num_batches_tracked"  # of a batch norm; older files lack it, and no prediction needs it
# Where published checkpoints keep state dicts, in this order; averaged weights come before these, as timm takes them.
WRAPPERS = ("state_dict_ema", "model_ema", "ema", "state_dict", "model", "teacher", "model_state_dict", "net")
NOT_OF_NETWORK = re.compile(  # tensors that a training stores beside those of its network
    r"(^|.*\.)(n_averaged|total_ops|total_params)$"
    r"|(criterion|loss(es)?|metrics?|optimi[sz]er|(train|val|valid|test)_(loss|acc|accuracy|metrics?|f1))\w*(\.|$)"
    r"|loss_(fn|fct|func|function)(\.|$)"
)
LOGGED = (  # classes and functions of logged values in checkpoints, none of which is called
    "argparse.Namespace",
    "mmengine.logging.history_buffer.HistoryBuffer",
    "builtins.getattr",  # by which such a buffer names its own methods
    "__builtin__.getattr",
    "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct",
    "numpy._core.multiarray.scalar",
    "numpy.ndarray",
    "numpy.dtype",
)
log = logging.getLogger(__name__)
_GLOBAL = re.compile(r"GLOBAL (\w[\w.]*\w)")  # torch's words for what it refused to call


class _Skipped:
    """Stands for a value beside the tensors of a checkpoint: it does nothing, whatever the file contains."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class NetworkTensors:
    """The tensors that a network must get: names and, where they are known, shapes.

    like:  its state dict, or the names in it.    fresh: modules whose tensors a file need not have.
    """

    def __init__(self, like: Collection[str], fresh: Names) -> None:
        self.all_names = frozenset(like)
        self.names = frozenset(name for name in like if not (belongs(name, fresh) or name.endswith(COUNT)))
        self.shapes = {name: like[name].shape for name in self.names} if isinstance(like, Mapping) else {}
        self.fresh = fresh

    def n_missing(self, state: State) -> int:
        return len(self.names - state.keys())

    def n_misshaped(self, state: State) -> int:
        return sum(name in state and state[name].shape != shape for name, shape in self.shapes.items())

    def unknown_names(self, state: State) -> list[str]:
        """Names in a state dict that are no tensor of the network."""
        return [name for name in state if name not in self.all_names and not belongs(name, self.fresh)]


class Reading(NamedTuple):
    """A candidate for the state dict of a network, as read from a file.

    wrapper: the keys that lead to the state dict.    prefix: removed from its names.    outside: names without it.
    state:   the tensors, under the names that a network may have.    is_averaged: whether they are called averages.
    """

    wrapper: str
    prefix: str
    outside: frozenset[str]
    state: State
    is_averaged: bool

    def fits(self, network: NetworkTensors) -> bool:
        return network.n_missing(self.state) == 0 and network.n_misshaped(self.state) == 0

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key of readings that fit, of which the lowest is taken: averages first, then by WRAPPERS."""
        first_key = self.wrapper.partition(".")[0]
        position = WRAPPERS.index(first_key) if first_key in WRAPPERS else len(WRAPPERS)
        return not self.is_averaged, position

    @property
    def name(self) -> str:
        return ".".join(name for name in (self.wrapper, self.prefix.removesuffix(".")) if name)


def read_weights(weights: str, like: Collection[str] = (), fresh: Names = (), tidy: Tidy = dict) -> State:
    """The state dict in a file, by name; never runs code from it. Raises FcaError for a file that is something else.

    like:  the state dict of the network, or its names. Of a checkpoint with several state dicts, whose names may all
           begin alike (as wrappers of a network add it), the reading is taken that has every tensor of the network; of
           several such the averaged weights, as timm takes them. A warning names what was read and what was not.
    fresh: modules whose tensors do not matter.    tidy: renames and drops names as a library needs it.

    Raises FcaError also where two networks in the file fit equally well.

    Logged numbers, their buffers and arguments are skipped (the names in LOGGED, none of which is called).
    """
    content = _loaded(weights)
    network = NetworkTensors(like, fresh)
    readings = list(_readings(content, network, tidy))
    if not readings:
        step = "write it with torch.save(module.state_dict(), path)"
        raise FcaError("model.weights", weights, f"{LOCAL}; this one holds {_kind_of(content)}", step)

    def n_unknown(reading: Reading) -> int:
        return len(network.unknown_names(reading.state))

    fitting = [reading for reading in readings if reading.fits(network)] if network.names else []
    if fitting:
        best = min(fitting, key=lambda reading: (*reading.order, n_unknown(reading), reading.prefix))
        _check_unambiguous(best, fitting, network, weights)
    else:
        best = min(readings, key=lambda reading: network.n_missing(reading.state) + n_unknown(reading))

    unused = _unused(best, network) if network.names else []
    wrappers = {reading.wrapper for reading in readings}
    _warn_of_changes(Path(weights).name, best, wrappers, unused)
    return {name: value for name, value in best.state.items() if name not in unused}


def in_order_of(network: Mapping[str, Tensor], weights: str) -> Tidy:
    """Renames the tensors of another library's file to those of a network, first to first and last to last.

    network: its state dict, of which names and shapes matter.    weights: the file's name, for messages.

    Two libraries that build one network list its tensors in one order, under different names. An order that differs is
    refused, by an FcaError that names the first pair which cannot be the same tensor: it has another shape, or plays
    another part (`running_mean` is no `bias`). So are layers of one shape that have changed places: the tensors of a
    module must stand together, and the numbers in names must ascend. Counts of batches are left out on both sides.

    >>> rename = in_order_of({"bn1.weight": torch.ones(2), "bn1.bias": torch.zeros(2)}, "lite.pth")
    >>> list(rename({"_bn0.weight": torch.ones(2), "_bn0.bias": torch.zeros(2)}))
    ['bn1.weight', 'bn1.bias']
    """

    def rename(state: State) -> State:
        our_names = [name for name in network if not name.endswith(COUNT)]
        their_names = [name for name in state if not name.endswith(COUNT)]
        step = "choose the model that these weights belong to"
        if len(our_names) != len(their_names):
            allowed = f"the {len(our_names)} tensors of this network; these are {len(their_names)}"
            raise FcaError("model.weights", weights, allowed, step)

        renamed: State = {}
        for our_name, their_name in zip(our_names, their_names, strict=True):
            our_shape = network[our_name].shape
            their_shape = state[their_name].shape
            have_same_role = our_name.rpartition(".")[2] == their_name.rpartition(".")[2]
            if not have_same_role or our_shape != their_shape:
                expected = f"{our_name} {tuple(our_shape)}"
                actual = f"{their_name} {tuple(their_shape)}"
                allowed = f"the tensors of this network in its order; in the place of {expected} is {actual}"
                raise FcaError("model.weights", weights, allowed, step)
            renamed[our_name] = state[their_name]

        displaced_name = _first_out_of_place(our_names) or _first_out_of_place(their_names)
        if displaced_name:
            rule = "tensors layer by layer, in the order in which layers are numbered"
            raise FcaError("model.weights", weights, f"{rule}; {displaced_name} is out of place", step)
        return renamed

    return rename


def _first_out_of_place(names: Names) -> str | None:
    """The first name whose module or number is out of order; None if all are in order.

    The tensors of a module must stand together: none may follow a tensor of another module. Numbers at the same place
    of names must ascend.

    >>> _first_out_of_place(["a.1.bn1", "a.1.bn2", "a.2.bn1"]), _first_out_of_place(["a.bn2", "a.bn1"])
    (None, 'a.bn1')
    >>> _first_out_of_place(["bn0.weight", "a.bn1.weight", "bn0.bias"])
    'bn0.bias'
    """
    open_modules: set[tuple[str, ...]] = set()  # those of the previous name
    finished_modules: set[tuple[str, ...]] = set()
    highest_number: dict[tuple[str, ...], int] = {}
    for name in names:
        words = tuple(name.split("."))
        modules = {words[:depth] for depth in range(1, len(words))}
        finished_modules |= open_modules - modules
        open_modules = modules
        if modules & finished_modules:
            return name

        for depth, word in enumerate(words):
            stem = word.rstrip("0123456789")
            digits = word.removeprefix(stem)
            if not digits:
                continue

            place = (*words[:depth], stem)
            if int(digits) < highest_number.get(place, 0):
                return name
            highest_number[place] = int(digits)
    return None


def belongs(name: str, modules: Names) -> bool:
    """Whether a tensor is one of these, or is in one of these modules."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _readings(content: Any, network: NetworkTensors, tidy: Tidy) -> Iterator[Reading]:
    """All readings of a file's content; of state dicts under keys that are not in WRAPPERS those that fit."""
    is_of_mmengine = _is_of_mmengine(content)
    for wrapper, tensors in _state_dicts(content):
        has_known_keys = set(wrapper.split(".")) <= {"", *WRAPPERS}
        has_averages_elsewhere = is_of_mmengine and wrapper == "ema_state_dict"
        for prefix in _prefixes(tensors, network):
            state, outside = _without_prefix(prefix, tensors)
            is_called_averaged = bool(AVERAGED.search(wrapper) or AVERAGED.search(prefix))
            is_averaged = is_called_averaged and not has_averages_elsewhere
            reading = Reading(wrapper, prefix, outside, tidy(state), is_averaged)
            if has_known_keys or (network.names and reading.fits(network)):
                yield reading


def _is_of_mmengine(content: Any) -> bool:
    """Whether MMEngine wrote a file, which stores averaged weights as `state_dict` and the others beside them."""
    metadata = content.get("meta") if isinstance(content, Mapping) else None
    return isinstance(metadata, Mapping) and "mmengine_version" in metadata


def _loaded(weights: str) -> Any:
    """The content of a file, by torch's reader that calls nothing but what rebuilds tensors."""
    path = weights_file(weights)
    try:
        if file_format(path) == SAFETENSORS:
            return load_file(path)
        skipping = torch.serialization.safe_globals([(_Skipped, name) for name in LOGGED])
        with path.open("rb") as file, skipping:  # an open file: torch reads a path by its suffix
            return torch.load(file, map_location="cpu", weights_only=True)
    except FcaError:
        raise
    except Exception as error:  # damaged files make readers fail with errors of every kind
        raise _unreadable(path, weights, error) from error


def _kind_of(content: Any) -> str:
    """The content of a file, in words.

    >>> _kind_of({"epoch": 3}), _kind_of({}), _kind_of([1]), _kind_of(3)
    ('a dict of epoch', 'an empty dict', 'a list', 'an int')
    """
    kind = type(content).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    if not isinstance(content, Mapping):
        return f"{article} {kind}"
    if not content:
        return f"an empty {kind}"
    return f"{article} {kind} of {', '.join(map(str, list(content)[:SHOWN]))}"


def _state_dicts(content: Any, wrapper: str = "") -> Iterator[tuple[str, State]]:
    """Every state dict in a file's content, with the keys that lead to it; those of WRAPPERS first.

    >>> [name for name, _ in _state_dicts({"model": {"a": torch.ones(1)}, "ema": {"state_dict": {"a": torch.ones(1)}}})]
    ['ema.state_dict', 'model']
    """
    if not isinstance(content, Mapping) or not content:
        return

    tensors = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
    has_other_values = len(tensors) < len(content)
    if has_other_values and wrapper.count(".") < MAX_DEPTH - 1:
        other_keys = [key for key in content if isinstance(key, str) and key not in WRAPPERS]
        for key in (*WRAPPERS, *other_keys):
            yield from _state_dicts(content.get(key), f"{wrapper}.{key}".removeprefix("."))
    if tensors:
        yield wrapper, tensors


def _prefixes(tensors: State, network: NetworkTensors) -> list[str]:
    """Beginnings of the names of a state dict that a name of the network follows; "" is always one of them.

    >>> _prefixes({"net.fc.bias": torch.ones(1), "fc.bias": torch.ones(1)}, NetworkTensors(["fc.bias"], ()))
    ['', 'net.']
    """
    counts: Counter[str] = Counter()
    for name in tensors:
        end = name.find(".") + 1
        while end:
            if name[end:] in network.names:
                counts[name[:end]] += 1
            end = name.find(".", end) + 1
    return ["", *(prefix for prefix, _ in counts.most_common(MAX_PREFIXES))]


def _without_prefix(prefix: str, tensors: State) -> tuple[State, frozenset[str]]:
    """A state dict whose names lost a prefix, and which of them did not begin with all of it.

    Of `module.net.` names that begin with `module.` alone lose that: a head may be beside its network.
    """
    words = prefix.split(".")[:-1]
    beginnings = ["".join(f"{word}." for word in words[:number]) for number in range(len(words) + 1)]

    # From the shortest beginning to the whole prefix: of two tensors with one name the latter stays.
    state: State = {}
    outside: set[str] = set()
    for beginning, longer_beginning in zip(beginnings, [*beginnings[1:], None], strict=True):
        for name, value in tensors.items():
            if not name.startswith(beginning):
                continue
            if longer_beginning is not None and name.startswith(longer_beginning):
                continue

            short_name = name.removeprefix(beginning)
            state[short_name] = value
            if beginning == prefix:
                outside.discard(short_name)
            else:
                outside.add(short_name)
    return state, frozenset(outside)


def _unused(reading: Reading, network: NetworkTensors) -> list[str]:
    """Names that may be left out: their place or their name shows that they are no part of the network."""
    unknown_names = network.unknown_names(reading.state)
    return [name for name in unknown_names if name in reading.outside or NOT_OF_NETWORK.match(name)]


def _check_unambiguous(best: Reading, fitting: Sequence[Reading], network: NetworkTensors, weights: str) -> None:
    """Raise FcaError where another network in the file would fit as well, and nothing shows which one is meant."""
    for reading in fitting:
        if reading.order != best.order or _have_same_tensors(reading, best, network.names):
            continue

        names = sorted(candidate.name or "its own keys" for candidate in (best, reading))
        allowed = f"one network; this file has several: {', '.join(names)}"
        step = f"save the one you mean, e.g. the tensors of `{names[0]}`, with torch.save(state_dict, path)"
        raise FcaError("model.weights", weights, allowed, step)


def _have_same_tensors(first: Reading, second: Reading, names: Collection[str]) -> bool:
    for name in names:
        tensor = first.state[name]
        other_tensor = second.state[name]
        if tensor is not other_tensor and not torch.equal(tensor, other_tensor):
            return False
    return True


@cache
def _warn_once(line: str) -> None:
    log.warning(line)


def _warn_of_changes(name: str, reading: Reading, wrappers: set[str], unused: Names) -> None:
    """Warn, once a process, where a file was not read name by name as it is."""
    changes = []
    if reading.wrapper:
        changes.append(f"read from `{reading.wrapper}`")
    other_wrappers = sorted(wrappers - {reading.wrapper, ""})
    if other_wrappers:
        changes.append(f"not from {', '.join(f'`{wrapper}`' for wrapper in other_wrappers)}")
    if reading.prefix:
        changes.append(f"prefix `{reading.prefix}` removed")
    if unused:
        remainder = f" and {len(unused) - SHOWN} more" if len(unused) > SHOWN else ""
        changes.append(f"not used: {', '.join(sorted(unused)[:SHOWN])}{remainder}")

    if changes:
        _warn_once(f"weights {name}: {', '.join(changes)}")


def _unreadable(path: Path, weights: str, error: Exception) -> FcaError:
    """The error for a file that is no state dict; of a pickle it names the code in it, and how to convert the file."""
    code_names = _GLOBAL.findall(str(error))
    if not code_names:
        return FcaError("model.weights", weights, f"{LOCAL} ({one_line(error)})", "fetch or export it again")

    allowed = f"{LOCAL}; this one holds code: to read it would run {', '.join(code_names)} ({type(error).__name__})"
    target = path.with_suffix(".safetensors").name
    step = (
        "ask for its state dict; or if you trust it, convert it once, in a container without network or files of "
        f"yours: python -c \"import torch, safetensors.torch as s; d = torch.load('{path.name}', 'cpu', "
        "weights_only=False); d = getattr(d, 'state_dict', lambda: d.get('state_dict', d))(); "
        f"s.save_file(d, '{target}')\"; then model.weights={target}"
    )
    return FcaError("model.weights", weights, allowed, step)


def fetched(url: str) -> Path:
    """The local copy of a weights file, downloaded on first use into torch.hub's folder (TORCH_HOME moves it).

    Names that end in -0123abcd.pth carry the first digits of their sha256, which is checked.
    Raises FcaError naming the file to bring when it is missing and cannot be downloaded.
    """
    name = Path(urlsplit(url).path).name
    file = Path(torch.hub.get_dir(), "checkpoints", name)
    if file.is_file():
        return file

    file.parent.mkdir(parents=True, exist_ok=True)
    sha256_start = re.search(r"[-_]([0-9a-f]{8,})\.\w+$", name)
    hash_prefix = sha256_start[1] if sha256_start else None
    try:
        torch.hub.download_url_to_file(url, str(file), hash_prefix=hash_prefix, progress=False)
    except (OSError, RuntimeError) as error:  # no network; another content than its name promises
        raise not_fetched(name, url, one_line(error)) from error
    return file
