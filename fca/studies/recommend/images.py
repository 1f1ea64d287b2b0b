"""What to look at among the images: labels that look wrong, classes that the recommended model confuses, balance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

from fca.metric import Metric
from fca.report.pictures import ACROSS, pictures
from fca.stats.chance import guessing, right_at_chance
from fca.stats.features import temperature
from fca.stats.label_errors import confident_learning
from fca.store.columns import N_TRAIN, N_VAL
from fca.studies.recommend.evidence import PROBE, Evidence, LeftOut
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
    "Which classes does the recommended model confuse? (test images, which chose nothing)",
    "confusion matrix: Kohavi and Provost, 1998",
    (DATASET, LABEL, PREDICTED_CLASS, ERRORS, OF_CLASS, SHARE, COST_OF_ERRORS),
)
RELABEL = TableSpec(
    "recommendation_relabel",
    "Which training and validation images look mislabelled?",
    "confident learning (Northcutt et al. 2021, arXiv:1911.00068) on left-one-out probes",
    (DATASET, THUMBNAIL, IMAGE_ID, SPLIT, LABEL, SUGGESTED, MARGIN, ROW, COLUMN),
)
CLASSES = TableSpec(
    "recommendation_classes",
    "How many images does each class have?",
    "counts; suspects: Northcutt et al. 2021, arXiv:1911.00068",
    (DATASET, LABEL, *N_SPLITS.values(), SUSPECTS),
)


def judging_probe(of: Evidence) -> LeftOut | None:
    """The most accurate of the left-one-out probes; None where there is none, or it is at the level of chance.

    A probe that is no better than guessing contradicts labels at random.
    """
    rows = [candidate.first for candidate in of.candidates if candidate.trained]
    probes = [of.left_out(row) for row in rows if row["adaptation"] == PROBE]
    if not probes:
        return None
    best = max(probes, key=lambda probe: probe.top1)
    n = len(best.label)
    return None if right_at_chance(best.top1 * n, n, guessing(best.label)) else best


def mislabelled(of: Evidence) -> pd.DataFrame:
    """Suspected images, most suspect first, by the features on which a probe is most accurate."""
    best = judging_probe(of)
    if best is None:
        return RELABEL.frame([])
    probabilities = softmax(temperature(best.outputs, best.label) * best.outputs, axis=1)
    found = confident_learning(probabilities, best.label)
    suspects = np.flatnonzero(found.suggested >= 0)
    suspects = suspects[np.argsort(-found.margin[suspects], kind="stable")]

    about_images = of.items.iloc[best.images[suspects]][[IMAGE_ID, SPLIT, LABEL]]
    frame = about_images.astype("str").reset_index(drop=True)
    frame[str(SUGGESTED)] = [of.classes[label] for label in found.suggested[suspects]]
    frame[str(MARGIN)] = found.margin[suspects]
    return frame.join(_pictured(of, frame[IMAGE_ID].tolist()[:PICTURED]))


def _pictured(of: Evidence, image_ids: Sequence[str]) -> pd.DataFrame:
    """The pictures of the first images, and their places in the figure."""
    places = range(len(image_ids))
    return pd.DataFrame(
        {
            str(THUMBNAIL): pd.Series(
                pictures(of.store, image_ids, of.job.fingerprint).thumbnails, places, dtype="object"
            ),
            str(ROW): pd.Series([place // ACROSS for place in places], places, dtype="float"),
            str(COLUMN): pd.Series([place % ACROSS for place in places], places, dtype="float"),
        }
    )


def confusions(of: Evidence, row: Mapping[str, Any] | None, metric: Metric) -> pd.DataFrame:
    """Each class and what it was taken for, most errors first; of a training's answers for test images."""
    if row is None or row["run_id"] not in of.tested:
        return CONFUSIONS.frame([])
    seen = of.answered(row, "test", metric)
    wrong = seen.labels != seen.predicted
    keys = np.array([*of.classes, "another class"], dtype=object)  # at -1
    pairs = pd.DataFrame({LABEL: keys[seen.labels[wrong]], PREDICTED_CLASS: keys[seen.predicted[wrong]]})

    counted = pairs.value_counts().rename(str(ERRORS)).reset_index()
    counted[str(OF_CLASS)] = counted[LABEL].map(pd.Series(keys[seen.labels]).value_counts())
    counted[str(SHARE)] = counted[ERRORS] / max(1, int(wrong.sum()))
    if metric.costs is not None:
        paid = [
            metric.costs.of_pair(true, answer)
            for true, answer in zip(counted[LABEL], counted[PREDICTED_CLASS], strict=True)
        ]
        counted[str(COST_OF_ERRORS)] = counted[ERRORS] * np.array(paid)
        counted = counted.sort_values(str(COST_OF_ERRORS), ascending=False, kind="stable")
    return counted


def classes(of: Evidence, suspects: pd.DataFrame) -> pd.DataFrame:
    """Images of each class in each split, and how many of them are suspected; missing where nothing judges labels."""
    counts = {str(column): of.images(split) for split, column in N_SPLITS.items()}
    suspected = suspects[LABEL].value_counts().reindex(of.classes, fill_value=0).to_numpy(dtype=float)
    if judging_probe(of) is None:
        suspected[:] = np.nan
    return pd.DataFrame({LABEL: of.classes, **counts, SUSPECTS: suspected})
