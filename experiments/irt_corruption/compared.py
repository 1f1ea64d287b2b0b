"""The paper's tables and statements with ours beside them; columns that end in _as_paper: fitted as the paper did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sharma import (
    ERRORS,
    FIGURE4,
    IMAGES,
    MODEL,
    MOVES,
    RULES,
    SEGMENTS,
    TABLE1,
    TABLE2,
    TABLE3,
    TABLE3_KIND,
    model_of,
    run_command,
)

THEIRS = "_as_paper"
WHOSE = ("paper", "ours", "ours as the paper did")
VERDICTS = ("susceptible", "robust")
CHANCE = 0.8  # of the four classes named for a corruption, if two pairs are drawn from ten classes
Frames = Mapping[str, pd.DataFrame]
Finding = tuple[str | None, bool | None]  # in words, and whether it agrees; None where nothing stored decides it


def table1(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 1: susceptible and robust classes by corruption; a corruption that is not stored has its command.

    ours, theirs: robust_classes.    same: of the paper's four classes, how many have the same verdict.
    """
    frame = _beside(dict.fromkeys(TABLE1), ours, theirs, list(VERDICTS))
    for at, name in enumerate(VERDICTS):
        frame[f"{name}_paper"] = [TABLE1[kind][at] if kind in TABLE1 else None for kind in frame["kind"]]
    lines = frame.to_dict("records")
    for end in ("", THEIRS):
        frame[f"same{end}"] = pd.array([_same_verdicts(line, end) for line in lines], dtype="Int64")
    frame["command"] = _commands(frame, VERDICTS[0], dataset)
    named = [f"{name}{end}" for name in VERDICTS for end in ("_paper", "", THEIRS)]
    for name in named:
        frame[name] = [None if missing(pair) else ", ".join(pair) for pair in frame[name]]
    return frame[["corruption", *named, "same", f"same{THEIRS}", "command"]]


def _same_verdicts(line: Mapping[Any, Any], end: str) -> int | None:
    pairs = [(line[f"{name}_paper"], line[name + end]) for name in VERDICTS]
    if any(missing(labels) for pair in pairs for labels in pair):
        return None
    return sum(len(set(paper) & {label.lower() for label in own}) for paper, own in pairs)


def table1_classes(ours: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Every class under every stored corruption: its verdict in Table 1, and how steady it is.

    ours, theirs: class_robustness. rank: 1 = most robust; as the paper did: the one that moves most.
    """
    stated = {(kind, label): name for kind, both in TABLE1.items() for name, pair in zip(VERDICTS, both, strict=True)
              for label in pair}  # fmt: skip
    columns = ["instability", "instability_low", "instability_high", "rank", "verdict", "verdict_kept", "direction"]
    frame = _joined(ours, theirs, ["corruption", "label"], columns)
    keys = zip(frame["kind"], frame["label"].str.lower(), strict=True)
    frame["paper"] = pd.Series([stated.get(key) for key in keys], dtype=object)
    frame = frame[["corruption", "label", "paper", *columns, *(f"{name}{THEIRS}" for name in columns[:6])]]
    return frame.astype({"rank": "Int64", f"rank{THEIRS}": "Int64"})


def table2(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 2: Kendall's tau of ability with accuracy at severity 1. ours, theirs: reliability."""
    one = [frame[frame["severity"] == 1] for frame in (ours, theirs)]
    taus, counts = ["tau", "tau_low", "tau_high"], ["n_subjects", "n_models", "n_items"]
    frame = _beside(TABLE2, *one, [*taus, *counts]).rename(columns={"paper": "tau_paper"})
    frame["command"] = _commands(frame, "tau", dataset)
    order = ["corruption", "tau_paper", *taus, *(name + THEIRS for name in taus), *counts, "command"]
    return frame[order].astype(dict.fromkeys(counts, "Int64"))


def table3(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Table 3: a line a subject (and severity): right responses in each segment, and images in it.

    ours, theirs: segment_models. The paper states no severity, and its segments are taken to have 2,500 images each.
    """
    images, known = {f"n_{name}": IMAGES for name in SEGMENTS}, set(ours["model"])
    lines = []
    for subject, counts in TABLE3.items():
        model, right = model_of(subject), dict(zip(SEGMENTS, counts, strict=True))
        command = None if model in known else run_command(dataset, TABLE3_KIND, (model,))
        lines.append({"whose": WHOSE[0], "subject": subject, "model": model, **right, **images, "command": command})
    parts = [pd.DataFrame(lines)]
    for whose, frame in zip(WHOSE[1:], (ours, theirs), strict=True):
        own = of_kind(frame, TABLE3_KIND)
        if len(own):
            wide = own.pivot_table(index=["subject", "model", "severity"], columns="segment", values=["right", "n"])
            wide.columns = [name if column == "right" else f"n_{name}" for column, name in wide.columns]
            parts.append(wide.reset_index().assign(whose=whose))
    columns = ["whose", "subject", "model", "severity", *SEGMENTS, *images, "command"]
    frame = pd.concat(parts, ignore_index=True).reindex(columns=columns)
    return frame.astype(dict.fromkeys(columns[3:-1], "Int64"))


def table3_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Table 3 as shares of a segment's images that are right, a line a cell, at the highest severity that is stored."""
    kept = table[(table["whose"] == WHOSE[0]) | (table["severity"] == table["severity"].max())]
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
    keys, columns = ["parameter", "quarter", "label"], ["items", "images", "share", "share_low", "share_high"]
    frame = _joined(ours, theirs, keys, columns).sort_values(keys, ascending=[True, False, True], ignore_index=True)
    stored = len(frame) > 0
    if not stored:
        levels = (("difficulty", "discrimination"), ("top", "bottom"), tuple(FIGURE4))
        frame = pd.MultiIndex.from_product(levels, names=keys).to_frame(index=False).reindex(columns=list(frame))
    other = {"few": "many", "many": "few", None: None}
    stated = [FIGURE4.get(label.lower()) for label in frame["label"]]
    pairs = zip(stated, frame["quarter"], strict=True)
    frame["paper"] = [word if quarter == "top" else other[word] for word, quarter in pairs]
    for end in ("", THEIRS):
        frame[f"seen{end}"] = [
            None if pd.isna(low) else "many" if low > 1 / 4 else "few" if high < 1 / 4 else "as all"
            for low, high in zip(frame[f"share_low{end}"], frame[f"share_high{end}"], strict=True)
        ]
    frame["command"] = None if stored else run_command(dataset)
    order = [*keys, "paper", "seen", f"seen{THEIRS}", *columns, *(f"{name}{THEIRS}" for name in columns), "command"]
    return frame[order].astype({"items": "Int64", "images": "Int64", f"items{THEIRS}": "Int64"})


def moves(ours: pd.DataFrame, theirs: pd.DataFrame, dataset: str) -> pd.DataFrame:
    """Figures 8 to 10: a class's images in a segment at each severity, and whether their number grows with it.

    ours, theirs: class_severity.    seen: more or fewer, by the slope over severities; same below 1 % of the images.
    """
    lines = []
    for move in MOVES:
        line = {**move._asdict(), "command": run_command(dataset, move.kind)}
        for end, frame in (("", ours), (THEIRS, theirs)):
            own = frame[(frame["parameter"] == move.parameter) & (frame["segment"] == move.segment)]
            own = own[(own["label"].str.lower() == move.label) & (own["severity"] > 0)]
            own = of_kind(own, move.kind).sort_values("severity")
            if len(set(own["severity"])) > 1:
                slope = np.polyfit(own["severity"], own["items"], 1)[0]
                still = abs(slope) < 0.01 * own["images"].iloc[0]
                seen = "same" if still else "more" if slope > 0 else "fewer"
                line |= {f"seen{end}": seen, f"counts{end}": " ".join(map(str, own["items"])), "command": None}
        lines.append(line)
    columns = [*MOVES[0]._fields, "seen", f"seen{THEIRS}", "counts", f"counts{THEIRS}", "command"]
    return pd.DataFrame(lines, columns=columns).rename(columns={"kind": "corruption"})


def statements(ours: Frames, theirs: Frames, dataset: str, verdicts: bool) -> pd.DataFrame:
    """A line a statement of the paper. verdicts: whether a file of known annotation errors is given."""
    lines = []
    for where, statement, kind, look in STATEMENTS:
        (found, agrees), (found_theirs, agrees_theirs) = look(ours), look(theirs)
        command = run_command(dataset, kind) if found is None else None
        lines.append((where, statement, found, found_theirs, agrees, agrees_theirs, command))
    errors, errors_theirs = (_errors(ours["label_error_rules"], rule) for rule in RULES)  # one table has both
    given = f"python experiments/irt_corruption/side_by_side.py outputs {dataset} VERDICTS.csv"
    command = None if errors else run_command(dataset) if verdicts else given
    low, high = ERRORS
    words = f"items low in discrimination and feasibility are {low:.0%} to {high:.0%} of the annotation errors"
    lines.append(("section 3.1", words, errors, errors_theirs, None, None, command))
    columns = ["where", "statement", "ours", "as_paper", "agrees", "agrees_as_paper", "command"]
    return pd.DataFrame(lines, columns=columns).astype({"agrees": "boolean", "agrees_as_paper": "boolean"})


def _ends(frames: Frames) -> Finding:
    classes = of_kind(frames["class_robustness"], "defocus_blur").sort_values("rank")
    if classes.empty:
        return None, None
    first, *_, last = classes["label"]
    place = dict(zip(classes["label"].str.lower(), classes["rank"], strict=True))
    places = [f"{label} is {place[label]} of {len(classes)}" for label in ("airplane", "frog") if label in place]
    agrees = (first.lower(), last.lower()) == ("airplane", "frog")
    return "; ".join([f"{first} most robust, {last} most susceptible", *places]), agrees


def _blur(frames: Frames) -> Finding:
    classes = of_kind(frames["class_robustness"], "defocus_blur").sort_values("rank")
    if classes.empty:
        return None, None
    named = {name: part["label"].str.lower().tolist() for name, part in classes.groupby("verdict")}
    susceptible, robust = (named[name] for name in VERDICTS)
    found = f"defocus blur: {', '.join(susceptible)} susceptible, {', '.join(robust)} robust"
    return found, (set(susceptible), set(robust)) == ({"frog", "truck"}, {"horse", "ship"})


def _falls(parameter: str) -> Callable[[Frames], Finding]:
    def look(frames: Frames) -> Finding:
        items = of_kind(frames["irt_items"], "defocus_blur")
        means = items[items["severity"] > 0].groupby("severity")[parameter].mean()
        if len(means) < 2:
            return None, None
        numbers = " ".join(f"{mean:.2f}" for mean in means)
        found = f"means at severities {means.index[0]} to {means.index[-1]}: {numbers}"
        return found, bool(means.iloc[-1] < 0.99 * means.iloc[0])

    return look


def _strong(frames: Frames) -> Finding:
    own = of_kind(frames["segment_models"], TABLE3_KIND)
    every, hard = (part.groupby("subject")[["right", "n"]].sum() for part in (own, own[own["segment"] == "hard"]))
    if len(hard) < 3:
        return None, None
    share = (hard["right"] / hard["n"]).astype(float)
    if (share == share.iloc[0]).all():
        return f"all {len(share)} subjects get {share.iloc[0]:.0%} of the hard images right", None
    rank = pd.DataFrame({"top1": every["right"] / every["n"], "hard": share}).rank()
    rho = float(rank["top1"].corr(rank["hard"]))
    return f"Spearman's rho {rho:.2f} over {len(rank)} subjects; most hard images right: {share.idxmax()}", rho > 0


def _errors(rules: pd.DataFrame, rule: str) -> str | None:
    for line in rules[rules["rule"] == rule].to_dict("records"):
        shares = [
            f"{line[f'recall_{share}']:.0%} [{line[f'recall_{share}_low']:.0%}, {line[f'recall_{share}_high']:.0%}]"
            f" among the lowest {share} %"
            for share in (5, 10, 25)
        ]
        return "; ".join([*shares, f"{line['errors']} errors; fit: {MODEL}"])
    return None


STATEMENTS = (  # where, statement, corruption, what ours has
    ("section 1", "defocus blur: airplane most robust, frog most susceptible", "defocus_blur", _ends),
    ("section 3.2", "blur: frog and truck susceptible, horse and ship robust", "defocus_blur", _blur),
    ("figure 1", "defocus blur: discrimination falls from severity 1 to 5", "defocus_blur", _falls("discrimination")),
    ("figure 1", "defocus blur: feasibility falls from severity 1 to 5", "defocus_blur", _falls("feasibility")),
    ("section 3.3", "more accurate models get more of the hard images right (brightness)", TABLE3_KIND, _strong),
)


def of_kind(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """The lines of one kind of corruption."""
    return frame[_kinds(frame["corruption"]) == kind]


def missing(value: object) -> bool:
    """Whether a cell is empty."""
    return value is None or (isinstance(value, float) and np.isnan(value))


def _kinds(corruption: pd.Series) -> np.ndarray:
    """Without the source that is named where a data set has a kind from two: cifar_c/fog is fog."""
    return np.array([str(name).rpartition("/")[2] for name in corruption], dtype=object)


def _joined(ours: pd.DataFrame, theirs: pd.DataFrame, keys: list[str], columns: list[str]) -> pd.DataFrame:
    """Ours with theirs beside it; a column `kind` where there are corruptions."""
    renamed = theirs[[*keys, *columns]].rename(columns={name: name + THEIRS for name in columns})
    frame = ours[[*keys, *columns]].merge(renamed, on=keys, how="outer", sort=False)
    return frame.assign(kind=_kinds(frame["corruption"])) if "corruption" in keys else frame


def _beside(paper: Mapping[str, Any], ours: pd.DataFrame, theirs: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The paper's corruptions (with its value in `paper`) in its order, then those that it does not have."""
    stored = _joined(ours, theirs, ["corruption"], columns)
    first = pd.DataFrame({"kind": list(paper), "paper": list(paper.values())}).merge(stored, on="kind", how="left")
    rest = stored[~stored["kind"].isin(list(paper))]
    frame = pd.concat([first, rest.reindex(columns=first.columns)], ignore_index=True) if len(rest) else first
    return frame.assign(corruption=frame["corruption"].astype(object).where(frame["corruption"].notna(), frame["kind"]))


def _commands(frame: pd.DataFrame, filled: str, dataset: str) -> list[str | None]:
    pairs = zip(frame["kind"], frame[filled], strict=True)
    return [run_command(dataset, kind) if missing(ours) else None for kind, ours in pairs]
