"""Are levels what they claim? Confidence by level, tests that it falls, and the images that contradict their level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import page_trend_test, ttest_1samp

from fca.report.pictures import ACROSS, Pictures, pictures
from fca.stats.comparison import holm
from fca.stats.intervals import interval_method
from fca.store import Store
from fca.studies.progressive.attribute_levels import FALLS, RISES, UNCLEAR, verdict
from fca.studies.progressive.levels import (
    BY_LEVEL,
    ITEM,
    LEVEL,
    PAPER,
    SHARE,
    LevelAnalysis,
    LevelResponses,
    Line,
    cells,
    levels_of,
    mean_cells,
    responses_by_level,
    with_complete_sessions,
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
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed

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
MEDIAN_EASY = Column("wanted", float, ".1%", "median confidence of the attribute's easy images")
NUMBER = Column("of", int, ".0f", "images that contradict their level so")

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
        DATASET,
        BY,
        VALUE,
        *BY_LEVEL,
        BLOCKS,
        PAGE_L,
        PAGE_P,
        P_HOLM,
        *interval_columns(DROPS[0]),
        *interval_columns(DROPS[1]),
        *P_RISES,
        TREND_VERDICT,
    ),
)
_IMAGE = (*ITEM, TOP1, CONFIDENCE, MEDIAN_EASY, MODELS)
CONTRADICTIONS_SHOWN = TableSpec(
    "contradictions_shown",
    "Which images contradict their level?",
    f"{PAPER} section 6 reviewed images by hand",
    (DATASET, CONTRADICTION, CONFIDENCE_RANK, THUMBNAIL, *_IMAGE, NUMBER, ROW, COLUMN),
)
CONTRADICTIONS = TableSpec(
    "contradictions",
    "Which images contradict their level, all of them?",
    f"{PAPER} section 6, by what models predict",
    (DATASET, CONTRADICTION, CONFIDENCE_RANK, *_IMAGE),
)
METHOD = {
    "confidence": "the greatest of a model's class probabilities on an image; in trends and contradictions its mean "
    "over models",
    "share": "of the images of a level whose confidence is in this bin (the highest has both its ends): mean, least "
    "and greatest over models; top1: share of right predictions among them, missing where there are none",
    "page": "Page's L (1963): one-sided test that mean confidence falls from easy to medium to hard within blocks; "
    "blocks are classes for an attribute, attributes for a class; p_holm: Holm's correction over all lines of one by",
    "drop": f"of mean confidence from the level before; 95 %: {interval_method('blocks')}",
    "verdict": f"{FALLS}: p_holm below .05 and both drops' intervals above 0; {TREND}: p_holm below .05 alone; "
    f"{RISES}: at one step p_rise below .05 and the interval below 0; {UNTESTED}: a single block; "
    f"else {UNCLEAR}",
    "p_rise": "one-sided paired t over blocks that mean confidence rises at a step; Holm's correction over both steps "
    "of all lines of one by",
    "contradictions": "easy, but no model is right; hard, but all are, on average as confident as of the median easy "
    "image of its attribute (column wanted) or more; the most confident first",
}


@dataclass(frozen=True)
class ValidateLevels(LevelAnalysis):
    """`analysis=validate_levels`."""

    tables: ClassVar = (CONFIDENCE_LEVELS, CONFIDENCE_TRENDS, CONTRADICTIONS_SHOWN, CONTRADICTIONS)

    shown: Annotated[int, Allowed(1), "images of each kind of contradiction, with pictures"] = 24

    def __call__(self, store: Store) -> list[Table]:
        """Tables confidence_levels, confidence_trends, contradictions_shown (with pictures) and contradictions (all).

        A contradiction is an easy image on which no model is right, or a hard one on which all are right and confident.
        Raises FcaError when the store has no predictions for images with attributes and levels.
        """
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")
        bins: list[pd.DataFrame] = []
        trends: list[pd.DataFrame] = []
        with_pictures: list[pd.DataFrame] = []
        all_contradictions: list[pd.DataFrame] = []
        runs: set[str] = set()
        for source in responses_by_level(store, self.query, self.protocol):
            contradictions = find_contradictions(source)
            with_thumbnails, stored_pictures = add_pictures(store, contradictions, self.shown, source.fingerprint)
            bins.append(confidence_bins(source))
            trends.append(confidence_trends(with_complete_sessions(source)))  # its tests need all levels of a session
            with_pictures.append(with_thumbnails)
            all_contradictions.append(contradictions)
            runs |= set(source.runs)
            if stored_pictures.run_id is not None:  # the run of task=describe that stored the thumbnails
                runs.add(stored_pictures.run_id)

        frames = [
            pd.concat(of_datasets, ignore_index=True)
            for of_datasets in (bins, trends, with_pictures, all_contradictions)
        ]
        # Each table has its lines, and keeps the options, the method in words and the ids of the runs that it read.
        return filled(self.tables, frames, asdict(self) | METHOD, runs)


def confidence_bins(source: LevelResponses) -> pd.DataFrame:
    """A line for each level and each of ten equal bins of confidence: the share of the level's images in the bin.

    The share is the mean over models; the smallest and the largest share of a model are beside it. top1 is the share of
    right predictions in the bin, over all models; NaN for an empty bin. Levels without images have no line.
    """
    # The bin of each prediction: models x images. The minimum puts a confidence of 1 into the last bin.
    bin_of = np.minimum((source.confidence * BINS).astype(int), BINS - 1)
    levels = levels_of(source.items)
    lines: list[Line] = []
    for code, level in enumerate(LEVELS):
        is_of_level = levels == code
        if not is_of_level.any():
            continue
        for number in range(BINS):
            is_inside = bin_of[:, is_of_level] == number  # models x images of the level
            shares = is_inside.mean(axis=1)
            correct = source.correct[:, is_of_level][is_inside]  # of each prediction in the bin, by any model
            line: Line = {
                LEVEL: level,
                BIN: number,
                **cells(BIN_ENDS, (number / BINS, (number + 1) / BINS)),
                SHARE_OF_LEVEL: shares.mean(),
                SHARE_MIN: shares.min(),
                SHARE_MAX: shares.max(),
                MODELS: len(shares),
                TOP1: correct.mean() if len(correct) else np.nan,
            }
            lines.append(line)
    return CONFIDENCE_LEVELS.frame(pd.DataFrame(lines).assign(dataset=source.dataset))


def confidence_trends(source: LevelResponses) -> pd.DataFrame:
    """A line for each attribute and each class: mean confidence by level, and tests of whether it falls.

    The tests compare levels within blocks: the classes of an attribute, the attributes of a class.
    """
    items = source.items.assign(confidence=source.confidence.mean(axis=0))  # mean over models
    frames = [
        _trends_by(items, "attribute", block="label").assign(by="attribute"),
        _trends_by(items, "label", block="attribute").assign(by="class"),
    ]
    return CONFIDENCE_TRENDS.frame(pd.concat(frames, ignore_index=True).assign(dataset=source.dataset))


def _trends_by(items: pd.DataFrame, column: str, block: str) -> pd.DataFrame:
    """A line for each attribute (or class), which tests whether confidence falls from easy to medium to hard.

    items:  a line for each image, with its mean confidence over models.
    column: `attribute` or `label` (the class): each of its values has a line.
    block:  the other of these two columns. Its values are the blocks of the tests: within each block the levels are
            compared.

    P values are corrected over all lines by Holm's method. P values of Page's test are corrected together, and
    those of a rise, at both steps, together. Undefined ones (of a single block) stay NaN and do not count.
    """
    means = items.pivot_table("confidence", [column, block], "level")[list(LEVELS)]  # (values, blocks) x levels
    lines: list[Line] = []
    for value, means_of_blocks in means.groupby(level=0):
        lines.append({VALUE: str(value), **_trend_cells(means_of_blocks.to_numpy(float))})

    frame = pd.DataFrame(lines)
    frame[str(P_HOLM)] = _holm_of_defined(frame[PAGE_P].to_numpy())
    p_rises = [str(p_rise) for p_rise in P_RISES]  # the columns of both steps, whose p values are replaced
    frame[p_rises] = _holm_of_defined(frame[p_rises].to_numpy())
    frame[str(TREND_VERDICT)] = [_verdict_on_trend(line) for line in frame.to_dict("records")]
    return frame


def _holm_of_defined(p: Float[np.ndarray, "*tests"]) -> Float[np.ndarray, "*tests"]:
    """P values after Holm's correction over all that are defined; NaN stays NaN."""
    is_defined = ~np.isnan(p)
    corrected = np.full(p.shape, np.nan)
    corrected[is_defined] = holm(p[is_defined])
    return corrected


def _p_of_rise(drops: Float[np.ndarray, " blocks"]) -> float:
    """P value of a one-sided paired t-test that the drops of confidence are below 0, so that it rises.

    NaN for a single block.
    """
    if len(drops) < 2:
        return float("nan")
    if np.ptp(drops) < 1e-12:  # all blocks are equal up to rounding: t would be infinite, or 0 / 0
        return 0.0 if drops.mean() < -1e-12 else 1.0
    return float(ttest_1samp(drops, 0.0, alternative="less").pvalue)


def _trend_cells(means: Float[np.ndarray, "blocks 3"]) -> Line:
    """The cells of one attribute or class: mean confidence by level, Page's test, both drops and their tests.

    The drops are from easy to medium and from medium to hard: means over blocks with their 95 % intervals. A small p
    value beside a drop speaks against it: confidence then rises significantly.

    means: mean confidence of each block at the levels easy, medium and hard. The blocks are the classes of an
           attribute, or the attributes of a class. With a single block the tests are NaN.
    """
    page_l, page_p = np.nan, np.nan
    if len(means) > 1:
        page = page_trend_test(means, predicted_ranks=[3, 2, 1])  # easy has the highest confidence
        page_l, page_p = float(page.statistic), float(page.pvalue)

    to_medium, to_hard = (means[:, :-1] - means[:, 1:]).T  # drops of each block
    return {
        **cells(BY_LEVEL, means.mean(axis=0).tolist()),
        BLOCKS: len(means),
        PAGE_L: page_l,
        PAGE_P: page_p,
        **mean_cells(DROPS[0], to_medium),
        P_RISES[0]: _p_of_rise(to_medium),
        **mean_cells(DROPS[1], to_hard),
        P_RISES[1]: _p_of_rise(to_hard),
    }


def _verdict_on_trend(line: Mapping[Any, Any]) -> str:
    """Whether confidence falls from easy to hard, by the tests of one line of confidence_trends at the 5 % level.

    The first of these that applies: RISES if it rises at a step, UNTESTED with a single block, UNCLEAR if Page's test
    is not significant, FALLS if the intervals of both drops are above 0, TREND otherwise.
    """
    steps = [verdict(line[drop], line[drop.low], line[drop.high]) for drop in DROPS]
    for step, p_rise in zip(steps, P_RISES, strict=True):
        if step == RISES and line[p_rise] < 0.05:
            return RISES
    if line[BLOCKS] < 2:
        return UNTESTED
    if not line[P_HOLM] < 0.05:  # of Page's test
        return UNCLEAR
    return FALLS if steps == [FALLS, FALLS] else TREND


def find_contradictions(source: LevelResponses) -> pd.DataFrame:
    """A line for each image that contradicts its level, in two kinds, the most confident image of each kind first.

    An easy image contradicts its level if no model is right. A hard image does if all models are right, and their mean
    confidence is at least as high as the median of the easy images of the same attribute (column `wanted`).
    Columns top1 and confidence are means over models; rank counts the images of a kind from 1.
    """
    images = source.items.assign(
        dataset=source.dataset,
        models=len(source.models),
        top1=source.correct.mean(axis=0),
        confidence=source.confidence.mean(axis=0),
    )
    is_easy = images["level"] == "easy"
    median_easy_confidence = images[is_easy].groupby("attribute")["confidence"].median()
    images = images.assign(wanted=images["attribute"].map(median_easy_confidence).astype(float))

    is_missed_by_all = is_easy & (images["top1"] == 0)
    is_confident = images["confidence"] >= images["wanted"]
    is_hard_and_confident = (images["level"] == "hard") & (images["top1"] == 1) & is_confident
    frames = []
    for kind, is_of_kind in zip(CONTRADICTION.choices, (is_missed_by_all, is_hard_and_confident), strict=True):
        # equally confident images are ordered by id, so that the order is always the same
        most_confident_first = images[is_of_kind].sort_values(["confidence", "image_id"], ascending=[False, True])
        ranks = np.arange(1, len(most_confident_first) + 1)
        frames.append(most_confident_first.assign(kind=kind, rank=ranks))
    return CONTRADICTIONS.frame(pd.concat(frames, ignore_index=True))


def add_pictures(
    store: Store, contradictions: pd.DataFrame, number: int, fingerprint: str
) -> tuple[pd.DataFrame, Pictures]:
    """The lines of contradictions_shown, which are the `number` most confident images of each kind, and their pictures.

    Each line has a thumbnail, its place (row, column) in a grid that is ACROSS pictures wide, and in `of` the number of
    all images of its kind. The pictures, as the second result, also name the run that stored them.

    contradictions: returned by `find_contradictions`.    fingerprint: identifies the data set of the images.
    """
    first = contradictions[contradictions[CONFIDENCE_RANK] <= number].reset_index(drop=True)
    stored_pictures = pictures(store, first["image_id"].tolist(), fingerprint)
    row, column = np.divmod(first[CONFIDENCE_RANK] - 1, ACROSS)  # ranks begin with 1
    number_of_kind = contradictions[CONTRADICTION].value_counts()
    frame = first.assign(
        row=row,
        column=column,
        of=first[CONTRADICTION].map(number_of_kind).astype("int64"),
        thumbnail=pd.Series(stored_pictures.thumbnails, dtype=object),
    )
    return CONTRADICTIONS_SHOWN.frame(frame), stored_pictures
