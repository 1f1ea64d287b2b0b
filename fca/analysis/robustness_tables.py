"""The frames of analysis=class_robustness: classes by robustness, Table 1, counts by severity, and what is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.analysis.responses import Gathered
from fca.analysis.segment_items import NAMES, SEED, Quartered
from fca.stats.robustness import (
    ROBUST,
    SUSCEPTIBLE,
    Robustness,
    class_robustness,
    quarter_parts,
    ranks,
    verdict_kept,
    verdicts,
)
from fca.stats.segments import class_counts

MODES = ("count", "mean_b")
BY = ["dataset", "corruption"]
CLASSES = [*BY, "mode", "label", "images", "severities", "instability", "instability_low", "instability_high"]
CLASSES += ["robustness", "rank", "verdict", "verdict_kept", "trend", "trend_low", "trend_high"]
CLASSES += ["change", "change_low", "change_high", "direction"]
NAMED = [*BY, "mode", SUSCEPTIBLE, ROBUST]
SEVERITY = [*BY, "parameter", "segment", "label", "severity", "items", "images", "share"]
MANY, ENDS = 20, 5  # with more classes, so many of the most and of the least robust are drawn


@dataclass(frozen=True)
class Grid:
    """The images that were asked, with a label, at every severity. at: position of each among the fit's items."""

    keys: list[str]
    label: Integer[np.ndarray, " images"]  # position in keys
    severity: Integer[np.ndarray, " severities"]  # ascending; 0 = clean
    item: Integer[np.ndarray, "images severities"]


def grid(gathered: Gathered) -> Grid:
    """Items as images x severities.

    >>> from fca.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a@corruption/fog/1", "b", "a", "b@corruption/fog/1"], ["x", "y", "x", "y"])
    >>> answers = Responses(np.ones((1, 4)), frame_of_subjects(["m"]), items)
    >>> grid(Gathered("zoo", None, answers, ())).item
    array([[2, 0],
           [1, 3]])
    """
    items = gathered.responses.items.reset_index(drop=True)
    known = items[items["label"].notna()]
    wide = known.assign(at=known.index).pivot_table(index="image_id", columns="severity", values="at").dropna()
    label = known.drop_duplicates("image_id").set_index("image_id")["label"].loc[wide.index]
    code, keys = pd.factorize(label, sort=True)
    return Grid(list(keys), code, wide.columns.to_numpy(dtype=np.int64), wide.to_numpy(dtype=np.int64))


def robustness_lines(
    gathered: Gathered, found: Quartered, corruption: str, mode: str, compat: str | None, seed: int
) -> pd.DataFrame:
    """Every class with its instability, rank, verdict and trend over the severities above 0, and its change from 0."""
    cells = grid(gathered)
    at = cells.item[:, cells.severity > 0]
    severity = cells.severity[cells.severity > 0].astype(float)
    parts = quarter_parts(found.quarter["difficulty"][at]) if mode == "count" else found.difficulty[at][..., None]
    value: Float[np.ndarray, " items"] = found.success if mode == "count" else found.difficulty
    clean = value[cells.item[:, 0]] if cells.severity[0] == 0 else None
    scored = class_robustness(parts, value[at], cells.label, severity, clean, seed)
    sign = 1.0 if compat == SEED else -1.0  # as that paper writes it, a class that moves most is robust
    score = sign * scored.instability
    columns = {name: part for name, part in scored._asdict().items() if name != "resampled"}
    return pd.DataFrame(
        {
            "dataset": gathered.dataset,
            "corruption": corruption,
            "mode": mode,
            "label": cells.keys,
            "images": np.bincount(cells.label),
            "severities": len(severity),
            **columns,
            "robustness": score,
            "rank": ranks(score),
            "verdict": verdicts(score),
            "verdict_kept": verdict_kept(score, sign * scored.resampled),
            "direction": _directions(scored, 1.0 if mode == "count" else -1.0),
        }
    )[CLASSES]


def _directions(scored: Robustness, easier: float) -> list[str | None]:
    """Whether the corrupted images are harder or easier than the clean ones, or the interval of that holds 0.

    easier: the sign of a change to the easier.    None: no interval.
    """
    ends = np.sort(easier * np.stack([scored.change_low, scored.change_high]), axis=0).T
    return [
        None if np.isnan(low) else "harder" if high < 0 else "easier" if low > 0 else "unclear" for low, high in ends
    ]


def named_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """Table 1: the susceptible classes (least robust first) and the robust ones (most robust first)."""
    lines = []
    for key, part in classes.groupby([*BY, "mode"], sort=False):
        ordered = part.sort_values("rank")
        robust = tuple(ordered.loc[ordered["verdict"] == ROBUST, "label"])
        susceptible = tuple(ordered.loc[ordered["verdict"] == SUSCEPTIBLE, "label"])[::-1]
        lines.append((*key, susceptible, robust))
    return pd.DataFrame(lines, columns=NAMED)


def severity_lines(gathered: Gathered, found: Quartered, corruption: str) -> pd.DataFrame:
    """How many of each class's images are in every quarter at every severity, the clean one too."""
    cells = grid(gathered)
    images, classes = np.bincount(cells.label), len(cells.keys)
    frames = []
    for parameter, quarter in found.quarter.items():
        for severity, at in zip(cells.severity.tolist(), cells.item.T, strict=True):
            counts = class_counts(quarter[at], cells.label, classes)
            lines = pd.DataFrame({"segment": np.tile(NAMES[parameter], classes), "items": counts.ravel()})
            lines["label"], lines["images"] = np.repeat(cells.keys, counts.shape[1]), images.repeat(counts.shape[1])
            frames.append(lines.assign(parameter=parameter, severity=severity))
    frame = pd.concat(frames, ignore_index=True).assign(dataset=gathered.dataset, corruption=corruption)
    return frame.assign(share=frame["items"] / frame["images"])[SEVERITY]


def shown_classes(classes: pd.DataFrame, most: int = MANY) -> pd.DataFrame:
    """All classes where there are few; else the five most and the five least robust of each corruption.

    classes: how many there are.
    """
    counts = classes.groupby(BY)["label"].transform("count")
    ends = (classes["rank"] <= ENDS) | (classes["rank"] > counts - ENDS)
    return classes.assign(classes=counts)[ends | (counts <= most)].reset_index(drop=True)


def shown_severities(severities: pd.DataFrame, classes: pd.DataFrame, parameter: str) -> pd.DataFrame:
    """The outer segments by one parameter, for a dozen classes or the ends of more, with each class's verdict."""
    shown = shown_classes(classes, most=2 * ENDS + 2)[[*BY, "label", "rank", "verdict", "classes"]]
    outer = (NAMES[parameter][0], NAMES[parameter][-1])
    lines = severities[(severities["parameter"] == parameter) & severities["segment"].isin(outer)]
    return lines.merge(shown, on=[*BY, "label"])
