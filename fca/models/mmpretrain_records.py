"""What mmpretrain's own index says of its models, read without importing it: names, weights, configurations."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from fca.nouns import FcaError

TASK = "Image Classification"


class Record(NamedTuple):
    """A model of mmpretrain.    config: the file that describes it.    weights: address of its checkpoint."""

    config: Path
    weights: str | None


def record_of(name: str) -> Record:
    """mmpretrain's record of a classifier; raises FcaError for a name that it does not know."""
    records = _records()
    if name.lower() not in records:
        near = difflib.get_close_matches(name.lower(), records) or sorted(records)[:3]
        allowed = f"one of mmpretrain's {len(records)} classifiers, such as {', '.join(near)}"
        step = f"list them: python -c \"from mmpretrain import list_models; print(list_models(task='{TASK}'))\""
        raise FcaError("model.name", name, allowed, step)
    return records[name.lower()]


def weights_of(name: str) -> str:
    """The address of a model's checkpoint; raises FcaError if mmpretrain publishes none."""
    weights = record_of(name).weights
    if weights is None:
        allowed = f"no pretrained weights: mmpretrain has none for {name}"
        raise FcaError("model.weights", "pretrained", allowed, "train it from scratch: model.weights=null")
    return weights


@cache
def _records() -> dict[str, Record]:
    """Records by lower-case name, as mmpretrain looks them up."""
    import yaml

    folder = _folder()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where libyaml is there

    def read(file: str) -> Any:
        return yaml.load((folder / file).read_text(), loader)  # noqa: S506  (both loaders are the safe ones)

    records = {}
    for file in read("model-index.yml")["Import"]:
        for model in read(file).get("Models", []):
            if any(result.get("Task") == TASK for result in _results(model)):
                records[model["Name"].lower()] = Record(folder / model["Config"], model.get("Weights"))
    return records


def _folder() -> Path:
    spec = find_spec("mmpretrain")  # finds the package without running its __init__
    folders = (spec and spec.submodule_search_locations) or []
    for folder in folders:
        return Path(folder, ".mim")
    step = "install it: pip install -c constraints.txt 'fca[mmpretrain]'"
    raise FcaError("model", "mmpretrain", "a family whose package is installed; mmpretrain is not", step)


def _results(model: dict[str, Any]) -> list[dict[str, Any]]:
    results = model.get("Results") or []
    return results if isinstance(results, list) else [results]
