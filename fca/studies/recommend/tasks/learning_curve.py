"""`task=learning_curve`: a linear probe on nested parts of the training images, to predict the gain from more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fca.data.copies import connected_images
from fca.data.splits import for_training
from fca.store.columns import JUDGED_IMAGES, N_FITS, N_JUDGED, N_TRAIN, N_VAL
from fca.studies.recommend.evidence import FITS, RIGHT, SIZES
from fca.studies.recommend.stats.nested_subsets import measure, possible_halvings
from fca.tasks import RunContext
from fca.tasks.adaptation import TRAINING_COLUMNS, training_columns
from fca.tasks.adaptation.probe import ProbeWork, features_run_and_work, probe_identity
from fca.tasks.embed import embed_images
from fca.types import Column, Finished, Run

FEWEST_IMAGES = Column("fewest_images", int, ",", "training images of the smallest part")
CURVE_S = Column("curve_s", float, ".1f", "time to fit and judge all of them, seconds")


@dataclass(frozen=True)
class LearningCurve:
    """`task=learning_curve`: one run for the data, the classes and the network, which the features are computed for.

    It fits the probe of adaptation=probe to all training images, to nested halves, quarters and eighths of them, and
    judges all by the same images. Arrays: `sizes`, `fits`, `right` (see
    fca.studies.recommend.stats.nested_subsets.Subsets) and `judged_images`, positions in the data's items.
    """

    columns: ClassVar[tuple[Column, ...]] = (
        N_TRAIN,
        N_VAL,
        *TRAINING_COLUMNS,
        N_JUDGED,
        N_FITS,
        FEWEST_IMAGES,
        CURVE_S,
    )
    summary: ClassVar[tuple[Column | str, ...]] = ("{n_fits} probes on {fewest_images} to {n_train} images",)

    def plan(self, context: RunContext) -> list[Run]:
        """The run that computes the features of all images, as for adaptation=probe, then the run of the curve.

        Raises FcaError for a model without weights, for a shift, with compat, and for a class with fewer than four
        training images, those that belong together counted once.
        """
        context.check_clean("learning_curve")
        data = for_training(context.data)  # a data set that is all test is split
        features, work = features_run_and_work(context, data)  # work: what the run of the curve reads

        train = data.rows("train", context.subset.classes)
        labels = context.subset.new_labels(data.labels[train])
        possible_halvings(labels, connected_images(data.items.iloc[train], data.group))  # refuses too few images
        columns = training_columns(context, data, "probe")
        curve = Run("learning_curve", probe_identity(context, data), columns, features.run_id, work=work)
        return [features, curve]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Embed the images, then fit and evaluate all probes."""
        for run in runs:
            yield embed_images(run, context) if run.task == "embed" else _measured(run, context)


def _measured(run: Run[ProbeWork], context: RunContext) -> Finished:
    """Fit probes to all training images and to nested parts of them, and return the run's columns and arrays.

    The features are already stored. The images that judge the probes are the same for all sizes.
    """
    data = run.work.data
    subset = context.subset
    features = run.work.values(context.store)
    train = data.rows("train", subset.classes)
    val = data.rows("val", subset.classes)
    groups = connected_images(data.items.iloc[train], data.group)  # copies, and images of one group, stay together

    start = time.perf_counter()
    subsets = measure(
        features[train],
        subset.new_labels(data.labels[train]),  # 0 to classes - 1
        features[val],
        subset.new_labels(data.labels[val]),
        groups,
    )
    seconds = time.perf_counter() - start

    columns: dict[str, Any] = {
        N_TRAIN: len(train),
        N_VAL: len(val),
        N_JUDGED: len(subsets.judged),
        N_FITS: int(subsets.fits.sum()),
        FEWEST_IMAGES: round(subsets.sizes[-1]),  # of the smallest parts
        CURVE_S: seconds,
        "input_size": context.store.row(run.work.features)["input_size"],  # pixels of the network's input
    }
    arrays = {
        SIZES: subsets.sizes,
        FITS: subsets.fits,
        RIGHT: subsets.right.astype(np.float32),
        # positions among training images, then validation images -> positions in the data's items
        JUDGED_IMAGES: np.concatenate([train, val])[subsets.judged].astype(np.int32),
    }
    return Finished(run, columns, arrays)
