"""`task=screen`: a linear probe on few of the training images, to see which of many networks are worth all images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Int

from fca.data.copies import connected_images
from fca.data.splits import at_rows, for_training
from fca.identity import fingerprint
from fca.stats.features import fit_probe, representative_rows
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT_LOGITS, N_JUDGED, N_TRAIN
from fca.tasks import RunContext
from fca.tasks.adaptation import TRAINING_COLUMNS, training_columns
from fca.tasks.adaptation.probe import ProbeWork, features_run_and_work, probe_identity
from fca.tasks.embed import embed_images
from fca.types import Column, Finished, ImageData, Run
from fca.validation import Allowed


@dataclass(frozen=True)
class Screen:
    """`task=screen`: one run for the data, the classes and the network; no test image and no validation image is read.

    images: training images in all, about; each class by its share (fca.stats.features.representative_rows).

    Arrays as those of adaptation=probe: `judged_images`, positions in the data's items, and `left_out_logits` of each
    by a fit to the other images. A probe on all images is more accurate than these say: they compare networks.
    """

    columns: ClassVar[tuple[Column, ...]] = (N_TRAIN, *TRAINING_COLUMNS, N_JUDGED)
    summary: ClassVar[tuple[Column | str, ...]] = ("{n_train} images",)

    images: Annotated[int, Allowed(4)]

    def plan(self, context: RunContext) -> list[Run]:
        """The run that computes the features of the few images, then the run of the probe.

        Raises FcaError for a model without weights, for a shift, and with compat.
        """
        context.check_clean("screen")
        data = for_training(context.data)
        rows = few_rows(data, context.subset.classes, self.images)
        features, work = features_run_and_work(context, few_images(data, rows))
        identity = probe_identity(context, data) | {"images": self.images}
        columns = training_columns(context, data, "probe")
        return [features, Run("screen", identity, columns, features.run_id, work=work)]

    def run(self, runs: Sequence[Run], context: RunContext) -> Iterator[Finished]:
        """Embed the images, then fit the probe and leave its images out in turn."""
        for run in runs:
            yield embed_images(run, context) if run.task == "embed" else self._probed(run, context)

    def _probed(self, run: Run[ProbeWork], context: RunContext) -> Finished:
        """Fit the probe to the stored features of few images, to see whether the network is worth all images.

        Returns the run's columns, and as arrays the outputs for the images that were left out in turn: the probe is
        fitted anew without each fold of images. `probe.judged` has the positions of these images among the few.
        """
        few = run.work.data
        labels = context.subset.new_labels(few.labels)  # 0 to classes - 1
        groups = connected_images(few.items, few.group)  # copies, and images of one group, are left out together
        probe = fit_probe(run.work.values(context.store), labels, groups)

        # positions in the arrays are among all images of the data, not among the few
        data = for_training(context.data)
        context.store.keep_items(data)  # the list of all images, which those positions refer to
        rows = few_rows(data, context.subset.classes, self.images)  # of the few images, in the order of `few`
        columns: dict[str, Any] = {
            N_TRAIN: len(labels),
            N_JUDGED: len(probe.judged),
            "input_size": context.store.row(run.work.features)["input_size"],
        }
        arrays = {
            JUDGED_IMAGES: rows[probe.judged].astype(np.int32),
            LEFT_OUT_LOGITS: probe.left_out.astype(np.float32),
        }
        return Finished(run, columns, arrays)


def few_images(data: ImageData, rows: Int[np.ndarray, " rows"]) -> ImageData:
    """A data set of only these images, with its own fingerprint, so that its features are stored apart."""
    few = at_rows(data, rows)
    return replace(few, fingerprint=fingerprint(few.items, f"{data.fingerprint} screened"))


def few_rows(data: ImageData, classes: Sequence[int], images: int) -> Int[np.ndarray, " rows"]:
    """Positions of about `images` training images of these classes, each class by its share.

    They are the same for all networks, so that their probes can be compared.
    """
    train = data.rows("train", classes)
    return train[representative_rows(data.labels[train], images)]
