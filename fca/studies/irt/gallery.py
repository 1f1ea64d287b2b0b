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

CLASSES_NAMED = 3  # most frequent predicted classes, which the text about an image names

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
        DATASET,
        KIND,
        RANK,
        THUMBNAIL,
        IMAGE_ID,
        LABEL,
        PREDICTED,
        ITEM_TOP1,
        MODAL_WRONG_SHARE,
        DIFFICULTY,
        DISCRIMINATION,
        ROW,
        COLUMN,
    ),
)
METHOD = {
    "kind": "hardest, easiest: highest and lowest difficulty of the fit, each at most half of the images; suspect: "
    "images for which more subjects gave one and the same wrong class than the label, by the share of these, ties by "
    "few right responses; none where all subjects are at the level of chance",
    PREDICTED: f"classes and how many subjects predicted them, the {CLASSES_NAMED} most frequent by name",
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
        """Table gallery: a line for each image shown, with a thumbnail, for all data sets that can be fitted.

        The thumbnail is missing where the image is no longer available. Where the responses do not determine a spread
        of ability or difficulty, the fit takes it from the prior (not estimable); the table's parameters have a note on
        each such data set. Raises FcaError for `shown` below 1, and if no data set can be
        fitted.
        """
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")

        runs: set[str] = set()
        frames: list[pd.DataFrame] = []
        not_estimable: dict[str, tuple[str, ...]] = {}
        for source in clean_with_subjects(store, self.query, self.responses):
            fit = fitted(source, self.model, compat=None, seed=self.seed)
            if fit.not_estimable:
                not_estimable[source.dataset] = fit.not_estimable

            frame = GALLERY.frame(_gallery_lines(source, fit, self))
            thumbnails = pictures(store, frame["image_id"].tolist(), source.fingerprint)
            frames.append(frame.assign(thumbnail=pd.Series(thumbnails.thumbnails, dtype="object")))
            runs.update(source.runs)
            if thumbnails.run_id:  # the run that the pictures come from
                runs.add(thumbnails.run_id)

        parameters = {**asdict(self), **METHOD, **priors_noted(not_estimable)}
        return [GALLERY.table(pd.concat(frames, ignore_index=True), parameters, sorted(runs))]


def _gallery_lines(source: DatasetResponses, fit: IrtFit, analysis: Gallery) -> Iterator[dict[str, Any]]:
    """Lines of table gallery for one data set: the hardest, easiest and most suspect images.

    Each kind has at most `analysis.shown` images, ranked, with their row and column in the grid of the page.
    An image is suspect if more subjects predict one and the same wrong class than its label. Without predicted classes,
    or if all subjects are at the level of chance, there are no suspects. The caller adds the thumbnails.
    """
    responses = source.responses
    top1 = item_top1(responses.correct)  # share of subjects that are right, by item
    wrong_share = np.full(len(top1), np.nan)
    if responses.pred is not None:
        wrong_share = modal_wrong(responses.correct, responses.pred).share

    random_order = np.random.default_rng(analysis.seed).permutation(len(top1))  # of images that are equally hard
    half = max(1, len(top1) // 2)  # no image is both hardest and easiest, unless it is the only one
    hardest_first = np.lexsort((random_order, -fit.difficulty))
    items_by_kind = {"hardest": hardest_first[:half], "easiest": hardest_first[::-1][:half]}
    if responses.pred is not None and not subjects_at_chance(responses).all():
        most_suspect_first = np.lexsort((random_order, top1, -wrong_share))  # ties by few right responses
        is_suspect = wrong_share > top1
        items_by_kind["suspect"] = most_suspect_first[is_suspect[most_suspect_first]]

    for kind, items in items_by_kind.items():
        for place, item in enumerate(items[: analysis.shown].tolist()):
            yield {
                "dataset": source.dataset,
                "kind": kind,
                "rank": place + 1,
                "row": place // ACROSS,
                "column": place % ACROSS,
                **responses.items[["image_id", "label"]].iloc[item].to_dict(),
                PREDICTED: predicted(responses, item),
                "top1": float(top1[item]),
                "difficulty": float(fit.difficulty[item]),
                "discrimination": float(fit.discrimination[item]),
                "modal_wrong_share": float(wrong_share[item]),
            }


def predicted(responses: Responses, item: int) -> str | None:
    """The classes that subjects predicted for one item, with the number of subjects: `cat (12), dog (3), others (2)`.

    The three most frequent classes are named. None if the predicted classes are not known, only right or wrong.
    item: position among the items.
    """
    if responses.pred is None:
        return None

    responding = np.flatnonzero(~np.isnan(responses.correct[:, item]))
    names = [*responses.classes, "another class"]  # a prediction of -1, a class not in the list, takes the last name
    counts = Counter(names[responses.pred[subject, item]] for subject in responding).most_common()

    words = [f"{name} ({count})" for name, count in counts[:CLASSES_NAMED]]
    n_unnamed = sum(count for _, count in counts[CLASSES_NAMED:])
    if n_unnamed:
        words.append(f"others ({n_unnamed})")
    return ", ".join(words)
