"""The paper's statements in words, with what our tables say of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from cells import THEIRS, of_kind
from paper import ERRORS, MODEL, MOVES, run_command

RULE = "low_discrimination_feasibility"  # of analysis=label_errors
Frames = Mapping[str, pd.DataFrame]


class Statement(NamedTuple):
    """What the paper states, and what ours says; None where nothing stored tells."""

    where: str
    statement: str
    ours: str | None = None
    as_paper: str | None = None
    agrees: bool | None = None
    agrees_as_paper: bool | None = None
    command: str | None = None


Seen = tuple[str | None, bool | None]
UNSEEN: Seen = (None, None)


def statements(ours: Frames, theirs: Frames, dataset: str, verdicts: bool) -> pd.DataFrame:
    """A line a statement. verdicts: whether a file of known annotation errors is given."""
    pairs = [
        ("section 1", "defocus blur: airplane most robust, frog most susceptible", _ends),
        ("section 3.2", "blur: frog and truck susceptible, horse and ship robust", _blur),
        ("figure 1", "defocus blur: discrimination falls from severity 1 to 5", _falls("discrimination")),
        ("figure 1", "defocus blur: feasibility falls from severity 1 to 5", _falls("feasibility")),
        ("section 3.3", "more accurate models get more of the hard images right (brightness)", _strong),
    ]
    lines = []
    for where, says, look in pairs:
        (told, agrees), (told_theirs, agrees_theirs) = look(ours), look(theirs)
        command = run_command(dataset, "brightness" if look is _strong else "defocus_blur") if told is None else None
        lines.append(Statement(where, says, told, told_theirs, agrees, agrees_theirs, command))
    lines.append(_errors(ours["label_error_rules"], dataset, verdicts))
    frame = pd.DataFrame(lines, columns=Statement._fields)
    return frame.astype({"agrees": "boolean", "agrees_as_paper": "boolean"})


def _classes(frames: Frames, kind: str = "defocus_blur") -> pd.DataFrame:
    return of_kind(frames["class_robustness"], kind).sort_values("rank")


def _ends(frames: Frames) -> Seen:
    classes = _classes(frames)
    if classes.empty:
        return UNSEEN
    first, last = classes["label"].iloc[0], classes["label"].iloc[-1]
    place = {label.lower(): rank for label, rank in zip(classes["label"], classes["rank"], strict=True)}
    told = [f"{label} is {place[label]} of {len(classes)}" for label in ("airplane", "frog") if label in place]
    agrees = (first.lower(), last.lower()) == ("airplane", "frog")
    return "; ".join([f"{first} most robust, {last} most susceptible", *told]), agrees


def _blur(frames: Frames) -> Seen:
    classes = _classes(frames)
    if classes.empty:
        return UNSEEN
    named = {name: part["label"].str.lower().tolist() for name, part in classes.groupby("verdict")}
    susceptible, robust = named["susceptible"], named["robust"]
    told = f"defocus blur: {', '.join(susceptible)} susceptible, {', '.join(robust)} robust"
    return told, set(susceptible) == {"frog", "truck"} and set(robust) == {"horse", "ship"}


def _falls(parameter: str):
    def look(frames: Frames) -> Seen:
        items = of_kind(frames["irt_items"], "defocus_blur")
        items = items[items["severity"] > 0]
        means = items.groupby("severity")[parameter].mean()
        if len(means) < 2:
            return UNSEEN
        told = " ".join(f"{mean:.2f}" for mean in means)
        return f"means at severities {means.index[0]} to {means.index[-1]}: {told}", bool(
            means.iloc[-1] < 0.99 * means.iloc[0]
        )

    return look


def _strong(frames: Frames) -> Seen:
    own = of_kind(frames["segment_models"], "brightness")
    sums = own.groupby("subject")[["right", "n"]].sum()
    hard = own[own["segment"] == "hard"].groupby("subject")[["right", "n"]].sum()
    if len(hard) < 3:
        return UNSEEN
    share = (hard["right"] / hard["n"]).astype(float)
    if (share == share.iloc[0]).all():
        return f"all {len(share)} subjects get {share.iloc[0]:.0%} of the hard images right", None
    rank = pd.DataFrame({"top1": sums["right"] / sums["n"], "hard": share}).rank()
    rho = float(rank["top1"].corr(rank["hard"]))
    told = f"Spearman's rho {rho:.2f} over {len(rank)} subjects; most hard images right: {share.idxmax()}"
    return told, rho > 0


def _errors(rules: pd.DataFrame, dataset: str, verdicts: bool) -> Statement:
    """Not fitted as the paper did: the analysis has one way."""
    low, high = ERRORS
    says = f"items low in discrimination and feasibility are {low:.0%} to {high:.0%} of the annotation errors"
    found = rules[rules["rule"] == RULE]
    if found.empty:
        command = f"python experiments/irt_corruption/side_by_side.py outputs {dataset} VERDICTS.csv"
        command = command if not verdicts else run_command(dataset)
        return Statement("section 3.1", says, command=command)
    line = found.iloc[0]
    told = [
        f"{line[f'recall_{share}']:.0%} [{line[f'recall_{share}_low']:.0%}, {line[f'recall_{share}_high']:.0%}]"
        f" among the lowest {share} %"
        for share in (5, 10, 25)
    ]
    told.append(f"{line['errors']} errors; fit: {MODEL}")
    return Statement("section 3.1", says, "; ".join(told))


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
            if own["severity"].nunique() < 2:
                continue
            slope = np.polyfit(own["severity"], own["items"], 1)[0]
            still = abs(slope) < 0.01 * own["images"].iloc[0]
            seen = "same" if still else "more" if slope > 0 else "fewer"
            line |= {f"seen{end}": seen, f"counts{end}": " ".join(map(str, own["items"])), "command": None}
        lines.append(line)
    columns = [*MOVES[0]._fields, "seen", f"seen{THEIRS}", "counts", f"counts{THEIRS}", "command"]
    return pd.DataFrame(lines, columns=columns).rename(columns={"kind": "corruption"})
