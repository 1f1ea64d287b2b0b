"""Which classes break under which corruption, and which stay as they are while it grows."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.intervals import RESAMPLES
from fca.stats.segments import (
    ROBUST,
    SUSCEPTIBLE,
    Robustness,
    class_counts,
    class_robustness,
    quarter_parts,
    ranks,
    verdict_kept,
    verdicts,
)
from fca.store import Store
from fca.studies.answers import Gathered, shifted_responses
from fca.studies.irt.difficulty_segments import METHOD, NAMES, PAPER, SEED, Quartered, quartered
from fca.types import FcaError, Table

# The frames of analysis=class_robustness: classes by robustness, Table 1, counts by severity, and what is drawn.


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

    >>> from fca.studies.responses import Responses, frame_of_items, frame_of_subjects
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


STATED = {
    **METHOD,
    "instability": "standard deviation over the severities above 0 of the share of the class's images in a segment, "
    "averaged over segments; mode=mean_b: standard deviation of the class's mean difficulty b",
    "robustness": "-instability; compat=seed001: +instability, as written there",
    "trend": "slope a severity step of the class's mean expected success (below 0: harder); mode=mean_b: of its mean "
    "difficulty b (above 0: harder)",
    "change": "of the same mean, from clean images to the mean over the severities above 0; a class that breaks at "
    "once and stays broken is steady, and only this tells it; direction: whether the interval of change leaves out 0",
    "intervals": f"95 %, {RESAMPLES} bootstrap resamples of the class's images; fit and cuts are held fixed, so they "
    "know nothing of other models; the instability's is corrected for what sampling adds to a standard deviation",
    "verdict_kept": "share of those resamples, all classes at once, that give the class the same verdict",
}
ABOUT = {  # name: question, source
    "class_robustness": (
        "How steady is each class while a corruption grows, and which way does it move? (rank 1 = most robust)",
        f"{PAPER}, section 3.2, with the sign of the score turned: a class that moves less is more robust",
    ),
    "class_robustness_shown": (
        "Which classes break under which corruption? (the most and the least robust)",
        f"{PAPER}, section 3.2, with the sign of the score turned",
    ),
    "robust_classes": ("Which classes are susceptible to a corruption, and which robust?", f"{PAPER}, Table 1"),
    "class_severity": (
        "How many images of each class are in which segment at every severity? (severity 0 = clean)",
        f"{PAPER}, Figures 5 and 8 to 10",
    ),
    "class_severity_difficulty": (
        "Do easy images stay easy? (the easy and the hard segment)",
        f"{PAPER}, Figures 5 and 10",
    ),
    "class_severity_discrimination": (
        "Do images still tell models apart? (the least and the most discriminating segment)",
        f"{PAPER}, Figures 8 and 9",
    ),
}


@dataclass(frozen=True)
class ClassRobustness:
    """`analysis=class_robustness`; reads full models' answers on clean and corrupted test images.

    query:   narrows the rows.    model: of item responses (1pl, 2pl, 3pl, 3pl-upper, 4pl), or auto.
    compat:  seed001 = segments by raw difficulty b, cut at each severity; sign of the score and fit as in that paper.
    mode:    count = by the shares of a class's images in the segments; mean_b = by its mean difficulty.
    seed:    of the bootstrap, of the order of equal images, and of the fit under compat.
    """

    query: str | None = None
    model: str = "2pl"
    compat: str | None = None
    mode: str = "count"
    seed: int = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables class_robustness, robust_classes and class_severity, and the lines of them that are drawn.

        Raises FcaError for an unknown mode, and where no corruption has two severities.
        """
        if self.mode not in MODES:
            raise FcaError("analysis.mode", self.mode, " or ".join(MODES), "change it")
        robust, severe, left_out = [], [], []
        runs: set[str] = set()
        for corruption, gathered in shifted_responses(store, self.query):
            if len(set(gathered.responses.items["severity"]) - {0}) < 2:
                left_out.append(f"{gathered.dataset} {corruption}: one severity")
                continue
            found = quartered(gathered, self.model, self.compat, self.seed)
            robust.append(robustness_lines(gathered, found, corruption, self.mode, self.compat, self.seed))
            severe.append(severity_lines(gathered, found, corruption))
            runs.update(gathered.runs)
            left_out += gathered.left_out
        if not robust:
            command = "fca run -m task=predict shift=corruption/all"
            seen = f"none among the {len(store.rows())} stored rows" + "".join(f"; {why}" for why in left_out)
            raise FcaError("corruptions with two severities", seen, "1 or more", f"make some with: {command}")
        frames = _frames(pd.concat(robust, ignore_index=True), pd.concat(severe, ignore_index=True))
        parameters = {**asdict(self), **STATED, "left_out": "; ".join(dict.fromkeys(left_out)) or None}
        return [Table(name, *ABOUT[name], frames[name], parameters, tuple(sorted(runs))) for name in ABOUT]


def _frames(classes: pd.DataFrame, severities: pd.DataFrame) -> dict[str, pd.DataFrame]:
    return {
        "class_robustness": classes,
        "class_robustness_shown": shown_classes(classes),
        "robust_classes": named_classes(classes),
        "class_severity": severities,
        "class_severity_difficulty": shown_severities(severities, classes, "difficulty"),
        "class_severity_discrimination": shown_severities(severities, classes, "discrimination"),
    }
