"""Samples and summaries of fitted items, small enough to draw: the plane, histograms by severity, item curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.analysis.irt_calibration import Calibrated
from fca.stats.irt import ItemBank

SAMPLED = 2000  # items a data set on the plane
BINS = (6, 12)  # of a histogram, at least and at most
LINES = 3000  # of all histograms, which a page holds
INSIDE = 0.99  # of all items lie between the outer edges; the first and the last bin hold those beyond
CURVES = 12  # items a data set
GRID = 41  # abilities of a curve
GROUPS = 6  # of subjects, at most, whose shares of right answers are beside a curve

PLANE = ["dataset", "corruption", "severity", "item", "label", "irt_model", "difficulty", "discrimination", "ceiling"]
PLANE += ["ceiling_is", "top1"]
SEVERITY = ["dataset", "corruption", "parameter", "severity", "bin_low", "bin_high", "share"]
CURVE = ["dataset", "corruption", "trait", "item", "label", "place", "difficulty", "discrimination", "mark"]
CURVE += ["ability", "probability", "n_subjects"]


def ceiling_of(irt_model: str) -> str:
    """Which column says how high the chance of the best can be: p_max where the model has no feasibility.

    >>> ceiling_of("2pl"), ceiling_of("4pl")
    ('p_max', 'feasibility')
    """
    return "feasibility" if irt_model in ("3pl-upper", "4pl") else "p_max"


def plane(items: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Up to 2,000 items of every data set, as many of each corruption, drawn by the seed."""
    drawn = []
    for _, of in items.groupby("dataset", sort=False):
        size = SAMPLED // of["corruption"].nunique()
        for _, part in of.groupby("corruption", sort=False):
            at = np.random.default_rng(seed).permutation(len(part))[:size]
            drawn.append(part.iloc[np.sort(at)])
    frame = pd.concat(drawn, ignore_index=True)
    named = frame["irt_model"].map(ceiling_of)
    value = frame["feasibility"].where(named == "feasibility", frame["p_max"])
    return frame.assign(ceiling=value, ceiling_is=named)[PLANE]


def severity_shares(items: pd.DataFrame) -> pd.DataFrame:
    """Histograms of difficulty, discrimination, and feasibility or p_max at every severity, on common bins.

    12 bins, and fewer (not below 6) where more than 3,000 lines would come of many corruptions.
    """
    histograms = 3 * len(items[["dataset", "corruption", "severity"]].drop_duplicates())
    bins = int(np.clip(LINES // histograms, *BINS))
    lines: list[dict[str, Any]] = []
    for (dataset, corruption), part in items.groupby(["dataset", "corruption"], sort=False):
        for parameter in ("difficulty", "discrimination", ceiling_of(part["irt_model"].iloc[0])):
            values = part[parameter].to_numpy()
            edges = _edges(values, bins, unit=parameter in ("feasibility", "p_max"))
            for severity, of in part.groupby("severity", sort=True):
                counts, _ = np.histogram(np.clip(of[parameter], edges[0], edges[-1]), edges)
                about = {"dataset": dataset, "corruption": corruption, "parameter": parameter, "severity": severity}
                for low, high, count in zip(edges, edges[1:], counts, strict=False):
                    lines.append({**about, "bin_low": low, "bin_high": high, "share": count / len(of)})
    return pd.DataFrame(lines, columns=SEVERITY)


def _edges(values: Float[np.ndarray, " items"], bins: int, unit: bool) -> Float[np.ndarray, " edges"]:
    if unit:
        return np.linspace(0, 1, bins + 1)
    low, high = np.quantile(values, [0.5 - INSIDE / 2, 0.5 + INSIDE / 2])
    if high - low < 1e-9:  # one value: a bin around it
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1)


def curves(one: Calibrated, trait: str) -> pd.DataFrame:
    """Item characteristic curves of about 12 items, even over the order of difficulty, and what groups of subjects did.

    mark: curve (probability at this ability) or observed (share right of n_subjects subjects of this mean ability).
    """
    responses, fit = one.gathered.responses, one.fit
    order = np.argsort(fit.difficulty, kind="stable")
    number = min(CURVES, len(order))
    picked = order[((np.arange(number) + 0.5) / number * len(order)).astype(int)]
    grid = np.linspace(fit.ability.min() - 0.5, fit.ability.max() + 0.5, GRID)
    bank = ItemBank(fit.model, *(getattr(fit, name)[picked] for name in ItemBank._fields[1:]))
    probability = bank.probability(grid)
    groups = _groups(fit.ability)
    lines: list[dict[str, Any]] = []
    for place, at in enumerate(picked):
        about = {
            "dataset": one.gathered.dataset,
            "corruption": one.corruption,
            "trait": trait,
            **responses.items.loc[at, ["item", "label"]].to_dict(),
            "place": place + 1,
            "difficulty": fit.difficulty[at],
            "discrimination": fit.discrimination[at],
        }
        for ability, p in zip(grid, probability[:, place], strict=True):
            lines.append({**about, "mark": "curve", "ability": ability, "probability": p})
        for group in groups:
            said = responses.correct[group, at]
            asked = group[~np.isnan(said)]
            if len(asked):
                seen = {"ability": fit.ability[asked].mean(), "probability": np.nanmean(said)}
                lines.append({**about, "mark": "observed", **seen, "n_subjects": len(asked)})
    return pd.DataFrame(lines, columns=CURVE).astype({"n_subjects": "Int64"})


def _groups(ability: Float[np.ndarray, " subjects"]) -> Sequence[np.ndarray]:
    """Subjects in groups of like ability and size."""
    groups = min(GROUPS, max(2, len(ability) // 3))
    return np.array_split(np.argsort(ability, kind="stable"), groups)
