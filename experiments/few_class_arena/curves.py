"""Figures 1, 3 and 4: accuracy, and the best of the models (DCN), against the number of classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd
from paper import CLASSES, DATASETS, FAMILY, FIGURE4, IMAGENET, base, full_command, grid, sub_command
from studies import SHORT, Study

from fca.studies.few_class.accuracy import accuracy, dcn, per_subset
from fca.studies.rows import records

Key = tuple[str | int, ...]  # the values of some columns of one line
ORDER = ("sub", "open", "masked")
FIGURE1 = ["dataset", "model", "protocol", "ncl", "top1", "spread", "top1_low", "top1_high", "subsets", "command"]
CURVE = [*FIGURE1[:1], "paper_dataset", *FIGURE1[2:-1], "models", "top1_paper", "command"]


def figure1(studies: Iterable[Study]) -> pd.DataFrame:
    """The ResNet family on ImageNet: mean, spread and interval over subsets; empty points have their command."""
    frames = [accuracy(per_subset(family(study))) for study in studies if study.dataset == IMAGENET]
    keys = [(IMAGENET, model, p, ncl) for model in FAMILY for p in ORDER for ncl in grid(CLASSES[IMAGENET])]
    frame = _complete(frames, keys, ["dataset", "model", "protocol", "ncl"])
    empty = frame["top1"].isna()
    frame["command"] = None
    frame.loc[empty, "command"] = [_point(IMAGENET, line, [line["model"]]) for line in records(frame[empty])]
    return frame[FIGURE1]


def figure1_elsewhere(studies: Iterable[Study]) -> pd.DataFrame:
    """The same of every model on every other data set; nothing is missing, as the paper has no such figure."""
    frames = [accuracy(per_subset(known(study.points))) for study in studies if study.dataset != IMAGENET]
    return _complete(frames, [], ["dataset", "model", "protocol", "ncl"])[FIGURE1[:-1]]


def figure3(studies: Iterable[Study], paper: pd.Series) -> pd.DataFrame:
    """DCN-Full (open, and masked beside it) of the paper's data sets. paper: DCN on all classes, by its names."""
    keys = [(d, p, n) for d in DATASETS.values() for p in ORDER[1:] for n in grid(CLASSES[d])]
    return _dcn_curve(studies, keys, paper)


def figure4(studies: Iterable[Study], paper: pd.Series) -> pd.DataFrame:
    """DCN-Sub and DCN-Full of the paper's data sets at 2 to 4 classes."""
    return _dcn_curve(studies, [(d, p, n) for d in DATASETS.values() for p in ORDER for n in FIGURE4], paper)


def dcn_elsewhere(studies: Iterable[Study]) -> pd.DataFrame:
    """DCN-Sub and DCN-Full of data sets that are not the paper's."""
    frames = [_best(study) for study in studies if study.short is None]
    return _complete(frames, [], ["dataset", "protocol", "ncl"])[[*CURVE[:1], *CURVE[2:-2]]]


def family(study: Study) -> pd.DataFrame:
    """Points of the ResNet family."""
    points = known(study.points)
    return points[points["model"].isin(FAMILY)]


def known(points: pd.DataFrame) -> pd.DataFrame:
    """Points of the protocols that these figures draw."""
    return points[points["protocol"].isin(ORDER)]


def _dcn_curve(studies: Iterable[Study], keys: Sequence[Key], paper: pd.Series) -> pd.DataFrame:
    by = ["dataset", "protocol", "ncl"]
    frame = _complete([_best(study) for study in studies if study.short is not None], keys, by)
    wanted = {(protocol, ncl) for _, protocol, ncl in keys}
    frame = frame[[pair in wanted for pair in zip(frame["protocol"], frame["ncl"], strict=True)]].copy()
    dataset = frame["dataset"].map(base)
    frame["paper_dataset"] = dataset.map(SHORT)
    whole = (frame["protocol"] == "open") & (frame["ncl"] == dataset.map(CLASSES))
    frame["top1_paper"] = frame["paper_dataset"].map(paper).where(whole)
    empty = frame["top1"].isna()
    frame["command"] = None
    frame.loc[empty, "command"] = [_point(line["dataset"], line, []) for line in records(frame[empty])]
    return frame[CURVE]


def _best(study: Study) -> pd.DataFrame:
    """DCN of a study: mean over subsets as for a model, and how many models there were to choose from."""
    best = dcn(per_subset(known(study.points)))
    models = best.groupby(["dataset", "protocol", "ncl"])["models"].max().reset_index()
    return accuracy(best.assign(model="DCN")).drop(columns="model").merge(models, on=["dataset", "protocol", "ncl"])


def _complete(frames: list[pd.DataFrame], keys: Sequence[Key], by: list[str]) -> pd.DataFrame:
    """All points there are, and a line without a value for every key of a data set that has no such point."""
    numbers = dict.fromkeys(("top1", "spread", "top1_low", "top1_high"), "float64")
    columns = {**numbers, "subsets": "Int64", "models": "Int64"}
    frame = pd.concat([pd.DataFrame(columns=[*by, *columns]).astype(columns), *frames], ignore_index=True)
    there = {(base(str(name)), *rest) for name, *rest in frame[by].itertuples(index=False, name=None)}
    empty = pd.DataFrame([key for key in keys if key not in there], columns=by)
    frame = pd.concat([frame, empty], ignore_index=True) if len(empty) else frame
    place = {name: i for i, name in enumerate([*DATASETS.values()])}
    first = frame["dataset"].map(base).map(place).fillna(len(place))
    frame = frame.assign(first=first, at=frame["protocol"].map(ORDER.index)).astype(columns | {"ncl": "int64"})
    size = frame["model"].map(_depth) if "model" in by else 0
    return frame.assign(size=size).sort_values(
        ["first", "dataset", "size", "at", "ncl"], kind="stable", ignore_index=True
    )


def _depth(model: str) -> int:
    return FAMILY.index(model) if model in FAMILY else len(FAMILY)


def _point(dataset: str, line: dict[str, Any], models: list[str]) -> str:
    """What fills one empty point: a full model answers at every ncl at once, a sub-model at its own."""
    if line["protocol"] == "sub":
        return sub_command(dataset, models, int(line["ncl"]))
    return full_command(dataset, models)
