"""Images that a person should look at: suspicious labels, classes that the recommended model confuses, balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from fca.metric import Metric
from fca.report.pictures import ACROSS, pictures
from fca.stats.chance import count_is_at_chance, guessing_accuracy
from fca.stats.features import temperature
from fca.stats.label_errors import confident_learning
from fca.store.columns import N_TRAIN, N_VAL
from fca.studies.recommend.evidence import PROBE, Evidence, LeftOutImages
from fca.tables.table import COLUMN, DATASET, IMAGE_ID, LABEL, N_TEST, ROW, SPLIT, THUMBNAIL, TableSpec
from fca.types import Column

SUGGESTED = Column("suggested", str, "", "class that similar images suggest")
MARGIN = Column("margin", float, ".2f", "probability of that class minus that of the label, from similar images")
PICTURED = 3 * ACROSS  # of the suspects, those with a picture
PREDICTED_CLASS = Column("predicted_class", str, "", "class predicted instead")
ERRORS, OF_CLASS = Column("errors", int, ".0f", "images"), Column("n_class", int, ".0f", "test images of the class")
COST_OF_ERRORS = Column("cost_of_errors", float, ".3g", "what these images cost together")
SHARE = Column("share", float, ".0%", "share of all errors")
N_SPLITS = {
    "train": N_TRAIN.with_format(",.0f"),
    "val": N_VAL.with_format(",.0f"),
    "test": N_TEST.with_format(",.0f"),
}
SUSPECTS = Column("suspects", int, ".0f", "training and validation images whose label looks wrong")

CONFUSIONS = TableSpec(
    "recommendation_confusions",
    "Which classes does the recommended model confuse? (test images, which were not used to choose it)",
    "confusion matrix: Kohavi and Provost, 1998",
    (DATASET, LABEL, PREDICTED_CLASS, ERRORS, OF_CLASS, SHARE, COST_OF_ERRORS),
)
RELABEL = TableSpec(
    "recommendation_relabel",
    "Which training and validation images look mislabelled?",
    "confident learning (Northcutt et al. 2021, arXiv:1911.00068) on leave-one-out probes",
    (DATASET, THUMBNAIL, IMAGE_ID, SPLIT, LABEL, SUGGESTED, MARGIN, ROW, COLUMN),
)
CLASSES = TableSpec(
    "recommendation_classes",
    "How many images does each class have?",
    "counts; suspects: Northcutt et al. 2021, arXiv:1911.00068",
    (DATASET, LABEL, *N_SPLITS.values(), SUSPECTS),
)


def judging_probe(evidence: Evidence) -> LeftOutImages | None:
    """The outputs of the most accurate linear probe for images that it was not fitted to: they judge the labels.

    None if there is no probe, or if the best is at the level of chance: it would contradict labels at random.
    evidence: stored results of a job.
    """
    trainings = [candidate.first_training for candidate in evidence.candidates if candidate.trainings]
    probes = [evidence.left_out(training) for training in trainings if training["adaptation"] == PROBE]
    if not probes:
        return None

    best = max(probes, key=lambda probe: probe.top1)
    n_images = len(best.label)
    n_right = best.top1 * n_images
    if count_is_at_chance(n_right, n_images, guessing_accuracy(best.label)):
        return None
    return best


def mislabelled(evidence: Evidence) -> pd.DataFrame:
    """The lines of table RELABEL: images whose label looks wrong to the most accurate probe, the most suspicious first.

    The first PICTURED of them have pictures. Empty without a probe that is better than guessing.
    evidence: stored results of the job, among them the outputs of probes for images that they were not fitted to.
    """
    probe = judging_probe(evidence)
    if probe is None:
        return RELABEL.frame([])

    factor = temperature(probe.outputs, probe.label)  # the labels are most likely with the outputs times this
    probabilities = softmax(factor * probe.outputs, axis=1)
    # A class is confident for an image if it is at least as probable as on average over the images labelled with it.
    # A label looks wrong if the most probable of the confident classes is another one
    scored = confident_learning(probabilities, probe.label)
    suspects = np.flatnonzero(scored.suggested >= 0)  # -1: the label does not look wrong
    # margin: probability of the suggested class minus that of the label; the largest first
    suspects = suspects[np.argsort(-scored.margin[suspects], kind="stable")]

    metadata = evidence.items.iloc[probe.images[suspects]][[IMAGE_ID, SPLIT, LABEL]]
    frame = metadata.astype("str").reset_index(drop=True)
    frame[str(SUGGESTED)] = [evidence.classes[label] for label in scored.suggested[suspects]]
    frame[str(MARGIN)] = scored.margin[suspects]

    first_ids = frame[IMAGE_ID].tolist()[:PICTURED]
    return frame.join(_pictured(evidence, first_ids))


def _pictured(evidence: Evidence, image_ids: Sequence[str]) -> pd.DataFrame:
    """The thumbnails of these images, and the row and column of each in the figure, with ACROSS pictures in a row.

    One line for each image, in their order. A thumbnail is a data URI, or None if it cannot be made.
    """
    places = range(len(image_ids))
    thumbnails = pictures(evidence.store, image_ids, evidence.job.fingerprint).thumbnails
    # types are stated, as there may be no image; places are floats, as other lines of the table have none (NaN)
    return pd.DataFrame(
        {
            str(THUMBNAIL): pd.Series(thumbnails, places, dtype="object"),
            str(ROW): pd.Series([place // ACROSS for place in places], places, dtype="float"),
            str(COLUMN): pd.Series([place % ACROSS for place in places], places, dtype="float"),
        }
    )


def confusions(evidence: Evidence, training: Mapping[str, Any] | None, metric: Metric) -> pd.DataFrame:
    """The lines of table CONFUSIONS: pairs of a class and the class predicted instead, on test images.

    The pair with the most errors comes first; with costs, the pair whose errors cost most in total.

    evidence: stored results of the job.    metric: with or without costs.
    training: the row of the model's training. The table is empty if it is None, or has no predictions for test images.
    """
    if training is None or training["run_id"] not in evidence.test_rows:
        return CONFUSIONS.frame([])

    answered = evidence.answered(training, "test", metric)
    is_wrong = answered.labels != answered.predicted
    # the last key is for label -1, a class outside of the job, which as an index reads the last entry
    keys = np.array([*evidence.classes, "another class"], dtype=object)
    true_classes = keys[answered.labels]
    predicted_classes = keys[answered.predicted]

    errors = pd.DataFrame({LABEL: true_classes[is_wrong], PREDICTED_CLASS: predicted_classes[is_wrong]})
    pairs = errors.value_counts().rename(str(ERRORS)).reset_index()  # one line per pair, the most frequent first
    images_of_class = pd.Series(true_classes).value_counts()
    pairs[str(OF_CLASS)] = pairs[LABEL].map(images_of_class)
    pairs[str(SHARE)] = pairs[ERRORS] / max(1, int(is_wrong.sum()))
    if metric.costs is None:
        return pairs

    cost_of_pair = [
        metric.costs.of_pair(true_class, answer)
        for true_class, answer in zip(pairs[LABEL], pairs[PREDICTED_CLASS], strict=True)
    ]
    pairs[str(COST_OF_ERRORS)] = pairs[ERRORS] * np.array(cost_of_pair)
    return pairs.sort_values(str(COST_OF_ERRORS), ascending=False, kind="stable")


def classes(evidence: Evidence, suspects: pd.DataFrame) -> pd.DataFrame:
    """The lines of table CLASSES: each class with its number of images in each split, and of suspicious labels.

    suspects: lines of table RELABEL. Their numbers are missing if no probe can judge labels.
    """
    n_images = {str(column): evidence.images(split) for split, column in N_SPLITS.items()}
    if judging_probe(evidence) is None:
        n_suspects = np.full(len(evidence.classes), np.nan)
    else:
        counts = suspects[LABEL].value_counts()
        n_suspects = counts.reindex(evidence.classes, fill_value=0).to_numpy(dtype=float)
    return pd.DataFrame({LABEL: evidence.classes, **n_images, SUSPECTS: n_suspects})
