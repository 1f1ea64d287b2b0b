"""The networks `fca recommend` chooses among: those with available weights, or else small ones from scratch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fca.cli.configure import component
from fca.cli.jobs import Jobs, Keys
from fca.cli.options import option_names
from fca.types import FcaError, Model, check_choice

SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")
MULTIPLE = 32  # pixels: networks halve their input five times
SHARES = (6 / 7, 5 / 7, 4 / 7)  # of the size at which the weights were trained: 192, 160 and 128 of 224 pixels
SMALLEST_SIZE = 32  # pixels
WEIGHTS, SCRATCH, FEATURES = "weights", "scratch", "features"
PACKAGE, PRETRAINED = "package", "pretrained"


class Network(NamedTuple):
    """A network to choose among.

    kind: with weights; from scratch; or features without parameters (HOG).    keys: of its configuration, dotted.
    """

    kind: str
    keys: dict[str, Any]
    model: Model

    @property
    def label(self) -> str:
        return self.model.label()


def networks(config: Mapping[str, Any]) -> list[Network]:
    """The networks to choose among: HOG first, then networks with weights, then networks to train from scratch.

    Networks to train from scratch are the configuration's `candidates`. If that is null, they are its `small_networks`,
    unless there are networks with weights. Prints a line for weights that are left out. Raises FcaError for a name that
    is not a model, for a missing folder or file of weights, and for a candidate that cannot be trained.
    """
    options = option_names("model")
    for key in ("packages", "pretrained", "candidates"):
        for name in config[key] or ():
            check_choice(key, name, options, "name options of conf/model/")

    jobs = Jobs()
    keys_with_weights = [
        *_keys_of_packages(jobs, config["packages"]),
        *_keys_of_files(config["weights"], options),
        *[{"model": name, "model.weights": PRETRAINED} for name in config["pretrained"]],
    ]
    names_from_scratch = config["candidates"]
    if names_from_scratch is None:
        names_from_scratch = () if keys_with_weights else config["small_networks"]

    return [
        _network(jobs, FEATURES, {"model": "hog"}),
        *[_network(jobs, WEIGHTS, keys) for keys in keys_with_weights],
        *[_from_scratch(jobs, name) for name in names_from_scratch],
    ]


def _keys_of_packages(jobs: Jobs, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The configuration keys of the networks whose package of weights is installed with the right content.

    names: of networks.
    For networks that are left out it prints the reasons, each once: several may be in one missing package.
    """
    reasons: list[str] = []
    for name in names:
        keys = {"model": name, "model.weights": PACKAGE}
        try:
            _model(jobs, keys).identity()  # reads the weights, and raises if they are missing or not the right ones
        except FcaError as error:
            reasons.append(str(error))
            continue
        yield keys
    for reason in dict.fromkeys(reasons):
        print(f"left out: {reason}")


def _keys_of_files(folder_or_files: Any, options: Sequence[str]) -> list[dict[str, Any]]:
    """The keys of the networks with weights in files, see `weight_files`."""
    return [{"model": name, "model.weights": file} for name, file in weight_files(folder_or_files, options).items()]


def weight_files(folder_or_files: Any, options: Sequence[str]) -> dict[str, str]:
    """The files of weights: name of a model -> path.

    folder_or_files: such a mapping; or the path of a folder, whose files are named after models; or None.
    options:         the names of all models.
    Prints a line about files of a folder that have other names. Raises FcaError for a missing folder, and for a mapping
    with an unknown model.
    """
    if folder_or_files is None:
        return {}
    if isinstance(folder_or_files, str):
        return _weight_files_in(folder_or_files, options)
    for name in folder_or_files:
        check_choice("weights", name, options, "name options of conf/model/")
    return {str(name): str(file) for name, file in folder_or_files.items()}


def _weight_files_in(folder: str, options: Sequence[str]) -> dict[str, str]:
    """The files of weights in a folder whose names, without suffix, are names of models: name -> path.

    Prints a line for files that are left out because no model has their name. Raises FcaError for a missing folder.

    options: names of all models.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise FcaError("weights", folder, "a folder of weight files, or {MODEL: FILE}", "correct the path")

    files = {file.stem: str(file) for file in sorted(path.iterdir()) if file.suffix in SUFFIXES}
    unknown = sorted(set(files) - set(options))
    if unknown:
        print(f"left out, as no model of conf/model/ has that name: {', '.join(unknown)}")
    return {name: file for name, file in files.items() if name in options}


def _network(jobs: Jobs, kind: str, keys: dict[str, Any]) -> Network:
    """The network with these keys. Raises FcaError if its weights are missing."""
    model = _model(jobs, keys)
    model.identity()  # missing weights are refused before any work
    return Network(kind, keys, model)


def _model(jobs: Jobs, keys: Keys) -> Model:
    """The model that these keys of `fca run` name."""
    model: Model = component(jobs.configuration(keys), "model")
    return model


def _from_scratch(jobs: Jobs, name: str) -> Network:
    """The network of this name, to be trained from scratch. Raises FcaError for a model that cannot be."""
    model = _model(jobs, {"model": name})
    if model.from_scratch() is None:
        allowed = f"networks that can be trained; {name} has no weights of its own"
        raise FcaError("candidates", name, allowed, "leave it out; a probe on HOG is always among the choices")
    return Network(SCRATCH, {"model": name}, model)


def smaller_sizes(default_size: int, number: int) -> tuple[int, ...]:
    """At most `number` input sizes below the default, the largest first.

    They are SHARES of the default, rounded down to multiples of 32 pixels.

    >>> smaller_sizes(224, 3), smaller_sizes(260, 3), smaller_sizes(64, 3), smaller_sizes(32, 3)
    ((192, 160, 128), (192, 160, 128), (32,), ())
    """
    rounded = [int(default_size * share) // MULTIPLE * MULTIPLE for share in SHARES]
    distinct = dict.fromkeys(size for size in rounded if SMALLEST_SIZE <= size < default_size)
    return tuple(distinct)[:number]
