"""Adapt a network to a class subset and score it on the test images; how it is adapted: fca/tasks/adaptation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from fca.store.columns import N_TRAIN, N_VAL
from fca.tasks import N_UNUSED, RunContext
from fca.tasks.adaptation import TRAINING_COLUMNS, VAL_TOP1
from fca.types import Column, Finished, Run


@dataclass(frozen=True)
class Train:
    """`task=train`: train a network on the classes of the subset, and predict the test images.

    compat=fca does this as the original code did when it was released: with a head of all classes, trained on all
    images that are not test, and with the epoch of the highest accuracy on test.
    """

    columns: ClassVar[tuple[Column, ...]] = (VAL_TOP1, N_TRAIN, N_VAL, *TRAINING_COLUMNS)  # and those of the adaptation
    summary: ClassVar[tuple[Column | str, ...]] = (N_UNUSED,)

    def plan(self, context: RunContext) -> list[Run]:
        """The training and the predictions of the weights that it keeps."""
        return context.adaptation.plan(context.for_training())

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Do the training if that is among the runs, then predict the test images."""
        return context.adaptation.run(runs, context)
