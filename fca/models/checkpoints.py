"""Files of weights: which state dict in a file is that of a network, under which names. No code of a file runs."""

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
DEEPEST = 3  # state dicts lie under so many keys of a file at most
TRIED = 8  # prefixes of the keys of one state dict
COUNT = "num_batches_tracked"  # of a batch norm; older files lack it, and no prediction needs it
# Where published checkpoints keep state dicts, in this order; averaged weights come before these, as timm takes them.
WRAPPERS = ("state_dict_ema", "model_ema", "ema", "state_dict", "model", "teacher", "model_state_dict", "net")
BESIDE = re.compile(  # what a training keeps beside its network's tensors
    r"(^|.*\.)(n_averaged|total_ops|total_params)$"
    r"|(criterion|loss(es)?|metrics?|optimi[sz]er|(train|val|valid|test)_(loss|acc|accuracy|metrics?|f1))\w*(\.|$)"
    r"|loss_(fn|fct|func|function)(\.|$)"
)
LOGGED = (
    "argparse.Namespace",
    "mmengine.logging.history_buffer.HistoryBuffer",
    *(f"{module}.getattr" for module in ("builtins", "__builtin__")),  # how such a buffer names its own methods
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *("numpy.ndarray", "numpy.dtype"),
)
log = logging.getLogger(__name__)
_GLOBAL = re.compile(r"GLOBAL (\w[\w.]*\w)")  # torch's words for what it refused to call


class _Skipped:
    """Stands for what lies in a checkpoint beside tensors: it does nothing, whatever the file contains."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None: ...


class Wanted:
    """The tensors that a network must get: names and, where they are known, shapes.

    like:  its state dict, or the names in it.    fresh: modules whose tensors a file need not have.
    """

    def __init__(self, like: Collection[str], fresh: Names) -> None:
        self.network = frozenset(like)
        self.names = frozenset(name for name in like if not (belongs(name, fresh) or name.endswith(COUNT)))
        self.shapes = {name: like[name].shape for name in self.names} if isinstance(like, Mapping) else {}
        self.fresh = fresh

    def missing(self, state: State) -> int:
        return len(self.names - state.keys())

    def misshaped(self, state: State) -> int:
        return sum(name in state and state[name].shape != shape for name, shape in self.shapes.items())

    def others_in(self, state: State) -> list[str]:
        """Names in a state dict that are no tensor of the network."""
        return [name for name in state if name not in self.network and not belongs(name, self.fresh)]


class Reading(NamedTuple):
    """One way to read a file.

    wrapper: the keys that lead to the state dict.    prefix: what its names lost.    outside: those without the prefix.
    state:   the tensors, under the names that a network may have.    is_averaged: whether they are called averages.
    """

    wrapper: str
    prefix: str
    outside: frozenset[str]
    state: State
    is_averaged: bool

    def fits(self, wanted: Wanted) -> bool:
        return not (wanted.missing(self.state) or wanted.misshaped(self.state))

    @property
    def order(self) -> tuple[bool, int]:
        """Of readings that fit the lowest one is taken."""
        first = self.wrapper.partition(".")[0]
        return not self.is_averaged, WRAPPERS.index(first) if first in WRAPPERS else len(WRAPPERS)

    @property
    def name(self) -> str:
        return ".".join(part for part in (self.wrapper, self.prefix.removesuffix(".")) if part)


def read_weights(weights: str, like: Collection[str] = (), fresh: Names = (), tidy: Tidy = dict) -> State:
    """The state dict in a file, by name; never runs code from it. Raises FcaError for a file that is something else.

    like:  the state dict of the network, or its names. Of a checkpoint with several state dicts, whose names may all
           begin alike (as wrappers of a network add it), the reading is taken that has every tensor of the network; of
           several such the averaged weights, as timm takes them. A warning names what was read and what was left.
    fresh: modules whose tensors do not matter.    tidy: renames and drops names as a library needs it.

    Raises FcaError also where two networks in the file fit equally well.

    Logged numbers, their buffers and arguments are skipped (the names in LOGGED, none of which is called).
    """
    held = _loaded(weights)
    wanted = Wanted(like, fresh)
    readings = list(_readings(held, wanted, tidy))
    if not readings:
        step = "write it with torch.save(module.state_dict(), path)"
        raise FcaError("model.weights", weights, f"{LOCAL}; this one holds {_kind_of(held)}", step)

    fitting = [reading for reading in readings if reading.fits(wanted)] if wanted.names else []
    if fitting:
        best = min(fitting, key=lambda reading: (*reading.order, len(wanted.others_in(reading.state)), reading.prefix))
        _check_alone(best, fitting, wanted, weights)
    else:
        best = min(readings, key=lambda reading: wanted.missing(reading.state) + len(wanted.others_in(reading.state)))

    unused = _unused(best, wanted) if wanted.names else []
    _report(Path(weights).name, best, {reading.wrapper for reading in readings}, unused)
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

    def renamed(state: State) -> State:
        ours = [name for name in network if not name.endswith(COUNT)]
        theirs = [name for name in state if not name.endswith(COUNT)]
        step = "choose the model that these weights belong to"
        if len(ours) != len(theirs):
            allowed = f"the {len(ours)} tensors of this network; these are {len(theirs)}"
            raise FcaError("model.weights", weights, allowed, step)

        for our_name, their_name in zip(ours, theirs, strict=True):
            same_part = our_name.rpartition(".")[2] == their_name.rpartition(".")[2]
            if not same_part or network[our_name].shape != state[their_name].shape:
                expected = f"{our_name} {tuple(network[our_name].shape)}"
                given = f"{their_name} {tuple(state[their_name].shape)}"
                allowed = f"the tensors of this network in its order; in the place of {expected} is {given}"
                raise FcaError("model.weights", weights, allowed, step)

        displaced = _first_out_of_place(ours) or _first_out_of_place(theirs)
        if displaced:
            allowed = f"tensors layer by layer, in the order in which layers are numbered; {displaced} is out of place"
            raise FcaError("model.weights", weights, allowed, step)
        return {our_name: state[their_name] for our_name, their_name in zip(ours, theirs, strict=True)}

    return renamed


def _first_out_of_place(names: Names) -> str | None:
    """The first name that comes back to a module which others have followed, or whose number is lower than an earlier
    one at the same place; None if every module stands together and their numbers ascend.

    >>> _first_out_of_place(["a.1.bn1", "a.1.bn2", "a.2.bn1"]), _first_out_of_place(["a.bn2", "a.bn1"])
    (None, 'a.bn1')
    >>> _first_out_of_place(["bn0.weight", "a.bn1.weight", "bn0.bias"])
    'bn0.bias'
    """
    highest: dict[tuple[str, ...], int] = {}
    modules: set[tuple[str, ...]] = set()  # of the name before
    finished: set[tuple[str, ...]] = set()
    for name in names:
        parts = tuple(name.split("."))
        around = {parts[:depth] for depth in range(1, len(parts))}
        finished |= modules - around
        modules = around
        if around & finished:
            return name

        for depth, part in enumerate(parts):
            stem = part.rstrip("0123456789")
            digits = part.removeprefix(stem)
            if not digits:
                continue

            place = (*parts[:depth], stem)
            if int(digits) < highest.get(place, 0):
                return name
            highest[place] = int(digits)
    return None


def belongs(name: str, modules: Names) -> bool:
    """Whether a tensor is one of these, or lies in one of these modules."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _readings(held: Any, wanted: Wanted, tidy: Tidy) -> Iterator[Reading]:
    """All ways to read what a file holds; of state dicts under keys that are not in WRAPPERS those that fit."""
    averages_elsewhere = _is_of_mmengine(held)
    for wrapper, whole in _state_dicts(held):
        is_known = set(wrapper.split(".")) <= {"", *WRAPPERS}
        for prefix in _prefixes(whole, wanted):
            state, outside = _without(prefix, whole)
            is_averaged = bool(AVERAGED.search(wrapper) or AVERAGED.search(prefix))
            is_averaged = is_averaged and not (averages_elsewhere and wrapper == "ema_state_dict")
            reading = Reading(wrapper, prefix, outside, tidy(state), is_averaged)
            if is_known or (wanted.names and reading.fits(wanted)):
                yield reading


def _is_of_mmengine(held: Any) -> bool:
    """Whether MMEngine wrote a file, which stores averaged weights as `state_dict` and the others beside them."""
    about = held.get("meta") if isinstance(held, Mapping) else None
    return isinstance(about, Mapping) and "mmengine_version" in about


def _loaded(weights: str) -> Any:
    """What a file holds, by torch's reader that calls nothing but what rebuilds tensors."""
    path = weights_file(weights)
    try:
        if file_format(path) == SAFETENSORS:
            return load_file(path)
        skipped = torch.serialization.safe_globals([(_Skipped, name) for name in LOGGED])
        with path.open("rb") as file, skipped:  # an open file: torch reads a path by its suffix
            return torch.load(file, map_location="cpu", weights_only=True)
    except FcaError:
        raise
    except Exception as error:  # damaged files make readers fail with errors of every kind
        raise _unread(path, weights, error) from error


def _kind_of(held: Any) -> str:
    """What a file holds, in words.

    >>> _kind_of({"epoch": 3}), _kind_of({}), _kind_of([1]), _kind_of(3)
    ('a dict of epoch', 'an empty dict', 'a list', 'an int')
    """
    kind = type(held).__name__
    if isinstance(held, Mapping) and not held:
        return f"an empty {kind}"
    article = "an" if kind[0] in "aeiou" else "a"
    keys = f" of {', '.join(map(str, list(held)[:SHOWN]))}" if isinstance(held, Mapping) else ""
    return f"{article} {kind}{keys}"


def _state_dicts(held: Any, wrapper: str = "") -> Iterator[tuple[str, State]]:
    """Every state dict among what a file holds, with the keys that lead to it; those of WRAPPERS first.

    >>> [name for name, _ in _state_dicts({"model": {"a": torch.ones(1)}, "ema": {"state_dict": {"a": torch.ones(1)}}})]
    ['ema.state_dict', 'model']
    """
    if not isinstance(held, Mapping) or not held:
        return
    tensors = {name: value for name, value in held.items() if isinstance(name, str) and isinstance(value, Tensor)}
    if len(tensors) < len(held) and wrapper.count(".") < DEEPEST - 1:
        others = [key for key in held if isinstance(key, str) and key not in WRAPPERS]
        for key in (*WRAPPERS, *others):
            yield from _state_dicts(held.get(key), f"{wrapper}.{key}".removeprefix("."))
    if tensors:
        yield wrapper, tensors


def _prefixes(whole: State, wanted: Wanted) -> list[str]:
    """What the names of a state dict begin with where the network's would follow; none is always one of them.

    >>> _prefixes({"net.fc.bias": torch.ones(1), "fc.bias": torch.ones(1)}, Wanted(["fc.bias"], ()))
    ['', 'net.']
    """
    counts: Counter[str] = Counter()
    for name in whole:
        end = name.find(".") + 1
        while end:
            if name[end:] in wanted.names:
                counts[name[:end]] += 1
            end = name.find(".", end) + 1
    return ["", *(prefix for prefix, _ in counts.most_common(TRIED))]


def _without(prefix: str, whole: State) -> tuple[State, frozenset[str]]:
    """A state dict whose names lost a prefix, and which of them did not begin with all of it.

    Of `module.net.` those that begin with `module.` alone lose that: a head may lie beside its network.
    """
    parts = prefix.split(".")[:-1]
    beginnings = ["".join(f"{part}." for part in parts[:number]) for number in range(len(parts) + 1)]
    state: State = {}
    outside: set[str] = set()
    for beginning, longer in zip(beginnings, [*beginnings[1:], None], strict=True):
        for name, value in whole.items():
            if name.startswith(beginning) and (longer is None or not name.startswith(longer)):
                shorter = name.removeprefix(beginning)
                state[shorter] = value  # the one behind the longest beginning stays
                if longer is None:
                    outside.discard(shorter)
                else:
                    outside.add(shorter)
    return state, frozenset(outside)


def _unused(reading: Reading, wanted: Wanted) -> list[str]:
    """Names that may be left out: what is no part of the network, by the place or the name of it."""
    extra = wanted.others_in(reading.state)
    return [name for name in extra if name in reading.outside or BESIDE.match(name)]


def _check_alone(best: Reading, fitting: Sequence[Reading], wanted: Wanted, weights: str) -> None:
    """Raise FcaError where another network in the file would fit as well, and nothing says which one is meant."""
    for reading in fitting:
        if reading.order != best.order:
            continue
        pairs = ((reading.state[name], best.state[name]) for name in wanted.names)
        if any(one is not other and not torch.equal(one, other) for one, other in pairs):
            names = sorted(one.name or "its own keys" for one in (best, reading))
            step = f"save the one you mean, e.g. the tensors of `{names[0]}`, with torch.save(state_dict, path)"
            raise FcaError("model.weights", weights, f"one network; this file has several: {', '.join(names)}", step)


@cache
def _warn_once(line: str) -> None:
    log.warning(line)


def _report(name: str, taken: Reading, wrappers: set[str], unused: Names) -> None:
    """One line, once a process, where a file was not read name by name as it is."""
    how = [f"read from `{taken.wrapper}`"] if taken.wrapper else []
    others = sorted(wrappers - {taken.wrapper, ""})
    how += [f"not from {', '.join(f'`{other}`' for other in others)}"] if others else []
    how += [f"prefix `{taken.prefix}` removed"] if taken.prefix else []
    if unused:
        more = f" and {len(unused) - SHOWN} more" if len(unused) > SHOWN else ""
        how.append(f"not used: {', '.join(sorted(unused)[:SHOWN])}{more}")
    if how:
        _warn_once(f"weights {name}: {', '.join(how)}")


def _unread(path: Path, weights: str, error: Exception) -> FcaError:
    """Why a file is no state dict; for a pickle that names code: which, and how to convert the file."""
    code = _GLOBAL.findall(str(error))
    if not code:
        return FcaError("model.weights", weights, f"{LOCAL} ({one_line(error)})", "fetch or export it again")
    allowed = f"{LOCAL}; this one holds code: to read it would run {', '.join(code)} ({type(error).__name__})"
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
    digits = re.search(r"[-_]([0-9a-f]{8,})\.\w+$", name)
    try:
        torch.hub.download_url_to_file(url, str(file), hash_prefix=digits and digits[1], progress=False)
    except (OSError, RuntimeError) as error:  # no network; another content than its name promises
        raise not_fetched(name, url, one_line(error)) from error
    return file
