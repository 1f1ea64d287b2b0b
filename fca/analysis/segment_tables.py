"""The frames of analysis=difficulty_segments: subjects x segments, classes in the outer quarters, and what is drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from fca.analysis.responses import Gathered
from fca.analysis.segment_items import Quartered
from fca.stats.intervals import wilson
from fca.stats.segments import QUARTERS, SEGMENTS, class_counts, segment_shares

MODELS = ["dataset", "corruption", "severity", "subject", "model", "segment", "right", "n"]
MODELS += ["share", "share_low", "share_high"]
CLASSES = ["dataset", "parameter", "quarter", "label", "items", "images", "share", "share_low", "share_high"]
OUTER = {"top": QUARTERS - 1, "bottom": 0}  # the hardest or most discriminating; the easiest or least discriminating
DRAWN = 2400  # lines of the table of subjects in a page
SUBJECTS = (6, 24)  # drawn at least, at most
DRAWN_CLASSES = 20


class Place(NamedTuple):
    """Where items come from."""

    corruption: str
    severity: int  # 0 = clean


def places(gathered: Gathered) -> list[Place]:
    """All there are, clean first; a file may have several corruptions."""
    found = (
        gathered.responses.items[["severity", "corruption"]].drop_duplicates().sort_values(["corruption", "severity"])
    )
    pairs = zip(found["corruption"].tolist(), found["severity"].tolist(), strict=True)
    return sorted((Place(*pair) for pair in pairs), key=lambda at: at.severity > 0)


def subject_lines(gathered: Gathered, found: Quartered, corruption: str, severity: int) -> pd.DataFrame:
    """Every subject's share of right answers in each segment at one severity; none where it was asked nothing."""
    answers = gathered.responses
    own = ((answers.items["corruption"] == corruption) & (answers.items["severity"] == severity)).to_numpy()
    shares = segment_shares(answers.correct[:, own], found.quarter["difficulty"][own])
    subjects = answers.subjects.loc[answers.subjects.index.repeat(QUARTERS), ["subject", "model"]]
    columns = {name: part.ravel() for name, part in zip(("right", "n", *MODELS[-3:]), shares, strict=True)}
    lines = subjects.reset_index(drop=True).assign(**columns)
    lines["dataset"], lines["corruption"], lines["severity"] = gathered.dataset, corruption, severity
    lines["segment"] = np.tile(SEGMENTS, len(answers.subjects))
    return lines.loc[lines["n"] > 0, MODELS]


def class_lines(gathered: Gathered, found: Quartered) -> pd.DataFrame:
    """How many of each class's clean images are in the top and the bottom quarter; items without a label in none."""
    items = gathered.responses.items
    label, known = items["label"], (items["label"].notna() & (items["severity"] == 0)).to_numpy()
    code, keys = pd.factorize(label[known], sort=True)
    lines = []
    for parameter, quarter in found.quarter.items():
        counts = class_counts(quarter[known], code, len(keys))
        for name, column in OUTER.items():
            for key, own in zip(keys, counts, strict=True):
                inside, images = int(own[column]), int(own.sum())
                share = (inside / images, *wilson(inside, images))
                lines.append((gathered.dataset, parameter, name, key, inside, images, *share))
    return pd.DataFrame(lines, columns=CLASSES)


def shown_subjects(models: pd.DataFrame) -> pd.DataFrame:
    """Clean images and the highest severity of each corruption, for subjects spread evenly from best to worst.

    place: of a subject by its accuracy on clean images, 0 = best.    subjects: how many there are.
    """
    highest = models.groupby(["dataset", "corruption"])["severity"].transform("max")
    lines = models[models["severity"] == highest]
    panels = len(lines[["dataset", "corruption"]].drop_duplicates())
    most = int(np.clip(DRAWN // (QUARTERS * max(panels, 1)), *SUBJECTS))
    clean = models[models["severity"] == 0].groupby(["dataset", "subject"])[["right", "n"]].sum()
    shown = []
    for dataset, part in lines.groupby("dataset", sort=False):
        own = clean[clean.index.get_level_values("dataset") == dataset].droplevel("dataset")
        best_first = (own["right"] / own["n"]).sort_values(ascending=False, kind="stable").index
        ordered = list(dict.fromkeys([*best_first, *part["subject"]]))  # last who was asked shifted images only
        picked = np.unique(np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int))
        place = {ordered[at]: int(at) for at in picked}
        kept = part[part["subject"].isin(place)]
        shown.append(kept.assign(place=kept["subject"].map(place), subjects=len(ordered)))
    return pd.concat(shown, ignore_index=True) if shown else models.assign(place=None, subjects=None)


def shown_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """The classes whose share in the top quarter is furthest above and below that in the bottom quarter.

    difference: top minus bottom share.    classes: how many there are.
    """
    by = ["dataset", "parameter", "label"]
    wide = classes.pivot_table(index=by, columns="quarter", values="share", sort=False).reindex(columns=list(OUTER))
    difference = (wide["top"] - wide["bottom"]).rename("difference").reset_index()
    lines = classes.merge(difference, on=by, how="left")
    kept = []
    for _, part in difference.groupby(by[:2], sort=False):
        ordered = part.sort_values("difference", kind="stable")
        half = DRAWN_CLASSES // 2
        ends = ordered if len(ordered) <= DRAWN_CLASSES else pd.concat([ordered.head(half), ordered.tail(half)])
        kept.append(ends[by].assign(classes=len(ordered)))
    if not kept:
        return lines.assign(classes=None)
    return lines.merge(pd.concat(kept), on=by)
