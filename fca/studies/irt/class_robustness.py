"""Which classes break under which corruption, and which stay as they are while it grows (analysis=class_robustness)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Integer

from fca.stats.intervals import FEWEST_DRAWS, RESAMPLES, interval_method
from fca.store import Store
from fca.studies.irt.corruption_accuracy import SEVERITY_LEVELS, levels_in_words
from fca.studies.irt.difficulty_segments import (
    ALL_CLASSES,
    COMPAT_AS_PAPER,
    ITEMS,
    METHOD,
    QUARTER_NAMES,
    SEGMENT,
    Quartered,
    quartered,
)
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
MOST_SHOWN, ENDS = 20, 5  # with more classes, only the five most and the five least robust are drawn

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
        DATASET,
        CORRUPTION,
        MODE,
        LABEL,
        IMAGES_OF_CLASS,
        SEVERITIES,
        SEVERITY_LEVELS,
        *interval_columns(INSTABILITY),
        Column("robustness", float, ".3f", "score of robustness"),
        CLASS_RANK,
        VERDICT,
        Column("verdict_kept", float, ".0%", "share of bootstrap resamples with the same verdict"),
        RANK_WRITTEN,
        VERDICT_WRITTEN,
        *interval_columns(Column("trend", float, "+.3f", "change a severity step")),
        *interval_columns(Column("change", float, "+.3f", "change from clean images")),
        DIRECTION,
        AT_CHANCE,
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
        DATASET,
        CORRUPTION,
        MODE,
        Column(SUSCEPTIBLE, tuple, "", "least robust classes"),
        Column(ROBUST, tuple, "", "most robust classes"),
        AT_CHANCE,
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
ROBUSTNESS_METHOD = {
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
        CLASS_ROBUSTNESS,
        CLASS_ROBUSTNESS_SHOWN,
        ROBUST_CLASSES,
        CLASS_SEVERITY,
        BY_DIFFICULTY,
        BY_DISCRIMINATION,
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
        """Tables class_robustness, robust_classes and class_severity, and the lines of them that figures draw.

        Every corruption has its own fit of the responses to its images. The fitted values sort these images into
        quarters of difficulty and of discrimination. Where the responses do not determine a spread of ability or
        difficulty, the fit takes it from the prior (not estimable); the tables' parameters have a note on each of them.
        Corruptions with a single severity above 0 are left out, because nothing can vary over severities there.
        Raises FcaError for an unknown mode or compat, and where no corruption has two severities.
        """
        if self.mode not in MODES:
            raise FcaError("analysis.mode", self.mode, " or ".join(MODES), "change it")

        class_frames: list[pd.DataFrame] = []
        severity_frames: list[pd.DataFrame] = []
        left_out: list[str] = []
        not_estimable: dict[str, list[str]] = {}
        runs: set[str] = set()
        for corruption, gathered in shifted_responses(store, self.query):
            corrupted_severities = set(gathered.responses.items["severity"]) - {0}
            if len(corrupted_severities) < 2:
                left_out.append(f"{gathered.dataset} {corruption}: one severity")
                continue

            quartered_items = quartered(gathered, self.model, self.compat, self.seed)
            if quartered_items.not_estimable:
                not_estimable[f"{gathered.dataset} {corruption}"] = list(quartered_items.not_estimable)

            images = grid(gathered)
            keys = {"dataset": gathered.dataset, "corruption": corruption}
            all_subjects_at_chance = bool(subjects_at_chance(gathered.responses).all())
            class_frame = robustness_lines(images, quartered_items, self)
            class_frame = class_frame.assign(**keys, at_chance=all_subjects_at_chance)
            class_frames.append(CLASS_ROBUSTNESS.frame(class_frame))
            severity_frame = severity_lines(images, quartered_items).assign(**keys)
            severity_frames.append(CLASS_SEVERITY.frame(severity_frame))
            runs.update(gathered.runs)
            left_out += gathered.left_out

        if not class_frames:
            command = "fca run -m task=predict shift=corruption/all"
            reasons = "".join(f"; {reason}" for reason in left_out)
            value = f"none among the {len(store.rows())} stored rows{reasons}"
            raise FcaError("corruptions with two severities", value, "1 or more", f"make some with: {command}")

        classes = pd.concat(class_frames, ignore_index=True)
        severities = pd.concat(severity_frames, ignore_index=True)
        frames = (  # in the order of `tables`
            classes,
            shown_classes(classes),
            named_classes(classes),
            severities,
            shown_severities(severities, classes, "difficulty"),
            shown_severities(severities, classes, "discrimination"),
        )
        parameters = {
            **asdict(self),
            **ROBUSTNESS_METHOD,
            "left_out": "; ".join(dict.fromkeys(left_out)) or None,
            **priors_noted(not_estimable),
        }
        return [spec.table(frame, parameters, sorted(runs)) for spec, frame in zip(self.tables, frames, strict=True)]


class Grid(NamedTuple):
    """The images with a label and an item at every severity."""

    keys: list[str]
    label: Integer[np.ndarray, " images"]  # position in keys
    severity: Integer[np.ndarray, " severities"]  # ascending; 0 = clean
    item: Integer[np.ndarray, "images severities"]  # position among the fit's items


def grid(gathered: DatasetResponses) -> Grid:
    """Arrange the items of one corruption by image and severity: an item is an image at one severity.

    In the result, `item` (images x severities) has the position of each item among all items of the responses, and
    `label` has the class of each image, as a position in `keys`, the names of the classes.
    Images without a label, and images that lack an item at some severity, are left out.

    >>> from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a@corruption/fog/1", "b", "a", "b@corruption/fog/1"], ["x", "y", "x", "y"])
    >>> responses = Responses(np.ones((1, 4)), frame_of_subjects(["m"]), items)
    >>> grid(DatasetResponses("zoo", None, responses, ())).item
    array([[2, 0],
           [1, 3]])
    """
    items = gathered.responses.items.reset_index(drop=True)
    with_label = items[items["label"].notna()]
    positions = with_label.assign(position=with_label.index)
    # images x severities, with the position of the item; images that lack a severity are dropped
    item_by_severity = positions.pivot_table(index="image_id", columns="severity", values="position").dropna()

    label_of_image = with_label.drop_duplicates("image_id").set_index("image_id")["label"]
    class_of_image, class_names = pd.factorize(label_of_image.loc[item_by_severity.index], sort=True)
    return Grid(
        keys=list(class_names),
        label=class_of_image,
        severity=item_by_severity.columns.to_numpy(dtype=np.int64),
        item=item_by_severity.to_numpy(dtype=np.int64),
    )


def robustness_lines(images: Grid, quartered_items: Quartered, analysis: ClassRobustness) -> pd.DataFrame:
    """Lines of table class_robustness for one corruption, without the data set, corruption and at_chance.

    Each class has its instability (standard deviation over severities), rank, verdict and trend over the severities
    above 0, and its change from the clean images (severity 0) to the mean over the severities above 0. A verdict is
    robust, susceptible or none. `analysis.mode` chooses what is measured:
    count:  instability of the shares of a class's images in the four quarters of difficulty; trend and change of its
            mean expected success.
    mean_b: instability, trend and change of the class's mean difficulty.

    Robustness is minus instability: a class that changes less is more robust, as the paper (Sharma et al. 2023) defines
    the word. With analysis.compat it is plus instability, as the paper computes the score.

    images: the images with a label, and the position of the item of each at every severity.
    quartered_items: expected success (mean chance of a right response), difficulty and quarter of every item.
    """
    corrupted = images.item[:, images.severity > 0]  # images x severities
    severity = images.severity[images.severity > 0].astype(float)
    # `value` of each item is for trend and change. `parts` (images x severities x parts) are for instability: in mode
    # count a 1 for the quarter of difficulty that an image is in and 0 for the other three, in mean_b its difficulty
    value, parts = _measured_values(quartered_items, corrupted, analysis.mode)
    clean = value[images.item[:, 0]] if images.severity[0] == 0 else None  # severities ascend
    # instability, trend and change of each class with intervals; `resampled`: instability in bootstrap resamples
    measures = segments.class_robustness(parts, value[corrupted], images.label, severity, clean, analysis.seed)

    sign = 1.0 if analysis.compat == COMPAT_AS_PAPER else -1.0
    robustness = sign * measures.instability
    n_images = np.bincount(images.label)
    # the share of the resamples whose robustness gives the class the same verdict
    share_with_same_verdict = segments.verdict_kept(robustness, sign * measures.resampled)
    measure_columns = {name: values for name, values in measures._asdict().items() if name != "resampled"}
    # expected success rises where a class becomes easier, difficulty falls
    sign_of_easier = 1.0 if analysis.mode == "count" else -1.0
    columns: dict[str, Any] = {
        "mode": analysis.mode,
        "label": images.keys,
        "images": n_images,
        **measure_columns,
        "severities": len(severity),
        SEVERITY_LEVELS: levels_in_words(severity.tolist()),
        "robustness": robustness,
        "rank": segments.ranks(robustness),
        "verdict": segments.verdicts(robustness),
        # a bootstrap of few images (below FEWEST_DRAWS) does not show how stable the verdict is
        "verdict_kept": np.where(n_images < FEWEST_DRAWS, np.nan, share_with_same_verdict),
        # as the paper computes robustness (plus instability), whatever analysis.compat is, to compare both rankings
        RANK_WRITTEN: segments.ranks(measures.instability),
        VERDICT_WRITTEN: segments.verdicts(measures.instability),
        "direction": _directions(measures.change_low, measures.change_high, sign_of_easier),
    }
    return pd.DataFrame(columns)


def _directions(low: Float[np.ndarray, " classes"], high: Float[np.ndarray, " classes"], easier: float) -> np.ndarray:
    """Direction of each class's change by its interval: "harder", "easier", or "unclear" if the interval contains 0.

    None where there is no interval.
    low, high: ends of the interval, NaN where there is none.
    easier: the sign that a change to easier images has, 1 or -1.
    """
    low, high = np.sort(easier * np.stack([low, high]), axis=0)  # a sign of -1 swaps the ends
    words: Any = [None, "harder", "easier"]
    return np.select([np.isnan(low), high < 0, low > 0], words, "unclear")


def _measured_values(
    quartered_items: Quartered, corrupted: Integer[np.ndarray, "images severities"], mode: str
) -> tuple[PerItem, segments.Parts]:
    """What the measures of classes are computed from: a value of each item, and parts of each image at each severity.

    The value is for trend and change: expected success (mode "count") or difficulty ("mean_b").
    The parts (images x severities x parts) are for instability. In mode "count" there is one for each quarter of
    difficulty: 1 for the quarter that the image is in, else 0, so that their means are shares. In mode "mean_b" the
    difficulty is the only part.
    corrupted: position of the item of each image at each severity above 0.
    """
    if mode == "count":
        return quartered_items.success, segments.quarter_parts(quartered_items.quarter["difficulty"][corrupted])
    difficulty = quartered_items.difficulty
    return difficulty, difficulty[corrupted][..., None]


def named_classes(classes: pd.DataFrame) -> pd.DataFrame:
    """Lines of table robust_classes: the susceptible classes (least robust first), the robust ones (most robust first).

    There is one line for each data set, corruption and mode, as in Table 1 of the paper, with two tuples of classes:
    those with the verdict susceptible and those with the verdict robust.
    classes: the frame of class_robustness.
    """
    lines = []
    for (dataset, corruption, mode), lines_of_classes in classes.groupby(["dataset", "corruption", "mode"], sort=False):
        # most robust first (rank 1), without classes that have no verdict. The susceptible classes are reversed below,
        # so that the least robust comes first
        labels_by_verdict = lines_of_classes.sort_values("rank").groupby("verdict")["label"].agg(tuple)
        lines.append(
            {
                "dataset": dataset,
                "corruption": corruption,
                "mode": mode,
                SUSCEPTIBLE: labels_by_verdict.get(SUSCEPTIBLE, ())[::-1],
                ROBUST: labels_by_verdict.get(ROBUST, ()),
                AT_CHANCE: all_at_chance(lines_of_classes),
            }
        )
    return ROBUST_CLASSES.frame(lines)


def severity_lines(images: Grid, quartered_items: Quartered) -> pd.DataFrame:
    """Lines of table class_severity: how many images of each class are in each quarter at each severity (0 is clean).

    There is a line for each quarter of difficulty and for each quarter of discrimination (the latter only where items
    differ in it). The caller adds data set and corruption.
    images: the images with a label, and the position of the item of each at every severity.
    quartered_items: the quarter of every item, 0 to 3, by parameter.
    """
    frames = []
    for parameter, quarter in quartered_items.quarter.items():
        counts_by_severity = [
            segments.class_counts(quarter[items], images.label, len(images.keys)) for items in images.item.T
        ]
        # counts_by_severity is severities x classes x quarters (lowest first); each cell becomes a line
        levels = (images.severity, images.keys, QUARTER_NAMES[parameter])
        cells = pd.MultiIndex.from_product(levels, names=("severity", "label", "segment"))
        counts = pd.Series(np.ravel(counts_by_severity), cells, name="items")
        frames.append(counts.reset_index().assign(parameter=parameter))

    frame = pd.concat(frames, ignore_index=True)
    images_of_class = dict(zip(images.keys, np.bincount(images.label), strict=True))
    n_images = frame["label"].map(images_of_class)
    return frame.assign(images=n_images, share=frame["items"] / n_images)


def shown_classes(classes: pd.DataFrame, at_most: int = MOST_SHOWN) -> pd.DataFrame:
    """The classes that a figure has space for: all where there are few, else the five most and five least robust.

    classes: the frame of class_robustness. Each data set and corruption is treated separately, and its number of
    classes is added as the column `classes`.
    at_most: up to this number, all classes of a corruption are shown.
    """
    n_classes = classes.groupby(["dataset", "corruption"])["label"].transform("count")
    is_outermost = (classes["rank"] <= ENDS) | (classes["rank"] > n_classes - ENDS)
    return classes.assign(classes=n_classes)[is_outermost | (n_classes <= at_most)].reset_index(drop=True)


def shown_severities(severities: pd.DataFrame, classes: pd.DataFrame, parameter: str) -> pd.DataFrame:
    """The lines of class_severity that a figure draws, with each class's rank and verdict.

    These are the lines of the lowest and of the highest quarter by one parameter. Up to twelve classes of a corruption
    are all shown; of more, only the five most and the five least robust.
    severities, classes: the frames of class_severity and class_robustness.
    parameter: difficulty or discrimination.
    """
    keys = ["dataset", "corruption", "label"]
    verdicts = shown_classes(classes, at_most=2 * ENDS + 2)[[*keys, "rank", "verdict", "classes"]]
    outer_segments = (QUARTER_NAMES[parameter][0], QUARTER_NAMES[parameter][-1])
    is_shown = (severities["parameter"] == parameter) & severities["segment"].isin(outer_segments)
    return severities[is_shown].merge(verdicts, on=keys)
