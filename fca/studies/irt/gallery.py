"""The hardest, the easiest and the most suspect images of each data set, and what every model said to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.label_errors import item_top1, modal_wrong
from fca.store import Store
from fca.studies.answers import Gathered, clean_with_subjects
from fca.studies.irt.fits import fitted
from fca.studies.pictures import ACROSS, pictures
from fca.studies.responses import Responses
from fca.types import FcaError, Table

NAMED = 3  # classes that are named in what was said
COLUMNS = ["dataset", "kind", "rank", "thumbnail", "image_id", "label", "said", "top1", "modal_wrong_share"]
COLUMNS += ["difficulty", "discrimination", "row", "column"]


@dataclass(frozen=True)
class Gallery:
    """`analysis=gallery`; reads the answers of full models on clean test images, and files of answers.

    query: narrows the rows.    responses: files of answers, each one more data set.    shown: images of each kind.
    model: of item response theory, whose difficulty orders the images.    seed: of its fit, and of the order among
    images of equal difficulty (all that every model gets right).
    """

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    model: str = "2pl"
    shown: int = 24
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Table gallery; its pictures are those of `task=describe`, missing where that has not run."""
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")
        sources = clean_with_subjects(store, self.query, self.responses)
        runs = {run for source in sources for run in source.runs}
        frames = []
        for source in sources:
            frame = _of_source(source, self)
            found = pictures(store, frame["image_id"].tolist(), source.fingerprint)
            frames.append(frame.assign(thumbnail=pd.Series(found.thumbnails, dtype="object"))[COLUMNS])
            runs |= set() if found.run_id is None else {found.run_id}
        parameters = {**asdict(self), **METHOD}
        return [Table("gallery", *ABOUT, pd.concat(frames, ignore_index=True), parameters, tuple(sorted(runs)))]


METHOD = {
    "kind": "hardest, easiest: highest and lowest difficulty of the fit; suspect: highest share of subjects that gave "
    "one and the same wrong class, ties by few right answers",
    "said": f"answers and how many subjects gave them, the {NAMED} most frequent by name",
}
ABOUT = (
    "Which images are hardest, which easiest, which probably mislabelled, and what did the models say?",
    "Sharma et al., Do models see corruption as we see?, 2023, figures 6 and 7",
)


def _of_source(source: Gathered, asked: Gallery) -> pd.DataFrame:
    answers, fit = source.responses, fitted(source, asked.model, None, asked.seed)
    top1 = item_top1(answers.correct)
    facts = {"top1": top1, "difficulty": fit.difficulty, "discrimination": fit.discrimination}
    by_chance = np.random.default_rng(asked.seed).permutation(len(top1))
    orders = {"hardest": np.lexsort((by_chance, -fit.difficulty)), "easiest": np.lexsort((by_chance, fit.difficulty))}
    facts["modal_wrong_share"] = np.full(len(top1), np.nan)
    if answers.pred is not None:
        facts["modal_wrong_share"] = share = modal_wrong(answers.correct, answers.pred).share
        orders["suspect"] = np.lexsort((by_chance, top1, -share))
    lines = [line for kind, order in orders.items() for line in _lines(answers, facts, kind, order[: asked.shown])]
    return pd.DataFrame(lines).assign(dataset=source.dataset)


def _lines(
    answers: Responses, facts: dict[str, Float[np.ndarray, " items"]], kind: str, order: Integer[np.ndarray, " shown"]
) -> Iterator[dict[str, Any]]:
    """One line a picture, with its place in the grid."""
    image, label = (answers.items[name].to_numpy(dtype=object) for name in ("image_id", "label"))
    for at, item in enumerate(order.tolist()):
        about = {"image_id": image[item], "label": label[item], "said": said(answers, item)}
        measured = {name: float(values[item]) for name, values in facts.items()}
        yield {"kind": kind, "rank": at + 1, "row": at // ACROSS, "column": at % ACROSS, **about, **measured}


def said(answers: Responses, item: int) -> str | None:
    """What the subjects answered to one item, `cat 12, dog 3`; None where only right or wrong is known."""
    if answers.pred is None:
        return None
    asked = np.flatnonzero(~np.isnan(answers.correct[:, item]))
    names = [*answers.classes, "another class"]  # -1 takes the last
    counts = Counter(names[answers.pred[subject, item]] for subject in asked).most_common()
    told = [f"{name} {n}" for name, n in counts[:NAMED]]
    others = sum(n for _, n in counts[NAMED:])
    return ", ".join([*told, *([f"others {others}"] if others else [])])
