"""A store of a few runs on digits, as `fca run` leaves it: sub-models, full models, features, a probe."""

from pathlib import Path

import fca

SMALL = {"dataset": "digits", "limit": 4, "logger": "none"}
SHORT = {"recipe.epochs": 1, "recipe.min_steps": 0}
SUB_MODEL = {"subset.ncl": 3, "subset.seed": 0}
SECOND_DRAW = {**SUB_MODEL, "subset.seed": 1}
FAST = {"model": "cifar_resnet20", "model.depth": 8}
RUNS = (
    {"model": "test_resnet", **SHORT, **SUB_MODEL},
    {"model": "test_resnet", **SHORT, **SECOND_DRAW},
    {**FAST, **SHORT, **SUB_MODEL},
    {**FAST, **SHORT, **SECOND_DRAW},
    {"model": "test_resnet", **SHORT},
    {"model": "hog", "adaptation": "probe", **SUB_MODEL},
    {"task": "embed", "model@encoder": "hog"},
    {"task": "embed", "model@encoder": "pixels"},
)


def write_digits_store(outputs: Path) -> None:
    """Do these runs."""
    for keys in RUNS:
        fca.run({**SMALL, **keys, "outputs": str(outputs)})
