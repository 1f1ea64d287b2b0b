"""Which networks `fca recommend` chooses among: those with weights at hand, at several input sizes; else small ones."""

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
SHARES = (6 / 7, 5 / 7, 4 / 7)  # of the size that the weights were trained at: 192, 160 and 128 of 224 pixels
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
    """HOG first, then networks with weights; without any of those, small networks from scratch.

    Prints a line for each kind of weights that is left out. Raises FcaError for a name that is no model, for weights of
    a folder or file that is not there, and for a candidate that cannot be trained.
    """
    options = option_names("model")
    for key in ("packages", "pretrained", "candidates"):
        for name in config[key] or ():
            check_choice(key, name, options, "name options of conf/model/")
    jobs = Jobs()
    with_weights = [*_of_packages(jobs, config["packages"]), *_of_files(config["weights"], options)]
    with_weights += [{"model": name, "model.weights": PRETRAINED} for name in config["pretrained"]]

    found = [_network(jobs, FEATURES, {"model": "hog"})]
    found += [_network(jobs, WEIGHTS, keys) for keys in with_weights]
    scratch = config["candidates"]
    if scratch is None:
        scratch = () if with_weights else config["small_networks"]
    return found + [_from_scratch(jobs, name) for name in scratch]


def _of_packages(jobs: Jobs, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Those whose package is installed as it should be; a line for each that is not."""
    missing: list[str] = []
    for name in names:
        try:
            _model(jobs, {"model": name, "model.weights": PACKAGE}).identity()
        except FcaError as error:
            missing.append(str(error))
            continue
        yield {"model": name, "model.weights": PACKAGE}
    for line in dict.fromkeys(missing):
        print(f"left out: {line}")


def _of_files(given: Any, options: Sequence[str]) -> list[dict[str, Any]]:
    """Networks with weights in files, see `weight_files`."""
    return [{"model": name, "model.weights": file} for name, file in weight_files(given, options).items()]


def weight_files(given: Any, options: Sequence[str]) -> dict[str, str]:
    """Model -> file of its weights. given: such a mapping, or a folder of files that are named as models are.

    Files of another name are left out, with a line.    Raises FcaError for a folder or a model that there is not.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        folder = Path(given).expanduser()
        if not folder.is_dir():
            raise FcaError("weights", given, "a folder of weight files, or {MODEL: FILE}", "correct the path")
        files = {path.stem: str(path) for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES}
        if other := sorted(set(files) - set(options)):
            print(f"left out, as no model of conf/model/ has that name: {', '.join(other)}")
        return {name: file for name, file in files.items() if name in options}
    for name in given:
        check_choice("weights", name, options, "name options of conf/model/")
    return {str(name): str(file) for name, file in given.items()}


def _network(jobs: Jobs, kind: str, keys: dict[str, Any]) -> Network:
    model = _model(jobs, keys)
    model.identity()  # weights that are not there are refused before any work
    return Network(kind, keys, model)


def _model(jobs: Jobs, keys: Keys) -> Model:
    """The model that these keys of `fca run` name."""
    model: Model = component(jobs.configuration(keys), "model")
    return model


def _from_scratch(jobs: Jobs, name: str) -> Network:
    model = _model(jobs, {"model": name})
    if model.from_scratch() is None:
        allowed = f"networks that can be trained; {name} has no weights of its own"
        raise FcaError("candidates", name, allowed, "leave it out; a probe on HOG is always among the choices")
    return Network(SCRATCH, {"model": name}, model)


def smaller_sizes(usual: int, number: int) -> tuple[int, ...]:
    """So many input sizes below the usual one, multiples of 32 pixels, where there are so many.

    >>> smaller_sizes(224, 3), smaller_sizes(260, 3), smaller_sizes(64, 3), smaller_sizes(32, 3)
    ((192, 160, 128), (192, 160, 128), (32,), ())
    """
    below = [int(usual * share) // MULTIPLE * MULTIPLE for share in SHARES]
    return tuple(dict.fromkeys(size for size in below if SMALLEST_SIZE <= size < usual))[:number]
