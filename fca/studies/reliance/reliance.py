"""Does the model see the object or its surroundings? Accuracy, sensitivity and saliency (analysis=reliance)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import combinations, groupby
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from fca.report.pictures import data_uri, pictures, png_of
from fca.stats.chance import at_chance
from fca.stats.intervals import EVERYWHERE, FEWEST_DRAWS, FRACTION, SIGNED_FRACTION, interval_over, wilson
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.store.columns import ADAPTATION
from fca.studies.reliance.columns import MODEL_CHANCE
from fca.studies.reliance.metric_truth import METRIC, UNCONFIRMED, verdicts
from fca.studies.reliance.stats import reliance
from fca.subset import Groups, read_groups
from fca.tables.keys import Query, ResponseFiles
from fca.tables.predictions import Predictions, labels_of, predictions
from fca.tables.responses import read_responses
from fca.tables.rows import (
    apply_query,
    by_full_models,
    by_version,
    groups_by_columns,
    readable_rows,
    records,
    require_rows,
)
from fca.tables.table import (
    AT_CHANCE,
    DATASET,
    DROP,
    IMAGES,
    LABEL,
    MODEL,
    NOTE,
    PLACE,
    PROTOCOL,
    RANK,
    TOP1,
    TOP1_CLEAN,
    VALUE,
    TableSpec,
    filled,
)
from fca.types import Column, FcaError, Table, interval_columns
from fca.validation import Allowed

PAPER, RIVAL10 = "Moayeri, Singla & Feizi, 2022 (Hard ImageNet)", "Moayeri et al., 2022 (RIVAL10, arXiv:2201.10766)"
CLEAN, SALIENCY, MEAN = "clean", "saliency", "mean over models"
EXAMPLES = 4  # images that are shown under every change
_ONLY_SHAPE = "the file has only whether shape was chosen: not whether else texture or neither"
_WAYS = {"adaptation": "", "weights": "", "snapshot": "", "seed": "seed ", "input_size": "input ", "run": "run "}

_PROTOCOLS = {"open": "all classes of the model", "masked": "the data set's classes", "grouped": "groups of classes"}
ALLOWED_CLASSES = PROTOCOL.with_choices(_PROTOCOLS, filters=True)
CONDITION = Column("condition", str, "", "change of the images")
KEPT = Column("kept", float, ".1%", "share of the accuracy on clean images that is kept")
LOST = DROP.with_format("+.1%", "accuracy on clean images minus that on changed ones")
N_IMAGES = IMAGES.with_format(",")
N_CLASSES = Column("n_classes", int, ".0f", "classes that the mean is over")
LEFT_OUT = Column("left_out", int, ",", "images left out: no object, or nothing else, at input size")
CLASSES_OUT = Column("classes_left_out", int, ".0f", "classes left out: their objects nearly fill the images")
TRUST = Column("trust", str, "", "verdict on this metric where the cue is known (missing: not tested)")
RANGES = dict.fromkeys(("top1", "acc_foreground", "acc_background", "top1_clean", "ablated"), FRACTION) | {
    "drop": SIGNED_FRACTION,
    "rfs": SIGNED_FRACTION,
    "kept": (0.0, float("inf")),
}
COUNTED = (N_IMAGES, N_CLASSES, LEFT_OUT, CLASSES_OUT, TRUST)
KIND = Column("kind", str, "", "noise: gaussian (standard deviation) or l2 (norm at 224 pixels)")
LEVEL = Column("level", float, ".3~f", "level of the noise")
MATCHED = Column("area_matched", bool, "", "whether noise covers equal areas of object and surroundings")
ACC_FG = Column("acc_foreground", float, ".1%", "accuracy with noise in the object")
ACC_BG = Column("acc_background", float, ".1%", "accuracy with noise in the surroundings")
RFS = Column("rfs", float, "+.2f", "relative foreground sensitivity")
_METRICS = {"iou": "overlap (IoU) of map and object", "mass": "share of the map on the object"}
SALIENCY_METRIC = METRIC.with_format("", "metric of saliency").with_choices(
    _METRICS | {"density_gap": "mean of the map on minus off it"}
)
SALIENCY_VALUE = VALUE.with_format(".3f", "mean over classes")
ZERO = Column("zero", float, ".1%", "share of maps that are zero everywhere")
ABLATED = Column("ablated", float, ".1%", "accuracy without the object")
CLASS_RANK = RANK.with_format(".0f", "rank of the class, 1 leans most on its surroundings")
OTHER = Column("other", str, "", "other model")
RHO = Column("spearman", float, "+.2f", "rank correlation of the classes' kept accuracy")
_SUBJECTS = {"stored": "stored predictions", "network": "network, from a file", "person": "person, from a file"}
WHO = Column("who", str, "", "who decided", _SUBJECTS)
BIAS = Column("shape_bias", float, ".1%", "shape among the decisions for shape or texture")
DECISIONS = Column("decisions", int, ",", "decisions for shape or texture")
SHAPE = Column("shape_share", float, ".1%", "decisions for shape among all images")
ENDED = (TOP1, KEPT, LOST, ACC_FG, ACC_BG, RFS, SALIENCY_VALUE, TOP1_CLEAN, ABLATED, RHO, BIAS, SHAPE)


def _spec(about: tuple[str, str, str], *columns: Column) -> TableSpec:
    """A table (name, question, source) with these columns after data set and model; those of ENDED with intervals."""
    ended = (end for column in columns for end in (interval_columns(column) if column in ENDED else (column,)))
    return TableSpec(*about, (DATASET, MODEL, *ended))


ACCURACY = _spec(
    ("reliance_accuracy", "How often is the class predicted without its object?", f"{PAPER}, section 4.1, Figure 3"),
    *(ADAPTATION, ALLOWED_CLASSES, CONDITION, TOP1, KEPT, LOST, MODEL_CHANCE, AT_CHANCE, *COUNTED),
)
SENSITIVITY = _spec(
    ("reliance_rfs", "Does noise in the object cost more than noise around it?", f"{RIVAL10}; {PAPER}, section 4.2"),
    *(ADAPTATION, ALLOWED_CLASSES, KIND, LEVEL, MATCHED, ACC_FG, ACC_BG, RFS, MODEL_CHANCE, *COUNTED),
)
ALIGNMENT = _spec(
    ("reliance_saliency", "Is what decides the prediction on the object?", f"{PAPER}, section 4.3, Figure 6"),
    *(ADAPTATION, SALIENCY_METRIC, SALIENCY_VALUE, ZERO, *COUNTED),
)
BY_CLASS = _spec(
    ("reliance_classes", "Which classes lean on their surroundings?", f"{PAPER}, section 4.1, class by class"),
    *(ALLOWED_CLASSES, LABEL, TOP1_CLEAN, ABLATED, KEPT, CLASS_RANK, N_IMAGES, TRUST, NOTE),
)
STABILITY = _spec(
    (
        "class_stability",
        "Do models agree which classes lean on their surroundings?",
        "Spearman, 1904, rank correlation",
    ),
    *(ALLOWED_CLASSES, OTHER, RHO, N_CLASSES, TRUST),
)
SHOWN = _spec(
    ("reliance_examples", "What do the changed images look like?", f"{PAPER}, Figure 3"), CONDITION, LABEL, *PLACE
)
SHAPES = _spec(
    ("shape_bias", "Shape or texture: which is predicted in a conflict?", "Geirhos et al. 2019, arXiv:1811.12231"),
    *(WHO, BIAS, DECISIONS, SHAPE, N_IMAGES, NOTE),
)
# by experiments/hard_imagenet/rendered_study.sh, 54 networks at 48 pixels; saliency at layers of 6 x 6 places
UNCONFIRMED_ON_RENDERED = (
    "rfs/gaussian/0.125",
    "rfs/gaussian/0.125/area_matched",
    "rfs/gaussian/0.25/area_matched",
    "rfs/l2/30",
    "rfs/l2/30/area_matched",
    "rfs/l2/60/area_matched",
    "saliency/iou",
    "saliency/mass",
    "saliency/density_gap",
)
METHOD = {
    "accuracy": "mean over classes of the share of images predicted right, averaged over draws of noise",
    "images": "all conditions on the same images: with an object and surroundings at input size",
    "boxes": "gray_box and tile change an object's whole box: where that fills the input, nothing of the image is left",
    "intervals": f"95 %: {interval_over('classes')}, each with all its images; over=images, or below {FEWEST_DRAWS} "
    "classes: over images within each class, missing where one has a single image; shape and texture: Wilson's",
    "kept": f"of a class: missing with fewer than {FEWEST_DRAWS} clean images right; intervals over its images; a "
    "class that is predicted for any gray image keeps its accuracy too: trust is in orders of networks, not of classes",
}


class Seen(NamedTuple):
    """One model's results: columns of all its lines; by label and image, a column a condition or metric of saliency."""

    about: dict[str, Any]
    right: pd.DataFrame  # the share of a condition's draws that are right


@dataclass(frozen=True)
class Reliance:
    """`analysis=reliance`; reads full models' predictions of test images, clean and changed, and saliency maps."""

    tables: ClassVar = (ACCURACY, SENSITIVITY, ALIGNMENT, BY_CLASS, STABILITY, SHOWN, SHAPES)

    query: Query = None
    groups: Annotated[
        str | None,
        "a file of classes and groups, or the name of one (imagenet_16), for the grouped protocol (of kept logits)",
    ] = None
    measure: Annotated[str, "the change whose kept accuracy ranks the classes"] = "ablate/gray_box"
    over: Annotated[
        str,
        Allowed(choices=reliance.OVER),
        "what intervals are over: classes with all their images, or images within each class",
    ] = reliance.CLASSES
    max_mask_area: Annotated[
        float,
        Allowed(above=0, most=1),
        "a class whose masks cover more of its images, in the mean, is left out, and counted",
    ] = 0.9
    compat: Annotated[
        str | None,
        Allowed(choices=(reliance.RELEASED,)),
        "released: a relative foreground sensitivity of 0 where it is not defined",
    ] = None
    responses: Annotated[
        ResponseFiles, "files of decisions for shape, about images whose shape and texture conflict"
    ] = field(default_factory=list)
    unconfirmed: Annotated[
        list[str],
        "metrics that the test on rendered images did not confirm, e.g. rfs/l2/30; a test in the store "
        "itself counts before",
    ] = field(default_factory=lambda: list(UNCONFIRMED_ON_RENDERED))

    def __call__(self, store: Store) -> list[Table]:
        """All seven tables, some of which may have no lines. Raises FcaError where all would be empty."""
        rows, groups = _rows(store, self.query), read_groups(self.groups) if self.groups else None
        shapes = list(_shapes(store, rows[rows["shift"] == CLEAN], self.responses))
        read = {*rows.loc[rows["shift"] != CLEAN, "dataset"], *(line["dataset"] for line in shapes)}
        rows = rows[rows["dataset"].isin(read)]
        command = "fca run task=predict shift=reliance dataset=... model=..."
        require_rows(rows, "predictions of changed images", len(store.rows()), command)
        maps, changed = rows[rows["shift"] == SALIENCY], rows[rows["shift"] != SALIENCY]
        models = groups_by_columns(changed, [DATASET, MODEL, ADAPTATION])
        seen = [one for about, of in models for one in self._predicted(store, about, of, groups)]
        if groups and not any(one.about["protocol"] == "grouped" for one in seen):
            allowed = "groups of classes of a model whose logits are stored"
            raise FcaError("analysis.groups", self.groups, allowed, "name another file, or run with task.keep=logits")
        of_class = [line for one in (*seen, *_means(seen)) for line in self._by_class(one)]
        classes = pd.DataFrame(of_class, columns=list(map(str, BY_CLASS.columns))).astype({KEPT: float})
        classes[CLASS_RANK] = classes.groupby([DATASET, ALLOWED_CLASSES, MODEL])[KEPT].rank(
            ascending=False, method="min"
        )
        lines: Any = (
            [line for one in seen for line in self._accuracy(one)],
            [line for one in seen for line in self._sensitivity(one)],
            [line for row in records(maps) for line in self._alignment(store, row)],
            *(classes, self._stability(classes)),
            [line for _, of in groups_by_columns(changed, ["dataset"]) for line in _examples(store, of)],
            shapes,
        )
        found = verdicts(store).items()
        trust = {metric: f"{verdict} ({', '.join(cues)})" if cues else verdict for metric, (verdict, cues) in found}
        trust = trust or dict.fromkeys(self.unconfirmed, UNCONFIRMED)
        frames = [spec.frame(of) for spec, of in zip(self.tables, lines, strict=True)]
        for frame in (of for of in frames if TRUST in of):  # where lines name the metric
            frame[TRUST] = [trust.get(metric) for metric in frame[TRUST]]
        return filled(self.tables, frames, {**asdict(self), **METHOD}, rows["run_id"])

    def _predicted(self, store: Store, about: Any, rows: pd.DataFrame, groups: Groups | None) -> Iterator[Seen]:
        """The predictions of one model for one data set, by every protocol that its stored arrays allow."""
        masked = [run for run in rows["run_id"] if store.has_array(run, "mask_area")]
        found = [predictions(store, row) for row in records(rows) if masked]
        draws = defaultdict[Any, list[Any]](list)
        for condition, one in zip(rows["condition"], found, strict=False):
            for protocol, chance, right in _right(one, groups):
                draws[protocol, chance].append(pd.Series(right, name=condition, dtype=float))
        for (protocol, chance), of in draws.items():
            right = pd.DataFrame(of).groupby(level=0).mean().T
            if set(right) - {CLEAN}:
                right["mask_area"] = store.array(masked[0], "mask_area", lines=len(right))
                own = about | {"protocol": protocol, "chance": chance}
                yield self._usable(own, right, np.array(found[0].classes)[found[0].labels])

    def _usable(self, about: dict[str, Any], images: pd.DataFrame, labels: Any) -> Seen:
        """The images with an object and surroundings at input size, of classes whose objects do not fill them."""
        area = images.pop("mask_area").to_numpy()
        mean = pd.Series(area[area > 0]).groupby(labels[area > 0]).mean()
        large = mean.index[mean > self.max_mask_area]
        inside, both = ~np.isin(labels, large), (area > 0) & (area < 1)
        images.index = pd.MultiIndex.from_arrays([labels, images.index], names=["label", "image"])
        about |= {"left_out": int((inside & ~both).sum()), "classes_left_out": len(large)}
        return Seen(about, images[inside & both].dropna(how="all"))  # none: the class is in no group

    def _line(self, seen: Seen, metric: str, **of: tuple[Any, ...]) -> dict[str, Any]:
        """Columns, each a function of the means over classes under some conditions, with its interval."""
        right = seen.right[list({name: None for _, *used in of.values() for name in used})].dropna()
        code, labels = pd.factorize(right.index.get_level_values("label"))
        means = reliance.class_means(right.to_numpy().T, code, self.over)
        line = seen.about | {"images": len(right), "n_classes": len(labels), "trust": metric}
        for column, (function, *used) in of.items():
            conditions = map(list(right).index, used)
            line |= _ended(column, means.estimate(function, *conditions, within=RANGES.get(column, EVERYWHERE)))
        return line

    def _accuracy(self, seen: Seen) -> Iterator[dict[str, Any]]:
        for name in sorted(seen.right, key=lambda name: (name != CLEAN, name)):
            of: dict[str, Any] = {"top1": (np.positive, name)}
            if name != CLEAN and CLEAN in seen.right:
                of |= {"kept": (np.divide, name, CLEAN), "drop": (np.subtract, CLEAN, name)}
            line = self._line(seen, f"accuracy/{name}", **of) | {"condition": name}
            yield line | {"at_chance": at_chance(line["top1_low"], line["chance"])}

    def _sensitivity(self, seen: Seen) -> Iterator[dict[str, Any]]:
        rfs = partial(reliance.relative_foreground_sensitivity, compat=self.compat)
        for inside in (name for name in map(str, seen.right) if "/foreground/" in name):
            around, noise = inside.replace("/foreground/", "/background/"), inside.removeprefix("noise/foreground/")
            if around in seen.right:
                of = {"acc_foreground": (np.positive, inside), "acc_background": (np.positive, around)}
                kind, level, *matched = noise.split("/")
                about = {"kind": kind, "level": float(level), "area_matched": bool(matched)}
                yield self._line(seen, f"rfs/{noise}", **of, rfs=(rfs, inside, around)) | about

    def _alignment(self, store: Store, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        keys, labels = labels_of(store, row)
        labels = labels[np.isin(labels, list(row["classes"]))]
        names = (*SALIENCY_METRIC.choices, "zero", "mask_area")
        of = {name: store.array(row["run_id"], name, lines=len(labels)).astype(float) for name in names}
        about = {name: row[name] for name in ("dataset", "model", "adaptation")}
        seen = self._usable(about, pd.DataFrame(of), np.array(keys)[labels])
        for metric in (name for name in SALIENCY_METRIC.choices if seen.right[name].notna().any()):
            line = self._line(seen, f"saliency/{metric}", value=(np.positive, metric))
            yield line | {"metric": metric, "zero": seen.right["zero"].mean()}

    def _by_class(self, seen: Seen) -> Iterator[dict[str, Any]]:
        of = {"top1_clean": (np.positive, CLEAN), "ablated": (np.positive, self.measure)}
        for label, right in seen.right.groupby(level="label") if {CLEAN, self.measure} <= set(seen.right) else ():
            many = right[CLEAN].sum() >= FEWEST_DRAWS
            kept: Any = {"kept": (np.divide, self.measure, CLEAN)} if many else {}
            note = None if many else f"{right[CLEAN].sum():g} clean images right, {FEWEST_DRAWS} needed"
            line = self._line(seen._replace(right=right), f"accuracy/{self.measure}", **of, **kept)
            yield line | {"label": label, "note": note}

    def _stability(self, classes: pd.DataFrame) -> Iterator[dict[str, Any]]:
        """Every two models of a data set, by how alike they order its classes."""
        for about, part in groups_by_columns(classes[classes["model"] != MEAN], ["dataset", "protocol"]):
            wide = part.pivot_table(index="label", columns="model", values="kept", dropna=False)
            for first, second in combinations(wide, 2):
                about |= {"model": first, "other": second, "n_classes": len(wide[[first, second]].dropna())}
                rho = reliance.rank_stability(wide[first].to_numpy(), wide[second].to_numpy())
                yield about | _ended("spearman", rho) | {"trust": f"accuracy/{self.measure}"}


def _ended(name: str, found: Sequence[float]) -> dict[str, Any]:
    """A number and the ends of its interval, as a line has them."""
    return dict(zip(interval_columns(Column(name)), found, strict=True))


def _rows(store: Store, query: str | None) -> pd.DataFrame:
    """Predictions of full models that are clean or changed by masks, and saliency maps; without draws in `condition`.

    Where several networks have one name, `model` is with what differs: adaptation, weights and so on, see _WAYS.
    """
    rows = readable_rows(store, query)
    maps = (rows["task"] == SALIENCY) & (rows["split"] == "test")
    shift = rows["shift"].fillna("").where(~maps, SALIENCY)  # a map is one more condition of the same model
    wanted = maps | (by_full_models(rows) & shift.str.startswith((CLEAN, "ablate/", "noise/", "swap/")))
    kept = apply_query(rows[wanted], query)  # by what is stored
    rows = _of_training(rows).assign(shift=shift, condition=shift.str.replace(r"/draw\d+$", "", regex=True))
    [rows, _] = by_version(store, [rows.loc[kept.index]], rows[:0])
    for way, word in _WAYS.items():
        differ = rows.groupby([MODEL, DATASET] if way == "run" else MODEL)[way].transform("nunique", dropna=False) > 1
        rows[MODEL] += (", " + word + rows[way].astype("string")).where(differ).fillna("")
    twice = rows.duplicated([DATASET, MODEL, "shift"], keep=False)  # as maps of two layers
    return rows.assign(model=rows[MODEL] + (", run " + rows["run_id"]).where(twice, "")).sort_values("shift")


def _of_training(rows: pd.DataFrame) -> pd.DataFrame:
    """Column `run`, the training; a later run of its weights, which names it there, has its columns from it."""
    later = rows["weights"].astype("string").str.extract("^([0-9a-f]{12})/")[0]
    run = rows["run_id"].where(rows["task"] == "train", rows["parent"].fillna(later))
    rows = rows.assign(run=run, weights=rows["weights"].where(later.isna()))
    for name in ("adaptation", "weights", "seed"):
        rows[name] = rows[name].fillna(rows.groupby("run")[name].transform("first"))
    return rows


def _right(found: Predictions, groups: Groups | None) -> Iterator[tuple[str, float, Any]]:
    """Protocol, chance and which images are predicted right (NaN: their class is in no group)."""
    known, every = found.columns[found.columns >= 0], len(found.logit_classes)
    yield "open", 1 / every, found.right
    if found.store.has_array(found.run_id, "logits"):
        if len(known) < every:
            yield "masked", 1 / len(known), masked_answers(found.logits, known) == found.true
        code = groups.codes(found.logit_classes) if groups else np.array([-1])
        if n := len(set(code) - {-1}):
            yield "grouped", 1 / n, reliance.grouped_right(found.logits, code, found.true)


def _means(seen: Sequence[Seen]) -> Iterator[Seen]:
    """By data set and protocol, the mean over models of their results for the images and conditions that all share."""
    key = lambda one: (one.about["dataset"], one.about["protocol"])  # noqa: E731
    for _, alike in groupby(sorted(seen, key=key), key):
        of = list(alike)
        if len(of) > 1:
            mean: Any = sum(one.right for one in of) / len(of)
            yield Seen(of[0].about | {"model": MEAN}, mean.dropna(axis=1, how="all").dropna())


def _examples(store: Store, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The first image of each of the first classes, as it is and under ablations, swaps and a middle noise."""
    rows = rows[rows["model"] == rows["model"].mode()[0]]  # who has most of them
    kept = {row["condition"]: row for row in records(rows) if store.has_array(row["run_id"], "examples")}
    levels = sorted({float(name.split("/")[3]) for name in kept if "/gaussian/" in name}) or [0.0]
    middle = ["gaussian", f"{levels[len(levels) // 2]:g}"]
    shown = sorted(name for name in kept if not name.startswith("noise/") or name.split("/")[2:4] == middle)
    for row in [kept[name] for name in shown[:1]]:
        found, items = predictions(store, row), store.items(row["fingerprint"])
        first = np.unique(found.labels, return_index=True)[1][:EXAMPLES]
        ids = items.loc[items["split"] == row["split"], "image_id"].iloc[found.images[first]].tolist()
        about, clean = {"dataset": row["dataset"], "model": row["model"]}, pictures(store, ids, row["fingerprint"])
        for across, name in enumerate([CLEAN, *shown]):
            arrays = store.array(kept[name]["run_id"], "examples") if across else ()
            thumbnails = [data_uri(png_of(np.array(one))) for one in arrays] or clean.thumbnails
            for down, (at, thumbnail) in enumerate(zip(found.labels[first], thumbnails, strict=False)):
                place = {"condition": name, "label": found.classes[at], "row": down, "column": across}
                yield about | place | {"thumbnail": thumbnail}


def _shapes(store: Store, rows: pd.DataFrame, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Decisions for shape and texture where items have a class of each, and these differ; then those in files."""
    sets: dict[str, str] = {}  # image whose shape and texture differ -> its data set
    for row in records(rows):
        items = store.items(row["fingerprint"])
        if "texture_label" in items:
            found = predictions(store, row)
            items = items[items["split"] == row["split"]].iloc[found.images]
            texture = pd.Categorical(items["texture_label"], categories=list(found.classes)).codes
            of = (texture >= 0) & (texture != found.labels)
            shape, other = (int((found.predicted_labels == at)[of].sum()) for at in (found.labels, texture))
            sets |= {PurePath(name).stem: row["dataset"] for name in items["image_id"][of]}
            about = {"dataset": row["dataset"], "model": row["model"], "who": "stored"}
            shares = _share("shape_bias", shape, shape + other) | _share("shape_share", shape, int(of.sum()))
            yield about | shares | {"images": int(of.sum()), "decisions": shape + other}
    for file in files:
        read = read_responses(file)
        of = read.items["item"].map(lambda name: sets.get(PurePath(name.partition("|")[0]).stem))
        if of.isna().all():
            allowed = "decisions about images of a stored data set with a column texture_label"
            raise FcaError("analysis.responses", file, allowed, "run task=predict on that data set first")
        for subject, right in zip(read.subjects["subject"], read.correct[:, of.notna()], strict=True):
            who, n = "person" if subject.startswith("subject-") else "network", int((~np.isnan(right)).sum())
            about = {"dataset": of.dropna().iloc[0], "model": subject, "who": who, "images": n, "note": _ONLY_SHAPE}
            yield about | _share("shape_share", int(np.nansum(right)), n)


def _share(name: str, part: int, whole: int) -> dict[str, Any]:
    """A share and Wilson's interval of it; nothing of nothing."""
    return _ended(name, (part / whole, *wilson(part, whole))) if whole else {}
