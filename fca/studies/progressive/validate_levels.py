"""Are levels what they claim? Confidence by level, tests that it falls, and the images that contradict theirs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import page_trend_test

from fca.stats.adaptive import LEVELS
from fca.stats.intervals import RESAMPLES, cluster_draws, percentile_interval
from fca.stats.paired import holm
from fca.store import Store
from fca.studies.pictures import ACROSS, Pictures, pictures
from fca.studies.progressive.attribute_levels import verdict
from fca.studies.progressive.hierarchy import ENDS, PAPER
from fca.studies.progressive.levels import COLUMNS, Levelled, levelled_answers, levels_of, whole_sessions
from fca.types import FcaError, Table

# Images that contradict their level: easy ones that no model answers, hard ones that all answer with confidence.


KINDS = ("easy, missed by all", "hard, right and confident")
ALL = ["dataset", "kind", "rank", *COLUMNS, "top1", "confidence", "wanted", "models"]
SHOWN = ["dataset", "kind", "rank", "thumbnail", *ALL[3:], "of", "row", "column"]


def contradictions(source: Levelled) -> pd.DataFrame:
    """A line an image that contradicts its level, the most confident of each kind first.

    Easy: no model is right. Hard: all models are right, with a mean confidence of at least `wanted`, the median over
    the easy images of the same attribute.    top1, confidence: means over models.
    """
    about = source.items.assign(top1=source.correct.mean(axis=0), confidence=source.confidence.mean(axis=0))
    easy = about[about["level"] == "easy"]
    about["wanted"] = about["attribute"].map(easy.groupby("attribute")["confidence"].median()).astype(float)
    about = about.assign(dataset=source.dataset, models=len(source.models))
    missed = (about["level"] == "easy") & (about["top1"] == 0)
    sure = (about["level"] == "hard") & (about["top1"] == 1) & (about["confidence"] >= about["wanted"])
    frames = []
    for kind, chosen in zip(KINDS, (missed, sure), strict=True):
        part = about[chosen].sort_values(["confidence", "image_id"], ascending=[False, True])
        frames.append(part.assign(kind=kind, rank=np.arange(1, len(part) + 1)))
    return pd.concat(frames, ignore_index=True)[ALL]


def with_pictures(store: Store, found: pd.DataFrame, shown: int, fingerprint: str) -> tuple[pd.DataFrame, Pictures]:
    """The first `shown` of each kind with thumbnail, how many there are (`of`), and a place in a grid."""
    first = found[found["rank"] <= shown].reset_index(drop=True)
    drawn = pictures(store, first["image_id"].tolist(), fingerprint)
    row, column = np.divmod(first["rank"] - 1, ACROSS)
    of = first["kind"].map(found["kind"].value_counts()).astype("int64")
    thumbnail = pd.Series(drawn.thumbnails, dtype=object)
    return first.assign(row=row, column=column, of=of, thumbnail=thumbnail)[SHOWN], drawn


BINS = 10
BIN_COLUMNS = ["dataset", "level", "bin", "bin_low", "bin_high", "share", "share_min", "share_max", "top1", "models"]
TREND_COLUMNS = ["dataset", "by", "value", *LEVELS, "blocks", "page_l", "p", "p_holm"]
TREND_COLUMNS += [f"drop_{level}{end}" for level in LEVELS[1:] for end in ENDS] + ["verdict"]


@dataclass(frozen=True)
class ValidateLevels:
    """`analysis=validate_levels`; reads `predict` rows of full models on data sets with columns attribute and level.

    query: narrows the rows.    protocol: open (any class may be answered) or masked (those that the images have).
    shown: images of each kind of contradiction, with pictures.    seed: of the resamples.
    """

    query: str | None = None
    protocol: str = "open"
    shown: int = 24
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables confidence_levels, confidence_trends, contradictions_shown and contradictions (all of them)."""
        if self.shown < 1:
            raise FcaError("analysis.shown", self.shown, "1 or more", "raise it")
        parts: dict[str, list[pd.DataFrame]] = {name: [] for name in ABOUT}
        runs: set[str] = set()
        for every in levelled_answers(store, self.query, self.protocol):
            found = contradictions(every)
            shown, drawn = with_pictures(store, found, self.shown, every.fingerprint)
            whole = trends(whole_sessions(every), self.seed)
            for name, frame in zip(ABOUT, (by_bin(every), whole, shown, found), strict=True):
                parts[name].append(frame)
            runs |= {*every.runs, *([] if drawn.run_id is None else [drawn.run_id])}
        parameters = {**asdict(self), **METHOD}
        frames = {name: pd.concat(frames, ignore_index=True) for name, frames in parts.items()}
        return [Table(name, *ABOUT[name], frame, parameters, tuple(sorted(runs))) for name, frame in frames.items()]


METHOD = {
    "confidence": "the greatest of a model's class probabilities on an image; in trends and contradictions its mean "
    "over models",
    "share": "of the images of a level whose confidence is in this bin (the highest has both its ends): mean, least "
    "and greatest over models; top1: share of right answers among them, missing where there are none",
    "page": "Page's L (1963): one-sided test that mean confidence falls from easy to medium to hard within blocks; "
    "blocks are classes for an attribute, attributes for a class; p_holm: Holm's correction over all lines of one by",
    "drop": f"of mean confidence from the level before; 95 %: {RESAMPLES} bootstrap resamples of blocks",
    "verdict": "falls: p_holm below .05 and both drops' intervals above 0; trend: p_holm below .05 alone; rises: an "
    "interval below 0; else cannot tell",
    "contradictions": "easy, but no model is right; hard, but all are, on average as confident as of the median easy "
    "image of its attribute (column wanted) or more; the most confident first",
}
ABOUT = {
    "confidence_levels": (
        "Are models confident of easy images and not of hard ones?",
        f"{PAPER} section 5.1 and figure 6 (mean of the models), with the range over models",
    ),
    "confidence_trends": (
        "Does confidence fall from easy to medium to hard in every attribute and class?",
        f"{PAPER} section 5.1 looks at all attributes together; Page 1963 (J. Am. Stat. Assoc. 58:216)",
    ),
    "contradictions_shown": ("Which images contradict their level?", f"{PAPER} section 6 reviewed images by hand"),
    "contradictions": ("Which images contradict their level, all of them?", f"{PAPER} section 6, by what models say"),
}


def by_bin(source: Levelled) -> pd.DataFrame:
    """Share of the images of each level in ten equal bins of confidence."""
    at = np.minimum((source.confidence * BINS).astype(int), BINS - 1)
    lines = []
    for code, level in enumerate(LEVELS):
        there = levels_of(source.items) == code
        if not there.any():
            continue
        for number in range(BINS):
            inside = at[:, there] == number
            shares = inside.mean(axis=1)
            line = {"level": level, "bin": number, "bin_low": number / BINS, "bin_high": (number + 1) / BINS}
            line |= {"share": shares.mean(), "share_min": shares.min(), "share_max": shares.max()}
            right = source.correct[:, there][inside]
            lines.append(line | {"top1": right.mean() if len(right) else np.nan, "models": len(shares)})
    return pd.DataFrame(lines).assign(dataset=source.dataset)[BIN_COLUMNS]


def trends(source: Levelled, seed: int = 0) -> pd.DataFrame:
    """Mean confidence by level of every attribute and class, and whether it falls."""
    frames = []
    for by, block in (("attribute", "label"), ("label", "attribute")):
        about = source.items.assign(confidence=source.confidence.mean(axis=0))
        cells = about.pivot_table("confidence", [by, block], "level")[list(LEVELS)]
        named = [(str(value), part.to_numpy(dtype=float)) for value, part in cells.groupby(level=0)]
        frame = pd.DataFrame([{"value": value, **_trend(part, seed)} for value, part in named])
        tested = frame["p"].notna().to_numpy()
        frame["p_holm"] = np.nan
        frame.loc[tested, "p_holm"] = holm(frame.loc[tested, "p"].to_numpy())
        frame["verdict"] = [_verdict(line) for line in frame.to_dict("records")]
        frames.append(frame.assign(by="class" if by == "label" else by))
    return pd.concat(frames, ignore_index=True).assign(dataset=source.dataset)[TREND_COLUMNS]


def _trend(cells: Float[np.ndarray, "blocks 3"], seed: int) -> dict[str, Any]:
    """One attribute or class: its level means, Page's test and the interval of each drop."""
    line: dict[str, Any] = dict(zip(LEVELS, cells.mean(axis=0).tolist(), strict=True))
    line |= {"blocks": len(cells), "page_l": np.nan, "p": np.nan}
    several = len(cells) > 1
    if several:
        found = page_trend_test(cells, predicted_ranks=[3, 2, 1])
        line |= {"page_l": float(found.statistic), "p": float(found.pvalue)}
    drops = cells[:, :-1] - cells[:, 1:]
    drawn = cluster_draws(len(cells), seed) / len(cells) @ drops
    for level, value, resampled in zip(LEVELS[1:], drops.mean(axis=0).tolist(), drawn.T, strict=True):
        ends = percentile_interval(resampled) if several else (np.nan, np.nan)
        line |= {f"drop_{level}{end}": part for end, part in zip(ENDS, (value, *ends), strict=True)}
    return line


def _verdict(line: dict[Any, Any]) -> str:
    steps = [verdict({f"drop{end}": line[f"drop_{level}{end}"] for end in ENDS}) for level in LEVELS[1:]]
    if "rises" in steps:
        return "rises"
    if not line["p_holm"] < 0.05:
        return "cannot tell"
    return "falls" if steps == ["falls", "falls"] else "trend"
