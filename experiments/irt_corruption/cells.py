"""The paper's tables with ours beside them: by our way, and as the paper did (columns that end in _as_paper)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from paper import FIGURE4, IMAGES, SEGMENTS, TABLE1, TABLE2, TABLE3, TABLE3_KIND, model_of, run_command

THEIRS = "_as_paper"
WHOSE = ("paper", "ours", "ours as the paper did")
VERDICTS = ("susceptible", "robust")
CHANCE = 0.8  # of the four classes named for a corruption, if two pairs are drawn from ten classes
_OTHER = {"few": "many", "many": "few"}


def table1(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 1: susceptible and robust classes by corruption; a corruption that is not stored has its command.

    ours, theirs: robust_classes.    same: of the paper's four classes, how many have the same verdict.
    """
    pairs = {(kind, name): pair for kind, both in TABLE1.items() for name, pair in zip(VERDICTS, both, strict=True)}
    frame = _beside({"corruption": list(TABLE1)}, ours, theirs, list(VERDICTS))
    for name in VERDICTS:
        frame[f"{name}_paper"] = [pairs.get((kind, name)) for kind in frame["kind"]]
    for same, end in (("same", ""), (f"same{THEIRS}", THEIRS)):
        both = [(frame[f"{name}_paper"], frame[name + end]) for name in VERDICTS]
        counts = [[_shared(*pair) for pair in zip(*columns, strict=True)] for columns in both]
        frame[same] = pd.Series(np.sum(counts, axis=0), dtype="Float64").astype("Int64")
    frame["command"] = _commands(frame, VERDICTS[0], dataset)
    named = [f"{name}{end}" for name in VERDICTS for end in ("_paper", "", THEIRS)]
    for name in named:
        frame[name] = [None if missing(pair) else ", ".join(pair) for pair in frame[name]]
    return frame[["corruption", *named, "same", f"same{THEIRS}", "command"]]


def table1_classes(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Every class under every stored corruption: what Table 1 calls it, and how steady it is.

    ours, theirs: class_robustness. rank: 1 = most robust; as the paper did: the one that moves most.
    """
    said = {(kind, label): name for kind, both in TABLE1.items() for name, pair in zip(VERDICTS, both, strict=True)
            for label in pair}  # fmt: skip
    columns = ["instability", "instability_low", "instability_high", "rank", "verdict", "verdict_kept", "direction"]
    frame = _joined(ours, theirs, ["corruption", "label"], columns)
    frame["paper"] = [
        said.get((kind, label.lower())) for kind, label in zip(frame["kind"], frame["label"], strict=True)
    ]
    frame = frame[["corruption", "label", "paper", *columns, *(f"{name}{THEIRS}" for name in columns[:6])]]
    return frame.astype({"rank": "Int64", f"rank{THEIRS}": "Int64"})


def table2(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 2: Kendall's tau of ability with accuracy at severity 1. ours, theirs: reliability."""
    one = [frame[frame["severity"] == 1] for frame in (ours, theirs)]
    columns = ["tau", "tau_low", "tau_high", "n_subjects", "n_models", "n_items"]
    frame = _beside({"corruption": list(TABLE2), "tau_paper": list(TABLE2.values())}, *one, columns)
    frame["command"] = _commands(frame, "tau", dataset)
    order = ["corruption", "tau_paper", *columns[:3], *(f"{name}{THEIRS}" for name in columns[:3]), *columns[3:]]
    return frame[[*order, "command"]].astype(dict.fromkeys(columns[3:], "Int64"))


def table3(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 3: a line a subject (and severity): right answers in each segment, and images in it. ours: segment_models.

    The paper states no severity, and its segments are taken to have 2,500 images each.
    """
    known = set(ours["model"])
    lines = []
    for subject, counts in TABLE3.items():
        right = dict(zip(SEGMENTS, counts, strict=True))
        command = None if model_of(subject) in known else run_command(dataset, TABLE3_KIND, (model_of(subject),))
        lines.append({"whose": WHOSE[0], "subject": subject, "model": model_of(subject), **right, "command": command})
    paper = pd.DataFrame(lines).assign(**{f"n_{name}": IMAGES for name in SEGMENTS})
    parts = [paper]
    for whose, frame in zip(WHOSE[1:], (ours, theirs), strict=True):
        own = of_kind(frame, TABLE3_KIND)
        if own.empty:
            continue
        wide = own.pivot_table(index=["subject", "model", "severity"], columns="segment", values=["right", "n"])
        told = {name: wide["right"].get(name) for name in SEGMENTS}
        told |= {f"n_{name}": wide["n"].get(name) for name in SEGMENTS}
        parts.append(pd.DataFrame(told).reset_index().assign(whose=whose))
    numbers = [*SEGMENTS, *(f"n_{name}" for name in SEGMENTS)]
    frame = pd.concat(parts, ignore_index=True).reindex(
        columns=["whose", "subject", "model", "severity", *numbers, "command"]
    )
    return frame.astype(dict.fromkeys(["severity", *numbers], "Int64"))


def table3_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Table 3 as shares of a segment's images that are right, a line a cell, at the highest severity that is stored."""
    highest = table["severity"].max()
    kept = table[(table["whose"] == WHOSE[0]) | (table["severity"] == highest)]
    cells = [
        kept[["whose", "subject", "model", "severity"]].assign(
            segment=name, right=kept[name], n=kept[f"n_{name}"], share=(kept[name] / kept[f"n_{name}"]).astype(float)
        )
        for name in SEGMENTS
    ]
    return pd.concat(cells, ignore_index=True).dropna(subset="share")


def figure4(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Figure 4: each class's images in the top and the bottom quarter of clean images. ours, theirs: segment_classes.

    share: of the class's images; a quarter if the class is like all.    seen: few or many where its interval leaves out
    a quarter, else `as all`.    paper: what it states, for difficulty and discrimination together.
    """
    keys = ["parameter", "quarter", "label"]
    empty = [(parameter, quarter, label) for parameter in ("difficulty", "discrimination")
             for quarter in ("top", "bottom") for label in FIGURE4]  # fmt: skip
    columns = ["items", "images", "share", "share_low", "share_high"]
    stored = _joined(ours, theirs, keys, columns).sort_values(keys, ascending=[True, False, True], ignore_index=True)
    frame = stored if len(stored) else pd.DataFrame(empty, columns=keys).reindex(columns=[*keys, *stored.columns[3:]])
    said = [FIGURE4.get(label.lower()) for label in frame["label"]]
    frame["paper"] = [
        word if quarter == "top" else _OTHER.get(word) for word, quarter in zip(said, frame["quarter"], strict=True)
    ]
    for seen, end in (("seen", ""), (f"seen{THEIRS}", THEIRS)):
        frame[seen] = [
            None if pd.isna(low) else "many" if low > 1 / 4 else "few" if high < 1 / 4 else "as all"
            for low, high in zip(frame[f"share_low{end}"], frame[f"share_high{end}"], strict=True)
        ]
    frame["command"] = None if len(stored) else run_command(dataset)
    told = [*keys, "paper", "seen", f"seen{THEIRS}", *columns, *(f"{name}{THEIRS}" for name in columns), "command"]
    return frame[told].astype({"items": "Int64", "images": "Int64", f"items{THEIRS}": "Int64"})


def of_kind(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The lines of one kind of corruption."""
    return frame[kinds(frame["corruption"]) == kind]


def kinds(corruption: pd.Series) -> np.ndarray:
    """Without the source that is named where a data set has a kind from two: cifar_c/fog is fog."""
    return np.array([str(name).rpartition("/")[2] for name in corruption], dtype=object)


def missing(value: object) -> bool:
    """Whether a cell is empty."""
    return value is None or (isinstance(value, float) and np.isnan(value))


def _joined(ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Ours with theirs beside it; a column `kind` where there are corruptions."""
    renamed = theirs[[*keys, *columns]].rename(columns={name: name + THEIRS for name in columns})
    frame = ours[[*keys, *columns]].merge(renamed, on=keys, how="outer", sort=False)
    return frame.assign(kind=kinds(frame["corruption"])) if "corruption" in keys else frame


def _beside(paper: Mapping[str, list], ours: pd.DataFrame, theirs: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The paper's corruptions in its order, then those that it does not have."""
    stored = _joined(ours, theirs, ["corruption"], columns)
    printed = pd.DataFrame(paper).rename(columns={"corruption": "kind"})
    first = printed.merge(stored, on="kind", how="left")
    rest = stored[~stored["kind"].isin(printed["kind"])]
    frame = pd.concat([first, rest.reindex(columns=first.columns)], ignore_index=True) if len(rest) else first
    return frame.assign(corruption=frame["corruption"].astype(object).where(frame["corruption"].notna(), frame["kind"]))


def _commands(frame: pd.DataFrame, filled: str, dataset: str) -> list[str | None]:
    return [
        run_command(dataset, kind) if missing(ours) else None
        for kind, ours in zip(frame["kind"], frame[filled], strict=True)
    ]


def _shared(paper: object, ours: object) -> float:
    if missing(paper) or missing(ours):
        return np.nan
    return len(set(paper) & {label.lower() for label in ours})  # type: ignore[call-overload,attr-defined]
