"""The hardest, the easiest and the most suspect images of each data set, and what every model predicted for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from fca.report.pictures import ACROSS, pictures
from fca.stats.label_errors import item_top1, modal_wrong
from fca.store import Store
from fca.studies.irt.fits import (
    DIFFICULTY,
    DISCRIMINATION,
    ITEM_TOP1,
    MODAL_WRONG_SHARE,
    PAPER,
    IrtModel,
    fitted,
)
from fca.studies.irt.fittable import clean_with_subjects
from fca.studies.irt.not_estimable import priors_noted
from fca.studies.irt.stats import IrtFit
from fca.tables.answers import DatasetResponses, subjects_at_chance
from fca.tables.keys import Query, ResponseFiles
from fca.tables.responses import Responses
from fca.tables.table import COLUMN, DATASET, IMAGE_ID, LABEL, PICTURE_KIND, RANK, ROW, THUMBNAIL, TableSpec
from fca.types import Column, FcaError, Table
from fca.validation import Allowed, Seed

NAMED = 3  # predicted classes that are named

_KINDS = {
    "hardest": "hardest for the models",
    "easiest": "easiest (one draw among equals)",
    "suspect": "most suspect: more models predict one other class than the label",
}
KIND = PICTURE_KIND.with_format("", "why the image is shown").with_choices(_KINDS)
PREDICTED = Column("predicted", str, "", "predicted classes with the number of models")
GALLERY = TableSpec(
    "gallery",
    "Which images are hardest, which easiest, which probably mislabelled, and what did the models predict?",
    f"{PAPER}, figures 6 and 7",
    (
        *(DATASET, KIND, RANK, THUMBNAIL, IMAGE_ID, LABEL),
        *(PREDICTED, ITEM_TOP1, MODAL_WRONG_SHARE, DIFFICULTY, DISCRIMINATION),
        *(ROW, COLUMN),
    ),
)
METHOD = {
    "kind": "hardest, easiest: highest and lowest difficulty of the fit, each at most half of the images; suspect: "
    "images for which more subjects gave one and the same wrong class than the label, by the share of these, ties by "
    "few right responses; none where all subjects are at the level of chance",
    PREDICTED: f"classes and how many subjects predicted them, the {NAMED} most frequent by name",
}


@dataclass(frozen=True)
class Gallery:
    """`analysis=gallery`; reads full models' responses to clean test images, and files of responses."""

    tables: ClassVar = (GALLERY,)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    model: Annotated[IrtModel, "of item responses, whose difficulty orders the images"] = "2pl"
    shown: Annotated[int, Allowed(1), "images of each kind"] = 24
    seed: Annotated[
        Seed, "of the fit, and of the order among images that are equally hard, such as all that every model gets right"
    ] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Table gallery; its pictures are missing where the images are no longer at hand."""
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")
        runs: set[str] = set()
        frames = []
        fitted_sets: list[tuple[DatasetResponses, IrtFit]] = []
        for source in clean_with_subjects(store, self.query, self.responses):
            frame = GALLERY.frame(_lines(source, self))
            found = pictures(store, frame["image_id"].tolist(), source.fingerprint)
            fitted_sets.append((source, fitted(source, self.model, None, self.seed)))
            frames.append(frame.assign(thumbnail=pd.Series(found.thumbnails, dtype="object")))
            runs |= {*source.runs, *([found.run_id] if found.run_id else [])}
        taken = {one.dataset: fit.not_estimable for one, fit in fitted_sets if fit.not_estimable}
        parameters = {**asdict(self), **METHOD, **priors_noted(taken)}
        return [GALLERY.table(pd.concat(frames, ignore_index=True), parameters, sorted(runs))]


def _lines(source: DatasetResponses, fields: Gallery) -> Iterator[dict[str, Any]]:
    """One line a picture, with its place in the grid."""
    responses = source.responses
    fit = fitted(source, fields.model, None, fields.seed)
    top1 = item_top1(responses.correct)
    wrong_share = np.full(len(top1), np.nan)
    if responses.pred is not None:
        wrong_share = modal_wrong(responses.correct, responses.pred).share
    measures = {
        "top1": top1,
        "difficulty": fit.difficulty,
        "discrimination": fit.discrimination,
        "modal_wrong_share": wrong_share,
    }

    by_chance = np.random.default_rng(fields.seed).permutation(len(top1))
    half = max(1, len(top1) // 2)  # of a few images none is among the hardest and among the easiest
    hardest_first = np.lexsort((by_chance, -fit.difficulty))
    orders = {"hardest": hardest_first[:half], "easiest": hardest_first[::-1][:half]}
    if responses.pred is not None and not subjects_at_chance(responses).all():
        most_suspect_first = np.lexsort((by_chance, top1, -wrong_share))
        orders["suspect"] = most_suspect_first[(wrong_share > top1)[most_suspect_first]]

    for kind, order in orders.items():
        for at, item in enumerate(order[: fields.shown].tolist()):
            yield {
                "dataset": source.dataset,
                "kind": kind,
                "rank": at + 1,
                "row": at // ACROSS,
                "column": at % ACROSS,
                **responses.items[["image_id", "label"]].iloc[item].to_dict(),
                PREDICTED: predicted(responses, item),
                **{name: float(values[item]) for name, values in measures.items()},
            }


def predicted(responses: Responses, item: int) -> str | None:
    """What the subjects predicted for one item, `cat (12), dog (3)`; None where only right or wrong is known."""
    if responses.pred is None:
        return None
    known = np.flatnonzero(~np.isnan(responses.correct[:, item]))
    names = [*responses.classes, "another class"]  # -1 takes the last
    counts = Counter(names[responses.pred[subject, item]] for subject in known).most_common()
    others = sum(n for _, n in counts[NAMED:])
    return ", ".join(f"{name} ({n})" for name, n in [*counts[:NAMED], *([("others", others)] if others else [])])
