"""Which classes break under which corruption, and which stay as they are while it grows (analysis=class_robustness)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.intervals import FEWEST_DRAWS, RESAMPLES, interval_method
from fca.store import Store
from fca.studies.irt.corruption_accuracy import LEVELS, levels_in_words
from fca.studies.irt.difficulty_segments import ALL_CLASSES, ITEMS, METHOD, NAMES, SEED, SEGMENT, Quartered, quartered
from fca.studies.irt.fits import IMAGES_OF_CLASS, PAPER, PARAMETER, SHARE_OF_CLASS, Compat, IrtModel
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.not_estimable import priors_noted
from fca.studies.irt.stats import segments
from fca.studies.irt.stats.segments import ROBUST, SUSCEPTIBLE, PerItem
from fca.tables import table
from fca.tables.answers import DatasetResponses, subjects_at_chance
from fca.tables.keys import Query
from fca.tables.table import (
    AT_CHANCE,
    CORRUPTION,
    DATASET,
    LABEL,
    RANK,
    SEVERITIES,
    SEVERITY,
    TableSpec,
    all_at_chance,
)
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Seed

MODES = ("count", "mean_b")
MANY, ENDS = 20, 5  # with more classes, so many of the most and of the least robust are drawn

MODE = Column("mode", str, "", "what moves: shares of the class's images in segments (count) or its mean difficulty")
INSTABILITY = Column("instability", float, ".3f", "standard deviation over severities")
CLASS_RANK = RANK.with_format(".0f", "rank of the class, 1 is the most robust")
VERDICT = table.VERDICT.with_choices({SUSCEPTIBLE: SUSCEPTIBLE, ROBUST: ROBUST})
RANK_WRITTEN = Column("rank_as_written", int, ".0f", "rank by the paper's words: 1 has the highest deviation")
VERDICT_WRITTEN = Column("verdict_as_written", str, "", "verdict by the paper's words", dict(VERDICT.choices))
_MOVED = {"harder": "harder than clean", "easier": "easier than clean", "unclear": "not significantly different"}
DIRECTION = Column("direction", str, "", "corrupted against clean images", _MOVED)

CLASS_ROBUSTNESS = TableSpec(
    "class_robustness",
    "How steady is each class while a corruption grows, and which way does it move? (rank 1 = most robust)",
    f"{PAPER}, section 3.2, with the sign of the score turned: a class that moves less is more robust",
    (
        *(DATASET, CORRUPTION, MODE, LABEL, IMAGES_OF_CLASS, SEVERITIES, LEVELS),
        *(
            *interval_columns(INSTABILITY),
            Column("robustness", float, ".3f", "score of robustness"),
            CLASS_RANK,
            VERDICT,
        ),
        Column("verdict_kept", float, ".0%", "share of bootstrap resamples with the same verdict"),
        *(RANK_WRITTEN, VERDICT_WRITTEN),
        *interval_columns(Column("trend", float, "+.3f", "change a severity step")),
        *interval_columns(Column("change", float, "+.3f", "change from clean images")),
        *(DIRECTION, AT_CHANCE),
    ),
)
CLASS_ROBUSTNESS_SHOWN = TableSpec(
    "class_robustness_shown",
    "Which classes break under which corruption? (the most and the least robust)",
    f"{PAPER}, section 3.2, with the sign of the score turned",
    (*CLASS_ROBUSTNESS.columns, ALL_CLASSES),
)
ROBUST_CLASSES = TableSpec(
    "robust_classes",
    "Which classes are susceptible to a corruption, and which robust?",
    f"{PAPER}, Table 1",
    (
        *(DATASET, CORRUPTION, MODE, Column(SUSCEPTIBLE, tuple, "", "least robust classes")),
        *(Column(ROBUST, tuple, "", "most robust classes"), AT_CHANCE),
    ),
)
CLASS_SEVERITY = TableSpec(
    "class_severity",
    "How many images of each class are in which segment at every severity? (severity 0 = clean)",
    f"{PAPER}, Figures 5 and 8 to 10",
    (DATASET, CORRUPTION, PARAMETER, SEGMENT, LABEL, SEVERITY, ITEMS, IMAGES_OF_CLASS, SHARE_OF_CLASS),
)
BY_DIFFICULTY = TableSpec(
    "class_severity_difficulty",
    "Do easy images stay easy? (the easy and the hard segment)",
    f"{PAPER}, Figures 5 and 10",
    (*CLASS_SEVERITY.columns, CLASS_RANK, VERDICT, ALL_CLASSES),
)
BY_DISCRIMINATION = TableSpec(
    "class_severity_discrimination",
    "Do images still separate models? (the least and the most discriminating segment)",
    f"{PAPER}, Figures 8 and 9",
    BY_DIFFICULTY.columns,
)
STATED = {
    **METHOD,
    "instability": "standard deviation over the severities above 0 of the share of the class's images in a segment, "
    "averaged over segments; mode=mean_b: standard deviation of the class's mean difficulty b",
    "robustness": "-instability; compat=seed001: +instability, as written there",
    "as_written": "the paper contradicts itself: robustness is consistency over severities, the score is a standard "
    "deviation, and the most robust classes are those of a high score, the least consistent. rank and verdict follow "
    "the first (compat=seed001: the last), rank_as_written and verdict_as_written the last: the ends change places",
    "trend": "slope a severity step of the class's mean expected success (below 0: harder); mode=mean_b: of its mean "
    "difficulty b (above 0: harder)",
    "change": "of the same mean, from clean images to the mean over the severities above 0; only this shows a class "
    "that breaks at once and stays broken; direction: whether the interval of change leaves out 0",
    "intervals": "95 %, over the class's images; fit and cuts are held fixed, so they know nothing of other models; "
    f"trend and change: {interval_method('images')}; instability: {RESAMPLES} bootstrap resamples, corrected for what "
    f"sampling adds to a standard deviation, none of fewer than {FEWEST_DRAWS} images",
    "at_chance": "whether all subjects are at the level of chance on clean images",
    "verdict_kept": "share of those resamples, all classes at once, that give the class the same verdict; missing for "
    f"fewer than {FEWEST_DRAWS} images",
}


@dataclass(frozen=True)
class ClassRobustness:
    """`analysis=class_robustness`; reads full models' responses to clean and corrupted test images."""

    tables: ClassVar = (
        *(CLASS_ROBUSTNESS, CLASS_ROBUSTNESS_SHOWN, ROBUST_CLASSES),
        *(CLASS_SEVERITY, BY_DIFFICULTY, BY_DISCRIMINATION),
    )

    query: Query = None
    model: IrtModel = "2pl"
    compat: Annotated[
        Compat,
        "seed001: segments by raw difficulty, cut at each severity, robust = moves most; as in the "
        "paper with model=3pl-upper",
    ] = None
    mode: Annotated[
        str, "how a class is judged: count, by the shares of its images in the segments; mean_b, by its mean difficulty"
    ] = "count"
    seed: Annotated[Seed, "of the bootstrap, of the order of equal images, and of the fit under compat"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Tables class_robustness, robust_classes and class_severity, and the lines of them that are drawn.

        Raises FcaError for an unknown mode, and where no corruption has two severities.
        """
        if self.mode not in MODES:
            raise FcaError("analysis.mode", self.mode, " or ".join(MODES), "change it")
        robust, severe, left_out = [], [], []
        not_estimable: dict[str, list[str]] = {}
        runs: set[str] = set()
        for corruption, gathered in shifted_responses(store, self.query):
            if len(set(gathered.responses.items["severity"]) - {0}) < 2:
                left_out.append(f"{gathered.dataset} {corruption}: one severity")
                continue
            found = quartered(gathered, self.model, self.compat, self.seed)
            if found.not_estimable:
                not_estimable[f"{gathered.dataset} {corruption}"] = list(found.not_estimable)
            images, about = grid(gathered), {"dataset": gathered.dataset, "corruption": corruption}
            about_clean = about | {"at_chance": bool(subjects_at_chance(gathered.responses).all())}
            robust.append(CLASS_ROBUSTNESS.frame(robustness_lines(images, found, self).assign(**about_clean)))
            severe.append(CLASS_SEVERITY.frame(severity_lines(images, found).assign(**about)))
            runs.update(gathered.runs)
            left_out += gathered.left_out
        if not robust:
            command = "fca run -m task=predict shift=corruption/all"
            seen = f"none among the {len(store.rows())} stored rows" + "".join(f"; {why}" for why in left_out)
            raise FcaError("corruptions with two severities", seen, "1 or more", f"make some with: {command}")
        classes, severities = (pd.concat(parts, ignore_index=True) for parts in (robust, severe))
        frames = (
            *(classes, shown_classes(classes), named_classes(classes), severities),
            *(shown_severities(severities, classes, parameter) for parameter in NAMES),
        )
        parameters = {**asdict(self), **STATED, "left_out": "; ".join(dict.fromkeys(left_out)) or None}
        parameters |= priors_noted(not_estimable)
        return [spec.table(frame, parameters, sorted(runs)) for spec, frame in zip(self.tables, frames, strict=True)]


class Grid(NamedTuple):
    """The images with a label and an item at every severity."""

    keys: list[str]
    label: Integer[np.ndarray, " images"]  # position in keys
    severity: Integer[np.ndarray, " severities"]  # ascending; 0 = clean
    item: Integer[np.ndarray, "images severities"]  # position among the fit's items


def grid(gathered: DatasetResponses) -> Grid:
    """Items as images x severities.

    >>> from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a@corruption/fog/1", "b", "a", "b@corruption/fog/1"], ["x", "y", "x", "y"])
    >>> responses = Responses(np.ones((1, 4)), frame_of_subjects(["m"]), items)
    >>> grid(DatasetResponses("zoo", None, responses, ())).item
    array([[2, 0],
           [1, 3]])
    """
    items = gathered.responses.items.reset_index(drop=True)
    known = items[items["label"].notna()]
    wide = known.assign(at=known.index).pivot_table(index="image_id", columns="severity", values="at").dropna()
    label = known.drop_duplicates("image_id").set_index("image_id")["label"].loc[wide.index]
    code, keys = pd.factorize(label, sort=True)
    return Grid(list(keys), code, wide.columns.to_numpy(dtype=np.int64), wide.to_numpy(dtype=np.int64))


def robustness_lines(images: Grid, found: Quartered, how: ClassRobustness) -> pd.DataFrame:
    """Every class with its instability, rank, verdict and trend over the severities above 0, and its change from 0."""
    corrupted = images.item[:, images.severity > 0]
    severity = images.severity[images.severity > 0].astype(float)
    by_counts = how.mode == "count"
    if by_counts:
        value: PerItem = found.success
        parts = segments.quarter_parts(found.quarter["difficulty"][corrupted])
    else:
        value = found.difficulty
        parts = value[corrupted][..., None]
    clean = value[images.item[:, 0]] if images.severity[0] == 0 else None
    scored = segments.class_robustness(parts, value[corrupted], images.label, severity, clean, how.seed)

    sign = 1.0 if how.compat == SEED else -1.0  # as that paper writes it, a class that moves most is robust
    robustness = sign * scored.instability
    n_images = np.bincount(images.label)
    kept = segments.verdict_kept(robustness, sign * scored.resampled)
    measured = {name: values for name, values in scored._asdict().items() if name != "resampled"}
    columns: dict[str, Any] = {
        "mode": how.mode,
        "label": images.keys,
        "images": n_images,
        **measured,
        "severities": len(severity),
        LEVELS: levels_in_words(severity.tolist()),
        "robustness": robustness,
        "rank": segments.ranks(robustness),
        "verdict": segments.verdicts(robustness),
        "verdict_kept": np.where(n_images < FEWEST_DRAWS, np.nan, kept),
        RANK_WRITTEN: segments.ranks(scored.instability),
        VERDICT_WRITTEN: segments.verdicts(scored.instability),
        "direction": _directions(scored.change_low, scored.change_high, easier=1.0 if by_counts else -1.0),
    }
    return pd.DataFrame(columns)


def _directions(low: Float[np.ndarray, " classes"], high: Float[np.ndarray, " classes"], easier: float) -> np.ndarray:
    """What an interval of a change shows: harder, easier, "unclear" if it contains 0, None where there is none.

    easier: the sign of a change to easier images.
    """
    low, high = np.sort(easier * np.stack([low, high]), axis=0)
    words: Any = [None, "harder", "easier"]
    return np.select([np.isnan(low), high < 0, low > 0], words, "unclear")


def named_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """Table 1: the susceptible classes (least robust first) and the robust ones (most robust first)."""
    lines = []
    for key, part in classes.groupby(["dataset", "corruption", "mode"], sort=False):
        labels = part.sort_values("rank").groupby("verdict")["label"].agg(tuple)
        ends = {SUSCEPTIBLE: labels.get(SUSCEPTIBLE, ())[::-1], ROBUST: labels.get(ROBUST, ())}
        ends[AT_CHANCE] = all_at_chance(part)
        lines.append(dict(zip(ROBUST_CLASSES.columns, key, strict=False)) | ends)
    return ROBUST_CLASSES.frame(lines)


def severity_lines(images: Grid, found: Quartered) -> pd.DataFrame:
    """How many of each class's images are in every quarter at every severity, the clean one too."""
    frames = []
    for parameter, quarter in found.quarter.items():
        counts = [segments.class_counts(quarter[at], images.label, len(images.keys)) for at in images.item.T]
        values = (images.severity, images.keys, NAMES[parameter])
        cells = pd.MultiIndex.from_product(values, names=("severity", "label", "segment"))
        frames.append(pd.Series(np.ravel(counts), cells, name="items").reset_index().assign(parameter=parameter))
    frame = pd.concat(frames, ignore_index=True)
    in_class = frame["label"].map(dict(zip(images.keys, np.bincount(images.label), strict=True)))
    return frame.assign(images=in_class, share=frame["items"] / in_class)


def shown_classes(classes: pd.DataFrame, most: int = MANY) -> pd.DataFrame:
    """All classes where there are few; else the five most and the five least robust of each corruption."""
    counts = classes.groupby(["dataset", "corruption"])["label"].transform("count")
    ends = (classes["rank"] <= ENDS) | (classes["rank"] > counts - ENDS)
    return classes.assign(classes=counts)[ends | (counts <= most)].reset_index(drop=True)


def shown_severities(severities: pd.DataFrame, classes: pd.DataFrame, parameter: str) -> pd.DataFrame:
    """The outer segments by one parameter, for a dozen classes or the ends of more, with each class's verdict."""
    by = ["dataset", "corruption", "label"]
    shown = shown_classes(classes, most=2 * ENDS + 2)[[*by, "rank", "verdict", "classes"]]
    outer = (NAMES[parameter][0], NAMES[parameter][-1])
    lines = severities[(severities["parameter"] == parameter) & severities["segment"].isin(outer)]
    return lines.merge(shown, on=by)
