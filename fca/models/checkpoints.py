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

from fca.models import AVERAGED, SAFETENSORS, STATE_DICT_FILE, file_format, not_fetched, one_line, weights_file
from fca.types import FcaError

Names = Sequence[str]  # of modules or tensors
State = dict[str, Tensor]
Tidy = Callable[[State], State]
SHOWN_NAMES = 3  # keys of each kind in a message
MAX_DEPTH = 3  # keys of a file that lead to a state dict, at most
MAX_PREFIXES = 8  # that are tried for the keys of one state dict
BATCH_COUNT = "num_batches_tracked"  # of a batch norm; older files lack it, and no prediction needs it
# Where published checkpoints keep state dicts, in this order; averaged weights come before these, as timm takes them.
WRAPPERS = ("state_dict_ema", "model_ema", "ema", "state_dict", "model", "teacher", "model_state_dict", "net")
NOT_OF_NETWORK = re.compile(  # tensors that a training stores beside those of its network
    r"(^|.*\.)(n_averaged|total_ops|total_params)$"
    r"|(criterion|loss(es)?|metrics?|optimi[sz]er|(train|val|valid|test)_(loss|acc|accuracy|metrics?|f1))\w*(\.|$)"
    r"|loss_(fn|fct|func|function)(\.|$)"
)
LOGGED_CLASSES = (  # classes and functions of logged values in checkpoints, none of which is called
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
    """The names, and where known the shapes, of the tensors that a file must hold for a network.

    like:  the network's state dict, or only its tensor names, in which case no shapes are compared.
    fresh: names of modules whose tensors a file need not have, such as a head that is replaced anyway.
    """

    def __init__(self, like: Collection[str], fresh: Names) -> None:
        self.all_names = frozenset(like)
        self.names = frozenset(name for name in like if not (belongs(name, fresh) or name.endswith(BATCH_COUNT)))
        self.shapes = {name: like[name].shape for name in self.names} if isinstance(like, Mapping) else {}
        self.fresh = fresh

    def n_missing(self, state: State) -> int:
        """Number of tensors that the network needs and this state dict lacks."""
        return len(self.names - state.keys())

    def n_misshaped(self, state: State) -> int:
        """Number of tensors whose shape is not the shape of the network's tensor of the same name."""
        return sum(name in state and state[name].shape != shape for name, shape in self.shapes.items())

    def unknown_names(self, state: State) -> list[str]:
        """Names in a state dict that are neither tensors of the network nor inside a module of `fresh`."""
        return [name for name in state if name not in self.all_names and not belongs(name, self.fresh)]


class Candidate(NamedTuple):
    """One way to read a file: one of its state dicts, after removal of one prefix from the names of its tensors.

    wrapper:     the keys of the file that lead to the state dict, joined by full stops; "" if it is the whole file.
    prefix:      the prefix that was removed, such as `module.`; "" for none.
    outside:     names of tensors that did not begin with the whole prefix.
    state:       the tensors under their shortened names.
    is_averaged: whether wrapper or prefix names them as a running average of the weights, such as `ema`.
    """

    wrapper: str
    prefix: str
    outside: frozenset[str]
    state: State
    is_averaged: bool

    def fits(self, network: NetworkTensors) -> bool:
        """Whether the state dict has every tensor that the network needs, in the network's shape."""
        return network.n_missing(self.state) == 0 and network.n_misshaped(self.state) == 0

    @property
    def order(self) -> tuple[bool, int]:
        """Sort key among candidates that fit; the lowest is taken: averages first, then in the order of WRAPPERS."""
        first_key = self.wrapper.partition(".")[0]
        position = WRAPPERS.index(first_key) if first_key in WRAPPERS else len(WRAPPERS)
        return not self.is_averaged, position

    @property
    def name(self) -> str:
        """Wrapper and prefix joined by full stops, for messages; "" if the file is a plain state dict."""
        return ".".join(name for name in (self.wrapper, self.prefix.removesuffix(".")) if name)


def read_weights(weights: str, like: Collection[str] = (), fresh: Names = (), tidy: Tidy = dict) -> State:
    """Read a file of weights and return its state dict (tensor name -> tensor). Code in the file is never run.

    A checkpoint may hold several state dicts (under keys such as `model` and `ema`), and the tensor names in one may
    all begin with a prefix such as `module.`. Among these candidates, one that has every tensor of the network is
    taken; if several have, the averaged weights, as timm does. If none fits, the candidate that differs least is
    returned, so that the caller can name the differences. A warning lists what was read and what was not.

    weights: path of the file.
    like:    the network's state dict, or only its tensor names; empty if the network is unknown.
    fresh:   names of modules whose tensors the file need not have, such as a head that is replaced.
    tidy:    applied to each state dict first, to rename or drop tensors as the network's library needs it; `dict`, the
             default, only copies it.

    Two kinds of tensors that the network does not have are dropped: tensors whose names lack the prefix, and tensors
    that a training stores beside its network, such as the weights of a loss. Others stay, for the caller to refuse.
    Numbers and arguments that a training logged into the file are skipped.

    Raises FcaError for a file without a state dict, and for one in which two different networks fit equally well.
    """
    content = _load_without_code(weights)
    network = NetworkTensors(like, fresh)
    candidates = list(_candidates(content, network, tidy))
    if not candidates:
        step = "write it with torch.save(module.state_dict(), path)"
        raise FcaError(
            "model.weights", weights, f"{STATE_DICT_FILE}; this one holds {_content_in_words(content)}", step
        )

    def n_unknown(candidate: Candidate) -> int:
        """Number of a candidate's tensors that the network does not have."""
        return len(network.unknown_names(candidate.state))

    # network.names: the tensors that the network needs; empty if the network is unknown
    fitting = [candidate for candidate in candidates if candidate.fits(network)] if network.names else []
    if fitting:
        # `order` puts averaged weights first, then the keys of the file in the order of WRAPPERS. Among equals the
        # candidate with the fewest tensors unknown to the network is taken, and at last the one without a prefix.
        best = min(fitting, key=lambda candidate: (*candidate.order, n_unknown(candidate), candidate.prefix))
        _check_unambiguous(best, fitting, network, weights)
    else:  # the candidate that differs least: it has the fewest missing and unknown names
        best = min(candidates, key=lambda candidate: network.n_missing(candidate.state) + n_unknown(candidate))

    left_out = _droppable_names(best, network) if network.names else []
    wrappers = {candidate.wrapper for candidate in candidates}
    _warn_of_changes(Path(weights).name, best, wrappers, left_out)
    return {name: value for name, value in best.state.items() if name not in left_out}


def in_order_of(network: Mapping[str, Tensor], weights: str) -> Tidy:
    """Return a function that renames a state dict of another library to a network's names, by position.

    network: the network's state dict, of which only names and shapes matter.
    weights: the file's name, for messages.

    Two libraries that build the same network list its tensors in the same order, under different names. The returned
    function therefore pairs the tensors one by one, without batch norms' counts of batches, which some files lack. It
    raises FcaError if the order may differ: if the numbers of tensors differ; if a pair differs in shape or in the last
    word of its names (`running_mean` is no `bias`); if the tensors of a module do not stand together; or if the numbers
    in names do not ascend. The last two rules catch layers of the same shape that have changed places.

    >>> rename = in_order_of({"bn1.weight": torch.ones(2), "bn1.bias": torch.zeros(2)}, "lite.pth")
    >>> list(rename({"_bn0.weight": torch.ones(2), "_bn0.bias": torch.zeros(2)}))
    ['bn1.weight', 'bn1.bias']
    """

    def rename(state: State) -> State:
        """The tensors of `state` under the names of the network's tensors, paired one by one in their order.

        Raises FcaError if the numbers of tensors differ, and if a pair may not be the same tensor: by its shape, the
        last word of its names, or the order of layers in either list of names.
        """
        # without the counts of batches that batch norms keep: older files lack them
        our_names = [name for name in network if not name.endswith(BATCH_COUNT)]
        their_names = [name for name in state if not name.endswith(BATCH_COUNT)]
        step = "choose the model that these weights belong to"
        if len(our_names) != len(their_names):
            allowed = f"the {len(our_names)} tensors of this network; these are {len(their_names)}"
            raise FcaError("model.weights", weights, allowed, step)

        renamed: State = {}
        for our_name, their_name in zip(our_names, their_names, strict=True):
            our_shape = network[our_name].shape
            their_shape = state[their_name].shape
            have_same_role = our_name.rpartition(".")[2] == their_name.rpartition(".")[2]  # weight, bias, ...
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
    """The first tensor name that breaks the order of layers; None if all are in order.

    Two rules hold. The tensors of a module, and of the modules in it, stand together: after a tensor from outside the
    module no further tensor of the module follows. Numbers at the same place of the names never descend: `blocks.2` may
    not come before `blocks.1`.

    >>> _first_out_of_place(["a.1.bn1", "a.1.bn2", "a.2.bn1"]), _first_out_of_place(["a.bn2", "a.bn1"])
    (None, 'a.bn1')
    >>> _first_out_of_place(["bn0.weight", "a.bn1.weight", "bn0.bias"])
    'bn0.bias'
    """
    open_modules: set[tuple[str, ...]] = set()  # the modules around the previous tensor: ("a",), ("a", "1")
    finished_modules: set[tuple[str, ...]] = set()
    highest_number: dict[tuple[str, ...], int] = {}  # by place: the words before the number, such as ("a", "bn")
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
    """Whether a tensor's name is one of these names, or lies inside one of these modules: `head.bias` is in `head`."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _candidates(content: Any, network: NetworkTensors, tidy: Tidy) -> Iterator[Candidate]:
    """Yield every candidate for a network's state dict: each state dict in a file, with each prefix of names removed.

    A candidate is one way to read the file. The prefixes are "" and those after which a name of the network follows.
    WRAPPERS are the keys under which published files keep their weights. Under other keys anything may stand, such as
    the state of an optimiser, so a state dict there is a candidate only if it fits the network.

    content: what the file holds, of any type.
    network: names and shapes of the tensors that the network needs.
    tidy:    renames or drops tensors of each candidate, as the network's library needs it.
    """
    is_of_mmengine = _is_of_mmengine(content)
    for wrapper, tensors in _state_dicts(content):
        has_known_keys = set(wrapper.split(".")) <= {"", *WRAPPERS}  # "" for a file that is itself a state dict
        # MMEngine stores the averaged weights as `state_dict`, and the weights without averaging as `ema_state_dict`.
        is_unaveraged_ema = is_of_mmengine and wrapper == "ema_state_dict"
        for prefix in _prefixes(tensors, network):
            # outside: names without the whole prefix, which `read_weights` drops if the network does not have them
            state, outside = _without_prefix(prefix, tensors)
            is_called_averaged = bool(AVERAGED.search(wrapper) or AVERAGED.search(prefix))
            is_averaged = is_called_averaged and not is_unaveraged_ema
            candidate = Candidate(wrapper, prefix, outside, tidy(state), is_averaged)
            if has_known_keys or (network.names and candidate.fits(network)):
                yield candidate


def _is_of_mmengine(content: Any) -> bool:
    """Whether MMEngine wrote the file with this content, as the file's metadata show."""
    metadata = content.get("meta") if isinstance(content, Mapping) else None
    return isinstance(metadata, Mapping) and "mmengine_version" in metadata


def _load_without_code(weights: str) -> Any:
    """The content of a file of weights: often a dictionary, but it may be anything that torch.save can write.

    torch's reader calls only the functions that rebuild tensors, so no code of the file runs. Raises FcaError for a
    file that cannot be read in this way; the error names the code that the file would have run.
    """
    path = weights_file(weights)
    try:
        if file_format(path) == SAFETENSORS:
            return load_file(path)
        # LOGGED_CLASSES make values that trainings log into their files. Where the pickle calls one of these classes,
        # torch calls `_Skipped` instead, which does nothing.
        skipping = torch.serialization.safe_globals([(_Skipped, name) for name in LOGGED_CLASSES])
        with path.open("rb") as file, skipping:  # an open file: torch reads a path by its suffix
            return torch.load(file, map_location="cpu", weights_only=True)
    except FcaError:
        raise
    except Exception as error:  # damaged files make readers fail with errors of every kind
        raise _unreadable(path, weights, error) from error


def _content_in_words(content: Any) -> str:
    """What the content of a file is, in words for a message.

    >>> _content_in_words({"epoch": 3}), _content_in_words({}), _content_in_words([1]), _content_in_words(3)
    ('a dict of epoch', 'an empty dict', 'a list', 'an int')
    """
    kind = type(content).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    if not isinstance(content, Mapping):
        return f"{article} {kind}"
    if not content:
        return f"an empty {kind}"
    return f"{article} {kind} of {', '.join(map(str, list(content)[:SHOWN_NAMES]))}"


def _state_dicts(content: Any, wrapper: str = "") -> Iterator[tuple[str, State]]:
    """Yield pairs for every state dict in a file: the keys that lead to it, joined by full stops, and the state dict.

    WRAPPERS, the keys under which published files keep their weights, are searched first, in their order. A dictionary
    counts as a state dict if any of its values is a tensor; its other values are dropped.

    wrapper: the keys that led to `content`, joined by full stops; "" for the whole file.

    >>> [name for name, _ in _state_dicts({"model": {"a": torch.ones(1)}, "ema": {"state_dict": {"a": torch.ones(1)}}})]
    ['ema.state_dict', 'model']
    """
    if not isinstance(content, Mapping) or not content:
        return

    tensors = {name: value for name, value in content.items() if isinstance(name, str) and isinstance(value, Tensor)}
    has_other_values = len(tensors) < len(content)
    if has_other_values and wrapper.count(".") < MAX_DEPTH - 1:  # at most MAX_DEPTH keys lead to a state dict
        other_keys = [key for key in content if isinstance(key, str) and key not in WRAPPERS]
        for key in (*WRAPPERS, *other_keys):
            inner_wrapper = f"{wrapper}.{key}".removeprefix(".")
            yield from _state_dicts(content.get(key), inner_wrapper)
    if tensors:
        yield wrapper, tensors


def _prefixes(tensors: State, network: NetworkTensors) -> list[str]:
    """Prefixes of a state dict's names after which a name of the network follows: first "", then the most frequent.

    tensors: a state dict of the file.
    network: the names that its tensors should have.
    At most MAX_PREFIXES are returned beside "", so that a file with many prefixes is still read in time.

    >>> _prefixes({"net.fc.bias": torch.ones(1), "fc.bias": torch.ones(1)}, NetworkTensors(["fc.bias"], ()))
    ['', 'net.']
    """
    counts: Counter[str] = Counter()
    for name in tensors:
        end = name.find(".") + 1  # the position after the first full stop; 0 if there is none
        while end:
            if name[end:] in network.names:
                counts[name[:end]] += 1
            end = name.find(".", end) + 1  # the position after the next full stop, or 0
    return ["", *(prefix for prefix, _ in counts.most_common(MAX_PREFIXES))]


def _without_prefix(prefix: str, tensors: State) -> tuple[State, frozenset[str]]:
    """Remove a prefix such as `module.net.` from the names of a state dict.

    A name that begins only with the first words of the prefix loses these words: `module.head.bias` becomes
    `head.bias`, since a training may keep the other layers of a network in one module (`net`) and the head beside it.

    prefix:  ends with a full stop, or is empty.
    tensors: the state dict.
    Returns the state dict under its new names, and the new names of tensors that did not begin with the whole prefix:
    these may be no part of the network.
    """
    words = prefix.split(".")[:-1]  # nothing follows the last full stop of a prefix
    # "", "module.", "module.net." for `module.net.`
    beginnings = ["".join(f"{word}." for word in words[:number]) for number in range(len(words) + 1)]

    # From the shortest beginning to the whole prefix: of two tensors with the same new name, the tensor under the
    # longer beginning stays.
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


def _droppable_names(candidate: Candidate, network: NetworkTensors) -> list[str]:
    """Names of a candidate's tensors that are no part of the network and can be dropped.

    They stand outside the prefix, or their name shows that a training stored them (NOT_OF_NETWORK, such as a loss).
    Other unknown names stay, for the caller to refuse.
    """
    unknown_names = network.unknown_names(candidate.state)
    return [name for name in unknown_names if name in candidate.outside or NOT_OF_NETWORK.match(name)]


def _check_unambiguous(best: Candidate, fitting: Sequence[Candidate], network: NetworkTensors, weights: str) -> None:
    """Raise FcaError if another candidate fits as well as the best one and holds other tensors.

    Nothing in the file shows then which of the two networks is meant.

    weights: the file's path, for the message.
    """
    for rival in fitting:
        if rival.order != best.order or _have_same_tensors(rival, best, network.names):
            continue  # the keys of the file decide between the two, or it is the same network

        names = sorted(candidate.name or "its own keys" for candidate in (best, rival))
        allowed = f"one network; this file has several: {', '.join(names)}"
        step = f"save the one you mean, e.g. the tensors of `{names[0]}`, with torch.save(state_dict, path)"
        raise FcaError("model.weights", weights, allowed, step)


def _have_same_tensors(first: Candidate, second: Candidate, names: Collection[str]) -> bool:
    """Whether these tensors are equal in both candidates."""
    for name in names:
        tensor = first.state[name]
        other_tensor = second.state[name]
        if tensor is not other_tensor and not torch.equal(tensor, other_tensor):
            return False
    return True


@cache
def _warn_once(line: str) -> None:
    log.warning(line)


def _warn_of_changes(name: str, candidate: Candidate, wrappers: set[str], left_out: Names) -> None:
    """Log a warning if a file was not read as a plain state dict under its own names, each text once in a process.

    name:      the file's name.
    candidate: the state dict that was read, with the keys (`wrapper`) that lead to it in the file.
    wrappers:  the keys that lead to each state dict in the file.
    left_out:  names of tensors that were dropped.
    """
    changes = []
    if candidate.wrapper:
        changes.append(f"read from `{candidate.wrapper}`")
    other_wrappers = sorted(wrappers - {candidate.wrapper, ""})
    if other_wrappers:
        changes.append(f"not from {', '.join(f'`{wrapper}`' for wrapper in other_wrappers)}")
    if candidate.prefix:
        changes.append(f"prefix `{candidate.prefix}` removed")
    if left_out:
        remainder = f" and {len(left_out) - SHOWN_NAMES} more" if len(left_out) > SHOWN_NAMES else ""
        changes.append(f"not used: {', '.join(sorted(left_out)[:SHOWN_NAMES])}{remainder}")

    if changes:
        _warn_once(f"weights {name}: {', '.join(changes)}")


def _unreadable(path: Path, weights: str, error: Exception) -> FcaError:
    """The error to raise for a file that torch refused to read.

    If torch refused a pickle because of code in it, the message names that code and a command to convert the file.

    path:    the file.
    weights: the same file as the user named it.
    error:   what torch's reader raised.
    """
    code_names = _GLOBAL.findall(str(error))  # classes and functions that torch refused to call
    if not code_names:
        return FcaError("model.weights", weights, f"{STATE_DICT_FILE} ({one_line(error)})", "fetch or export it again")

    allowed = (
        f"{STATE_DICT_FILE}; this one holds code: to read it would run {', '.join(code_names)} ({type(error).__name__})"
    )
    target = path.with_suffix(".safetensors").name
    step = (
        "ask for its state dict; or if you trust it, convert it once, in a container without network or files of "
        f"yours: python -c \"import torch, safetensors.torch as s; d = torch.load('{path.name}', 'cpu', "
        "weights_only=False); d = getattr(d, 'state_dict', lambda: d.get('state_dict', d))(); "
        f"s.save_file(d, '{target}')\"; then model.weights={target}"
    )
    return FcaError("model.weights", weights, allowed, step)


def fetched(url: str) -> Path:
    """The local copy of a published weights file, downloaded on first use into torch.hub's folder of checkpoints.

    The environment variable TORCH_HOME moves that folder. Raises FcaError, with the address (`url`) to copy the file
    from, if it cannot be downloaded, or if its hash is not the one in its name.
    """
    name = Path(urlsplit(url).path).name
    file = Path(torch.hub.get_dir(), "checkpoints", name)
    if file.is_file():
        return file

    file.parent.mkdir(parents=True, exist_ok=True)
    # Many names end in the first digits of the file's sha256, as in resnet50-0676ba61.pth: torch checks them.
    sha256_start = re.search(r"[-_]([0-9a-f]{8,})\.\w+$", name)
    hash_prefix = sha256_start[1] if sha256_start else None
    try:
        torch.hub.download_url_to_file(url, str(file), hash_prefix=hash_prefix, progress=False)
    except (OSError, RuntimeError) as error:  # no network; another content than its name promises
        raise not_fetched(name, url, one_line(error)) from error
    return file
