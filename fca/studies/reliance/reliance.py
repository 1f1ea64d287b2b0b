"""Does the model see the object or its surroundings? Accuracy, sensitivity and saliency (analysis=reliance)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from itertools import combinations
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from fca.allowed import Allowed, Seed
from fca.report.pictures import data_uri, pictures, png_of
from fca.stats import reliance
from fca.stats.intervals import FEWEST_DRAWS, RESAMPLES, wilson
from fca.stats.protocols import masked_answers
from fca.store import Store
from fca.store.columns import ADAPTATION
from fca.studies.answers import Predictions, _named, labels_of, predictions
from fca.studies.reliance.metric_truth import verdicts
from fca.studies.responses import read_responses
from fca.studies.rows import by_full_models, by_version, every_row, narrowed, parts, records, require
from fca.studies.table import DATASET, LABEL, MODEL, NOTE, TOP1, TableSpec, filled
from fca.subset import Groups, read_groups
from fca.types import Column, FcaError, Table, with_interval

PAPER, RIVAL10 = "Moayeri, Singla and Feizi 2022 (Hard ImageNet)", "Moayeri et al. 2022 (RIVAL10, arXiv:2201.10766)"
COMMAND = "fca run task=predict shift=reliance dataset=... model=..."
CLEAN, SALIENCY, FAMILIES = "clean", "saliency", ("ablate/", "noise/", "swap/")
MEAN = "mean over models"
EXAMPLES = 4  # images that are shown under every change
_DRAW = re.compile(r"/draw\d+")
_ONLY_SHAPE = "the file has only whether shape was chosen: not whether else texture or neither"

_PROTOCOLS = {"open": "all classes of the model", "masked": "the data set's classes", "grouped": "groups of classes"}
PROTOCOL = Column("protocol", str, "", "which classes a model may predict", _PROTOCOLS, filters=True)
CONDITION = Column("condition", str, "", "change of the images")
KEPT = Column("kept", float, ".1%", "share of the accuracy on clean images that is kept")
DROP = Column("drop", float, "+.1%", "accuracy on clean images minus that on changed ones")
CHANCE = Column("chance", float, ".1%", "accuracy of guessing one of the classes that the model may predict")
IMAGES = Column("images", int, ",", "images")
N_CLASSES = Column("n_classes", int, ".0f", "classes that the mean is over")
LEFT_OUT = Column("left_out", int, ",", "images left out: no object, or nothing else, at input size")
CLASSES_OUT = Column("classes_left_out", int, ".0f", "classes left out: their objects nearly fill the images")
TRUST = Column("trust", str, "", "verdict on this metric where the cue is known (missing: not tested)")
COUNTED = (IMAGES, N_CLASSES, LEFT_OUT, CLASSES_OUT, TRUST)
KIND = Column("kind", str, "", "noise", {"gaussian": "Gaussian (standard deviation)", "l2": "L2 (norm at 224 pixels)"})
LEVEL = Column("level", float, ".3~f", "level of the noise")
MATCHED = Column("area_matched", bool, "", "whether noise covers equal areas of object and surroundings")
ACC_FG = Column("acc_foreground", float, ".1%", "accuracy with noise in the object")
ACC_BG = Column("acc_background", float, ".1%", "accuracy with noise in the surroundings")
RFS = Column("rfs", float, "+.2f", "relative foreground sensitivity")
_METRICS = {"iou": "overlap (IoU) of map and object", "mass": "share of the map on the object"}
METRIC = Column("metric", str, "", "metric of saliency", _METRICS | {"density_gap": "mean of the map on minus off it"})
VALUE = Column("value", float, ".3f", "mean over classes")
ZERO = Column("zero", float, ".1%", "share of maps that are zero everywhere")
TOP1_CLEAN = Column("top1_clean", float, ".1%", "accuracy on clean images")
ABLATED = Column("ablated", float, ".1%", "accuracy without the object")
RANK = Column("rank", int, ".0f", "rank of the class, 1 leans most on its surroundings")
OTHER = Column("other", str, "", "other model")
RHO = Column("spearman", float, "+.2f", "rank correlation of the classes' kept accuracy")
PLACE = (Column("row", int, ".0f", "row in the figure"), Column("column", int, ".0f", "column in the figure"))
_SUBJECTS = {"stored": "stored predictions", "network": "network, from a file", "person": "person, from a file"}
WHO = Column("who", str, "", "who decided", _SUBJECTS)
BIAS = Column("shape_bias", float, ".1%", "shape among the decisions for shape or texture")
DECISIONS = Column("decisions", int, ",", "decisions for shape or texture")
SHAPE = Column("shape_share", float, ".1%", "decisions for shape among all images")
ENDED = (TOP1, KEPT, DROP, ACC_FG, ACC_BG, RFS, VALUE, TOP1_CLEAN, ABLATED, RHO, BIAS, SHAPE)


def _spec(about: tuple[str, str, str], *columns: Column) -> TableSpec:
    """A table (name, question, source) with these columns after data set and model; those of ENDED with intervals."""
    ended = (end for column in columns for end in (with_interval(column) if column in ENDED else (column,)))
    return TableSpec(*about, (DATASET, MODEL, *ended))


ACCURACY = _spec(
    ("reliance_accuracy", "How often is the class predicted without its object?", f"{PAPER}, section 4.1, Figure 3"),
    *(ADAPTATION, PROTOCOL, CONDITION, TOP1, KEPT, DROP, CHANCE, *COUNTED),
)
SENSITIVITY = _spec(
    ("reliance_rfs", "Does noise in the object cost more than noise around it?", f"{RIVAL10}; {PAPER}, section 4.2"),
    *(ADAPTATION, PROTOCOL, KIND, LEVEL, MATCHED, ACC_FG, ACC_BG, RFS, *COUNTED),
)
ALIGNMENT = _spec(
    ("reliance_saliency", "Is what decides the prediction on the object?", f"{PAPER}, section 4.3, Figure 6"),
    *(ADAPTATION, METRIC, VALUE, ZERO, *COUNTED),
)
BY_CLASS = _spec(
    ("reliance_classes", "Which classes lean on their surroundings?", f"{PAPER}, section 4.1, class by class"),
    *(PROTOCOL, LABEL, TOP1_CLEAN, ABLATED, KEPT, RANK, IMAGES, TRUST, NOTE),
)
STABILITY = _spec(
    ("class_stability", "Do models agree which classes lean on their surroundings?", "Spearman's rank correlation"),
    *(PROTOCOL, OTHER, RHO, N_CLASSES, TRUST),
)
SHOWN = _spec(
    ("reliance_examples", "What do the changed images look like?", f"{PAPER}, Figure 3"),
    *(CONDITION, LABEL, Column("thumbnail", str, "", "picture"), *PLACE),
)
SHAPES = _spec(
    (
        "shape_bias",
        "Shape or texture: which is predicted in a conflict?",
        "Geirhos et al. 2019, arXiv:1811.12231",
    ),
    *(WHO, BIAS, DECISIONS, SHAPE, IMAGES, NOTE),
)
METHOD = {
    "accuracy": "mean over classes of the share of images predicted right, averaged over draws of noise",
    "images": "all conditions on the same images: with an object and surroundings at input size",
    "intervals": f"95 %, {RESAMPLES} bootstrap resamples of classes, each with all its images; over=images, or below "
    f"{FEWEST_DRAWS} classes: of images within each class; shape and texture: Wilson's",
    "kept": f"of a class: missing with fewer than {FEWEST_DRAWS} clean images right; intervals over its images",
}


@dataclass(frozen=True)
class Reliance:
    """`analysis=reliance`; reads full models' predictions of test images, clean and changed, and saliency maps.

    query:   narrows the rows.    groups: a file of classes and groups, or the name of one, for the grouped protocol.
    measure: the change whose kept accuracy ranks the classes.    over: what is resampled, see fca.stats.reliance.
    max_mask_area: a class whose masks cover more of their images, in the mean, is left out.    seed: of the bootstrap.
    compat:  released = a sensitivity of 0 where it is not defined.    responses: files of decisions for shape.
    refuted: metrics that a test elsewhere refuted, e.g. rfs/gaussian/0.25; where the store has a test, that counts.
    """

    tables: ClassVar = (ACCURACY, SENSITIVITY, ALIGNMENT, BY_CLASS, STABILITY, SHOWN, SHAPES)

    query: str | None = None
    groups: str | None = None
    measure: str = "ablate/gray_box"
    over: Annotated[str, Allowed(choices=reliance.OVER)] = reliance.CLASSES
    max_mask_area: Annotated[float, Allowed(above=0, most=1)] = 0.9
    compat: Annotated[str | None, Allowed(choices=(reliance.RELEASED,))] = None
    responses: list[str] = field(default_factory=list)
    refuted: list[str] = field(default_factory=list)
    seed: Seed = 0

    def __call__(self, store: Store) -> list[Table]:
        """All seven tables, some of which may have no lines. Raises FcaError where all would be empty."""
        rows = _rows(store, self.query)
        groups, trust = read_groups(self.groups) if self.groups else None, self._verdicts(store)
        shapes = list(_shapes(store, rows[rows["condition"] == CLEAN], self.responses))
        rows = rows[rows["dataset"].isin(rows.loc[rows["condition"] != CLEAN, "dataset"])]
        maps, rows = rows[rows["condition"] == SALIENCY], rows[rows["condition"] != SALIENCY]
        require([*shapes, *maps.index, *rows.index], "predictions of changed images", len(store.rows()), COMMAND)
        seen = [one for _, of in parts(rows, ["dataset", "subject"]) for one in _seen(store, of, groups, self)]
        alike = defaultdict[Any, list[Seen]](list)
        for one in seen:
            alike[one.about["dataset"], one.about["protocol"]].append(one)
        means = [_mean(of) for of in alike.values() if len(of) > 1]
        classes = BY_CLASS.frame([line for one in (*seen, *means) for line in self._by_class(one, trust)])
        kept = classes.astype({"kept": float}).groupby(["dataset", "protocol", "model"])["kept"]
        classes["rank"] = kept.rank(ascending=False, method="min")
        lines = (
            [line for one in seen for line in self._accuracy(one, trust)],
            [line for one in seen for line in self._sensitivity(one, trust)],
            [line for row in records(maps) for line in self._alignment(store, row, trust)],
            *(classes, list(_stability(classes, self.seed))),
            [line for _, of in parts(rows, ["dataset"]) for line in _examples(store, of)],
            shapes,
        )
        used = [*rows["run_id"], *maps["run_id"], *(run for line in shapes if (run := line.pop("run", None)))]
        return filled(self.tables, lines, {**asdict(self), **METHOD}, used)

    def _verdicts(self, store: Store) -> dict[str, str]:
        """Metric -> verdict, with the cues that it fails for; from the store, or else as recorded."""
        found = verdicts(store).items()
        words = {name: f"{verdict} ({', '.join(kinds)})" if kinds else verdict for name, (verdict, kinds) in found}
        return words or dict.fromkeys(self.refuted, "refuted")

    def _numbers(self, seen: Seen, **of: tuple[Any, ...]) -> dict[str, Any]:
        """A line: column -> its function of class means under some conditions, with its interval."""
        names = list(dict.fromkeys(name for _, *used in of.values() for name in used))
        values = np.stack([seen.right[name] for name in names])
        there = ~np.isnan(values).any(axis=0)
        means = reliance.class_means(values[:, there], seen.labels[there], self.over, self.seed)
        line = seen.about | {"images": int(there.sum()), "n_classes": len(np.unique(seen.labels[there]))}
        for column, (function, *used) in of.items():
            line |= _ended(column, means.estimate(function, *map(names.index, used)))
        return line

    def _accuracy(self, seen: Seen, trust: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        for name in sorted(seen.right, key=lambda name: (name != CLEAN, name)):
            other: Any = {"kept": (_kept, CLEAN, name), "drop": (np.subtract, CLEAN, name)}
            of = other if name != CLEAN and CLEAN in seen.right else {}
            about = {"condition": name, "chance": seen.chance, "trust": trust.get(f"accuracy/{name}")}
            yield self._numbers(seen, top1=(np.positive, name), **of) | about

    def _sensitivity(self, seen: Seen, trust: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        of = partial(reliance.relative_foreground_sensitivity, compat=self.compat)
        for name in sorted(seen.right):
            other = name.replace("/foreground/", "/background/")
            if other != name and other in seen.right:
                _, _, kind, level, *more = name.split("/")
                about = {"kind": kind, "level": float(level), "area_matched": "area_matched" in more}
                trusted = trust.get("/".join(["rfs", kind, level, *more]))
                both = {"acc_foreground": (np.positive, name), "acc_background": (np.positive, other)}
                yield self._numbers(seen, **both, rfs=(of, name, other)) | about | {"trust": trusted}

    def _alignment(self, store: Store, row: Mapping[str, Any], trust: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        keys, labels = labels_of(store, row)
        labels = labels[np.isin(labels, list(row["classes"]))]
        names = (*METRIC.choices, "zero", "mask_area")
        array = {name: np.array(store.array(row["run_id"], name, lines=len(labels)), float) for name in names}
        usable, counted = comparable(array["mask_area"], labels, self.max_mask_area)
        about = {"dataset": row["dataset"], "model": row["subject"], "adaptation": row["adaptation"], **counted}
        at = np.flatnonzero(usable)
        seen = Seen(about, 0.0, {name: of[at] for name, of in array.items()}, labels[at], tuple(keys), at)
        for metric in METRIC.choices:
            if not np.isnan(seen.right[metric]).all():
                line = self._numbers(seen, value=(np.positive, metric))
                line |= {"metric": metric, "zero": float(seen.right["zero"].mean())}
                yield line | {"trust": trust.get(f"saliency/{metric}")}

    def _by_class(self, seen: Seen, trust: Mapping[str, str]) -> Iterator[dict[str, Any]]:
        for label in np.unique(seen.labels).tolist() if {CLEAN, self.measure} <= set(seen.right) else ():
            of = seen.labels == label
            right = {name: seen.right[name][of] for name in (CLEAN, self.measure)}
            about = {name: seen.about[name] for name in ("dataset", "model", "protocol")}
            many = right[CLEAN].sum() >= FEWEST_DRAWS
            kept: Any = {"kept": (_kept, CLEAN, self.measure)} if many else {}
            one = seen._replace(about=about, right=right, labels=seen.labels[of])
            line = self._numbers(one, top1_clean=(np.positive, CLEAN), ablated=(np.positive, self.measure), **kept)
            note = None if many else f"{right[CLEAN].sum():g} clean images right, {FEWEST_DRAWS} needed"
            del line["n_classes"]
            yield line | {"label": seen.classes[label], "note": note, "trust": trust.get(f"accuracy/{self.measure}")}


class Seen(NamedTuple):
    """One model's results on the same images under several conditions, by one protocol.

    right: share of the draws of a condition that are right, by image.    labels: positions in `classes`.
    images: their positions among those of the split.
    """

    about: dict[str, Any]
    chance: float
    right: dict[str, Float[np.ndarray, " images"]]
    labels: Int[np.ndarray, " images"]
    classes: tuple[str, ...]
    images: Int[np.ndarray, " images"]


def _kept(clean: Any, changed: Any) -> Any:
    return changed / clean


def _ended(name: str, found: Sequence[float]) -> dict[str, Any]:
    """A number and the ends of its interval, as a line has them."""
    return dict(zip(with_interval(Column(name)), found, strict=True))


def _rows(store: Store, query: str | None) -> pd.DataFrame:
    """Predictions of full models that are clean or changed by masks, and saliency maps; with `condition`, `subject`."""
    rows = every_row(store, query)
    maps = (rows["task"] == SALIENCY) & (rows["split"] == "test")
    shift = rows["shift"].fillna("").where(~maps, SALIENCY)  # a map is one more condition of the same model
    wanted = by_full_models(rows) & (shift.str.startswith(FAMILIES) | (shift == CLEAN))
    rows, _ = by_version(store, [narrowed(rows.assign(shift=shift)[wanted | maps], query)], rows[:0])
    rows = rows.assign(condition=[_DRAW.sub("", one) for one in rows["shift"]], subject=None)
    named = [part.assign(**_named(part)) for _, part in rows.groupby("dataset")]
    return pd.concat(named) if named else rows


def comparable(
    area: Float[np.ndarray, " images"], labels: Int[np.ndarray, " images"], most: float
) -> tuple[Bool[np.ndarray, " images"], dict[str, int]]:
    """Which images can be compared with and without their object, and how many are left out.

    area: share of the image that is object: 0 and 1 are left out.    most: the largest mean of a class; others are left
    out whole.

    >>> comparable(np.array([0.2, 0.0, 1.0, 0.95]), np.array([0, 0, 1, 1]), 0.9)
    (array([ True, False, False, False]), {'left_out': 1, 'classes_left_out': 1})
    """
    known, code = np.unique(labels[area > 0], return_inverse=True)
    large = known[reliance.class_accuracy(area[area > 0], code, len(known)) > most]
    inside, both = ~np.isin(labels, large), (area > 0) & (area < 1)
    return inside & both, {"left_out": int((inside & ~both).sum()), "classes_left_out": len(large)}


def _seen(store: Store, rows: pd.DataFrame, groups: Groups | None, how: Reliance) -> Iterator[Seen]:
    """The predictions of one model for one data set, by every protocol that its stored arrays allow."""
    lines = records(rows.sort_values("shift"))
    masked = [row["run_id"] for row in lines if store.has_array(row["run_id"], "mask_area")]
    found = [(row["condition"], predictions(store, row)) for row in lines if masked]
    for protocol in PROTOCOL.choices if found else ():
        draws, chance = defaultdict[str, list[Any]](list), 0.0
        for condition, one in found:
            if scored := _right(protocol, one, groups):
                right, chance = scored
                draws[condition].append(right)
        if set(draws) - {CLEAN}:
            labels = found[0][1].labels
            area = np.array(store.array(masked[0], "mask_area", lines=len(labels)), float)
            usable, counted = comparable(area, labels, how.max_mask_area)
            about = {"dataset": lines[0]["dataset"], "model": lines[0]["subject"], "adaptation": lines[0]["adaptation"]}
            means = {condition: np.mean(of, axis=0) for condition, of in draws.items()}
            at = np.flatnonzero(usable & ~np.isnan(sum(means.values())))  # NaN: the class is in no group
            values = {condition: mean[at] for condition, mean in means.items()}
            yield Seen(about | counted | {"protocol": protocol}, chance, values, labels[at], found[0][1].classes, at)


def _right(
    protocol: str, found: Predictions, groups: Groups | None
) -> tuple[Float[np.ndarray, " images"], float] | None:
    """Which images are predicted right, and how many by chance; None where its logits or groups are missing."""
    known = found.columns[found.columns >= 0]
    if protocol == "open":
        return found.right.astype(float), 1 / len(found.logit_classes)
    if not found.store.has_array(found.run_id, "logits"):
        return None
    if protocol == "masked" and len(known) < len(found.logit_classes):
        return (masked_answers(found.logits, known) == found.true).astype(float), 1 / len(known)
    if protocol == "grouped" and groups is not None:
        code = groups.codes(found.logit_classes)
        return reliance.grouped_right(found.logits, code, found.true), 1 / len(set(code.tolist()) - {-1})
    return None


def _mean(seen: Sequence[Seen]) -> Seen:
    """The mean over models of their results on the images that all of them share."""
    first, images = seen[0], reduce(np.intersect1d, [one.images for one in seen])
    at = [np.searchsorted(one.images, images) for one in seen]
    names = set.intersection(*(set(one.right) for one in seen))
    right = {name: np.mean([one.right[name][of] for one, of in zip(seen, at, strict=True)], axis=0) for name in names}
    return first._replace(about=first.about | {"model": MEAN}, right=right, labels=first.labels[at[0]], images=images)


def _stability(classes: pd.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    """Every two models of a data set, by how alike they order its classes."""
    for about, part in parts(classes[classes["model"] != MEAN], ["dataset", "protocol"]):
        part = part.astype({"kept": float})
        wide = part.pivot_table(index="label", columns="model", values="kept", dropna=False)
        for first, second in combinations(wide, 2):
            about |= {"model": first, "other": second, "trust": part["trust"].iloc[0]}
            counts = {"n_classes": int(wide[[first, second]].notna().all(axis=1).sum())}
            rho = reliance.rank_stability(wide[first].to_numpy(), wide[second].to_numpy(), seed)
            yield about | counts | _ended("spearman", rho)


def _examples(store: Store, rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The first image of each of the first classes, as it is and under ablations, swaps and a middle noise."""
    kept = [row for row in records(rows) if store.has_array(row["run_id"], "examples")]
    levels = sorted({float(row["shift"].split("/")[3]) for row in kept if "/gaussian/" in row["shift"]})
    shown = f"/gaussian/{levels[len(levels) // 2]:g}" if levels else "none"
    of = {row["condition"]: row for row in kept if not row["shift"].startswith("noise/") or shown in row["shift"]}
    if of:
        found, row = predictions(store, kept[0]), kept[0]
        first = np.unique(found.labels, return_index=True)[1][:EXAMPLES]
        items = store.items(row["fingerprint"])
        ids = items.loc[items["split"] == row["split"], "image_id"].iloc[found.images[first]].tolist()
        columns = {CLEAN: pictures(store, ids, row["fingerprint"]).thumbnails}
        for name in sorted(of):
            columns[name] = [data_uri(png_of(np.array(one))) for one in store.array(of[name]["run_id"], "examples")]
        about = {"dataset": row["dataset"], "model": row["subject"]}
        for across, (name, thumbnails) in enumerate(columns.items()):
            for down, (label, thumbnail) in enumerate(zip(found.labels[first], thumbnails, strict=False)):
                place = {"row": down, "column": across, "condition": name, "label": found.classes[label]}
                yield about | place | {"thumbnail": thumbnail}


def _shapes(store: Store, rows: pd.DataFrame, files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Decisions for shape and texture where items have a class of each, and these differ; then those in files."""
    conflicting: dict[str, str] = {}  # name of an image -> its data set
    for row in records(rows):
        items = store.items(row["fingerprint"])
        if "texture_label" in items:
            found = predictions(store, row)
            items = items[items["split"] == row["split"]].iloc[found.images]
            texture = pd.Categorical(items["texture_label"], categories=list(found.classes)).codes
            of = (texture >= 0) & (texture != found.labels)
            shape, other = (int((found.predicted_labels == at)[of].sum()) for at in (found.labels, texture))
            conflicting |= dict.fromkeys(map(_stem, items["image_id"][of]), row["dataset"])
            about = {"dataset": row["dataset"], "model": row["subject"], "who": "stored", "run": row["run_id"]}
            shares = _share("shape_bias", shape, shape + other) | _share("shape_share", shape, int(of.sum()))
            yield about | shares | {"images": int(of.sum()), "decisions": shape + other}
    for file in files:
        read = read_responses(file)
        names = [_stem(item.partition("|")[0]) for item in read.items["item"]]
        inside = np.array([name in conflicting for name in names])
        if not inside.any():
            allowed = "decisions about images of a stored data set with a column texture_label"
            raise FcaError("analysis.responses", file, allowed, "run task=predict on that data set first")
        dataset = conflicting[names[int(inside.argmax())]]
        for subject, right in zip(read.subjects["subject"], read.correct[:, inside], strict=True):
            who, n = "person" if subject.startswith("subject-") else "network", int((~np.isnan(right)).sum())
            about = {"dataset": dataset, "model": subject, "who": who, "images": n, "note": _ONLY_SHAPE}
            yield about | _share("shape_share", int(np.nansum(right)), n)


def _stem(name: str) -> str:
    return PurePath(name).stem


def _share(name: str, part: int, whole: int) -> dict[str, Any]:
    """A share and Wilson's interval of it; nothing of nothing."""
    return _ended(name, (part / whole, *wilson(part, whole))) if whole else {}
