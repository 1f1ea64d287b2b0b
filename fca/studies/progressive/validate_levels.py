"""Are levels what they claim? Confidence by level, tests that it falls, and the images that contradict their level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import page_trend_test, ttest_1samp

from fca.allowed import Allowed
from fca.report.pictures import ACROSS, Pictures, pictures
from fca.stats.comparison import holm
from fca.stats.intervals import interval_over
from fca.store import Store
from fca.studies.progressive.attribute_levels import FALLS, RISES, UNCLEAR, verdict
from fca.studies.progressive.levels import (
    BY_LEVEL,
    ITEM,
    LEVEL,
    PAPER,
    SHARE,
    ByLevel,
    Line,
    OfLevels,
    cells,
    levels_of,
    mean_cells,
    responses_by_level,
    whole_sessions,
)
from fca.studies.progressive.stats.pool import LEVELS
from fca.tables.table import (
    COLUMN,
    DATASET,
    MODELS,
    P_HOLM,
    PICTURE_KIND,
    RANK,
    ROW,
    THUMBNAIL,
    TOP1,
    VERDICT,
    P,
    TableSpec,
    filled,
)
from fca.types import Column, FcaError, Table, with_interval

BINS = 10  # of confidence
TREND, UNTESTED = "trend", "not tested"

BIN = Column("bin", int, ".0f", "bin of confidence")
BIN_ENDS = tuple(Column(f"bin_{end}", float, ".0%", f"{end}er end of the bin") for end in ("low", "high"))
SHARE_OF_LEVEL = SHARE.with_format(".1%", "images of the level")
SHARE_MIN = Column("share_min", float, ".1%", "least share over models")
SHARE_MAX = Column("share_max", float, ".1%", "greatest share over models")
BY = Column("by", str, "", "whether the line is of an attribute or a class")
VALUE = Column("value", str, "", "attribute or class")
BLOCKS = Column("blocks", int, ".0f", "blocks of the test")
PAGE_L = Column("page_l", float, ".0f", "Page's L")
PAGE_P = P.with_format(".2g", "p value of Page's test")
P_RISES = tuple(
    Column(f"p_rise_{level}", float, ".2g", f"p value that confidence rises to {level}, after Holm's correction")
    for level in LEVELS[1:]
)
DROPS = tuple(Column(f"drop_{level}", float, "+.1%", f"confidence lost to {level}") for level in LEVELS[1:])
_VERDICTS = {
    FALLS: "falls at both steps",
    TREND: "falls overall, but not significantly at each step",
    RISES: "rises at a step",
    UNCLEAR: "does not change significantly",
    UNTESTED: "cannot be tested (a single class or attribute)",
}
TREND_VERDICT = VERDICT.with_format("", "change of confidence").with_choices(_VERDICTS)
_KINDS = {
    "easy, missed by all": "easy, but no model is right",
    "hard, right and confident": "hard, but all models are right and confident",
}
CONTRADICTION = PICTURE_KIND.with_format("", "contradiction").with_choices(_KINDS)
CONFIDENCE_RANK = RANK.with_format(".0f", "rank by confidence")
CONFIDENCE = Column("confidence", float, ".1%", "mean confidence")
WANTED = Column("wanted", float, ".1%", "median confidence of the attribute's easy images")
OF = Column("of", int, ".0f", "images that contradict their level so")

CONFIDENCE_LEVELS = TableSpec(
    "confidence_levels",
    "Are models confident of easy images and not of hard ones?",
    f"{PAPER} section 5.1 and figure 6 (mean of the models), with the range over models",
    (DATASET, LEVEL, BIN, *BIN_ENDS, SHARE_OF_LEVEL, SHARE_MIN, SHARE_MAX, TOP1, MODELS),
)
CONFIDENCE_TRENDS = TableSpec(
    "confidence_trends",
    "Does confidence fall from easy to medium to hard in every attribute and class?",
    f"{PAPER} section 5.1 looks at all attributes together; Page 1963 (J. Am. Stat. Assoc. 58:216)",
    (
        *(DATASET, BY, VALUE, *BY_LEVEL, BLOCKS, PAGE_L, PAGE_P, P_HOLM),
        *(end for drop in DROPS for end in with_interval(drop)),
        *(*P_RISES, TREND_VERDICT),
    ),
)
_ABOUT = (*ITEM, TOP1, CONFIDENCE, WANTED, MODELS)
CONTRADICTIONS_SHOWN = TableSpec(
    "contradictions_shown",
    "Which images contradict their level?",
    f"{PAPER} section 6 reviewed images by hand",
    (DATASET, CONTRADICTION, CONFIDENCE_RANK, THUMBNAIL, *_ABOUT, OF, ROW, COLUMN),
)
CONTRADICTIONS = TableSpec(
    "contradictions",
    "Which images contradict their level, all of them?",
    f"{PAPER} section 6, by what models predict",
    (DATASET, CONTRADICTION, CONFIDENCE_RANK, *_ABOUT),
)
METHOD = {
    "confidence": "the greatest of a model's class probabilities on an image; in trends and contradictions its mean "
    "over models",
    "share": "of the images of a level whose confidence is in this bin (the highest has both its ends): mean, least "
    "and greatest over models; top1: share of right predictions among them, missing where there are none",
    "page": "Page's L (1963): one-sided test that mean confidence falls from easy to medium to hard within blocks; "
    "blocks are classes for an attribute, attributes for a class; p_holm: Holm's correction over all lines of one by",
    "drop": f"of mean confidence from the level before; 95 %: {interval_over('blocks')}",
    "verdict": f"{FALLS}: p_holm below .05 and both drops' intervals above 0; {TREND}: p_holm below .05 alone; "
    f"{RISES}: at one step p_rise below .05 and the interval below 0; {UNTESTED}: a single block; "
    f"else {UNCLEAR}",
    "p_rise": "one-sided paired t over blocks that mean confidence rises at a step; Holm's correction over both steps "
    "of all lines of one by",
    "contradictions": "easy, but no model is right; hard, but all are, on average as confident as of the median easy "
    "image of its attribute (column wanted) or more; the most confident first",
}


@dataclass(frozen=True)
class ValidateLevels(OfLevels):
    """`analysis=validate_levels`."""

    tables: ClassVar = (CONFIDENCE_LEVELS, CONFIDENCE_TRENDS, CONTRADICTIONS_SHOWN, CONTRADICTIONS)

    shown: Annotated[int, Allowed(1), "images of each kind of contradiction, with pictures"] = 24

    def __call__(self, store: Store) -> list[Table]:
        """Tables confidence_levels, confidence_trends, contradictions_shown and contradictions (all of them)."""
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")
        parts: list[tuple[pd.DataFrame, ...]] = []
        runs: set[str] = set()
        for every in responses_by_level(store, self.query, self.protocol):
            found = contradictions(every)
            shown, drawn = with_pictures(store, found, self.shown, every.fingerprint)
            parts.append((by_bin(every), trends(whole_sessions(every)), shown, found))
            runs |= {*every.runs, *([] if drawn.run_id is None else [drawn.run_id])}
        frames = [pd.concat(frames, ignore_index=True) for frames in zip(*parts, strict=True)]
        return filled(self.tables, frames, asdict(self) | METHOD, runs)


def by_bin(source: ByLevel) -> pd.DataFrame:
    """Share of the images of each level in ten equal bins of confidence."""
    at = np.minimum((source.confidence * BINS).astype(int), BINS - 1)
    lines: list[Line] = []
    for code, level in enumerate(LEVELS):
        there = levels_of(source.items) == code
        for number in range(BINS) if there.any() else ():
            inside = at[:, there] == number
            shares, right = inside.mean(axis=1), source.correct[:, there][inside]
            line = cells((LEVEL, BIN, *BIN_ENDS), (level, number, number / BINS, (number + 1) / BINS))
            line |= {
                SHARE_OF_LEVEL: shares.mean(),
                SHARE_MIN: shares.min(),
                SHARE_MAX: shares.max(),
                MODELS: len(shares),
            }
            lines.append(line | {TOP1: right.mean() if len(right) else np.nan})
    return CONFIDENCE_LEVELS.frame(pd.DataFrame(lines).assign(dataset=source.dataset))


def trends(source: ByLevel) -> pd.DataFrame:
    """Mean confidence by level of every attribute and class, and whether it falls."""
    frames = []
    about = source.items.assign(confidence=source.confidence.mean(axis=0))
    for by, block in (("attribute", "label"), ("label", "attribute")):
        means = about.pivot_table("confidence", [by, block], "level")[list(LEVELS)]
        of_value = means.groupby(level=0)
        frame = pd.DataFrame([{VALUE: str(value), **_trend(part.to_numpy(float))} for value, part in of_value])
        frame[str(P_HOLM)] = _corrected(frame[PAGE_P].to_numpy())
        frame[list(map(str, P_RISES))] = _corrected(frame[list(P_RISES)].to_numpy())
        frame[str(TREND_VERDICT)] = [_verdict(line) for line in frame.to_dict("records")]
        frames.append(frame.assign(by="class" if by == "label" else by))
    return CONFIDENCE_TRENDS.frame(pd.concat(frames, ignore_index=True).assign(dataset=source.dataset))


def _corrected(p: Float[np.ndarray, "*tests"]) -> Float[np.ndarray, "*tests"]:
    """After Holm's correction over all tests that there are; NaN stays NaN."""
    found = np.full(p.shape, np.nan)
    found[~np.isnan(p)] = holm(p[~np.isnan(p)])
    return found


def _p_rise(drops: Float[np.ndarray, " blocks"]) -> float:
    """One-sided paired t that drops are below 0; NaN for one block."""
    if len(drops) < 2:
        return float("nan")
    if np.ptp(drops) < 1e-12:  # blocks are all alike: t is infinite, or there is no change
        return 0.0 if drops.mean() < -1e-12 else 1.0
    return float(ttest_1samp(drops, 0.0, alternative="less").pvalue)


def _trend(means: Float[np.ndarray, "blocks 3"]) -> Line:
    """One attribute or class: its level means, Page's test and the interval of each drop."""
    line = cells(BY_LEVEL, means.mean(axis=0).tolist())
    line |= {BLOCKS: len(means), PAGE_L: np.nan, PAGE_P: np.nan}
    if len(means) > 1:
        found = page_trend_test(means, predicted_ranks=[3, 2, 1])
        line |= {PAGE_L: float(found.statistic), PAGE_P: float(found.pvalue)}
    for drop, p, values in zip(DROPS, P_RISES, (means[:, :-1] - means[:, 1:]).T, strict=True):
        line |= mean_cells(drop, values) | {p: _p_rise(values)}
    return line


def _verdict(line: Mapping[Any, Any]) -> str:
    steps = [verdict(line[drop], line[drop.low], line[drop.high]) for drop in DROPS]
    if any(step == RISES and line[p] < 0.05 for step, p in zip(steps, P_RISES, strict=True)):
        return RISES
    if line[BLOCKS] < 2:
        return UNTESTED
    if not line[P_HOLM] < 0.05:
        return UNCLEAR
    return FALLS if steps == [FALLS, FALLS] else TREND


def contradictions(source: ByLevel) -> pd.DataFrame:
    """A line an image that contradicts its level, the most confident of each kind first.

    Easy: no model is right. Hard: all models are right, with a mean confidence of at least `wanted`, the median over
    the easy images of the same attribute.    top1, confidence: means over models.
    """
    about = source.items.assign(top1=source.correct.mean(axis=0), confidence=source.confidence.mean(axis=0))
    easy = about[about[LEVEL] == "easy"]
    wanted = about["attribute"].map(easy.groupby("attribute")["confidence"].median()).astype(float)
    about = about.assign(dataset=source.dataset, models=len(source.models), wanted=wanted)
    missed = (about[LEVEL] == "easy") & (about[TOP1] == 0)
    sure = (about[LEVEL] == "hard") & (about[TOP1] == 1) & (about[CONFIDENCE] >= about[WANTED])
    frames = []
    for kind, chosen in zip(CONTRADICTION.choices, (missed, sure), strict=True):
        part = about[chosen].sort_values([CONFIDENCE, "image_id"], ascending=[False, True])
        frames.append(part.assign(kind=kind, rank=np.arange(1, len(part) + 1)))
    return CONTRADICTIONS.frame(pd.concat(frames, ignore_index=True))


def with_pictures(store: Store, found: pd.DataFrame, shown: int, fingerprint: str) -> tuple[pd.DataFrame, Pictures]:
    """The first `shown` of each kind with thumbnail, how many there are (`of`), and a place in a grid."""
    first = found[found[CONFIDENCE_RANK] <= shown].reset_index(drop=True)
    drawn = pictures(store, first["image_id"].tolist(), fingerprint)
    row, column = np.divmod(first[CONFIDENCE_RANK] - 1, ACROSS)
    of = first[CONTRADICTION].map(found[CONTRADICTION].value_counts()).astype("int64")
    thumbnail = pd.Series(drawn.thumbnails, dtype=object)
    return CONTRADICTIONS_SHOWN.frame(first.assign(row=row, column=column, of=of, thumbnail=thumbnail)), drawn
