"""Adaptations of a network to its classes: one file per kind, named by conf/adaptation/*.yaml. Shared helpers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fca.models import starts_from_scratch
from fca.models.stored import BEST, StoredRun
from fca.tasks import N_UNUSED, RunContext
from fca.tasks.checks import check_masks
from fca.tasks.predict import CLEAN, ForwardWork, data_columns, predict_run, shift_on, subset_columns
from fca.types import Column, FcaError, ImageData, Run

VAL_TOP1 = Column("val_top1", float, ".1%", "accuracy of the chosen epoch, or of a probe, on the validation images")

GROUP = Column("group", str, "", "column of the data that no drawn split cuts apart")
TRAINING_COLUMNS = (GROUP, N_UNUSED)  # columns of `training_columns`, beside the columns of every run


def check_has_weights(context: RunContext, name: str) -> None:
    """Raise FcaError if the model has no weights, which the adaptation of this name needs."""
    if starts_from_scratch(context.model):
        step = "give them: model.weights=pretrained, or model.weights=PATH"
        raise FcaError("adaptation", name, f"scratch: {context.model.label()} has no weights", step)


def training_columns(context: RunContext, data: ImageData, name: str) -> dict[str, Any]:
    """The columns that both a training and its predictions have, for any adaptation.

    They describe the test images, the subset, the model and the adaptation.
    name: the name of the adaptation.
    """
    return {
        **data_columns(data, "test"),
        **subset_columns(context.subset),
        "model": context.model.label(),
        "weights": context.model.weights_label(),
        "adaptation": name,
        GROUP: data.group,  # the column whose groups of images are kept together, or None
        N_UNUSED: data.unused or None,  # no column if all images are used
    }


def prediction_runs(
    train: Run, context: RunContext, data: ImageData, snapshots: Sequence[str] = (BEST,)
) -> list[Run[ForwardWork]]:
    """The runs that predict the test images with the weights of a training.

    For each snapshot of the weights, there is first a run for the clean images, then a run for each shift of the
    configuration. Raises FcaError for a shift that needs masks which the images do not have.

    train: the run of the training.
    snapshots: names of weights that it keeps.
    """
    check_masks(context.shifts, data, "test", context.subset.classes)
    shift_by_label = {shift.label(): shift for shift in (CLEAN, *context.shifts)}  # clean once, and first
    # the settings of a corruption depend on the size of the images
    shifts = [shift_on(shift, data, "test") for shift in shift_by_label.values()]

    runs = []
    for snapshot in snapshots:
        model = StoredRun(str(context.store.outputs), train.run_id, snapshot)  # loads the weights when it is built
        weights = {"run": train.run_id, "snapshot": snapshot}
        columns = {**train.metadata, "snapshot": snapshot}
        for shift in shifts:
            work = ForwardWork(model, data, "test", shift, context.subset.classes)
            runs.append(predict_run(work, weights, columns, parent=train.run_id))
    return runs
