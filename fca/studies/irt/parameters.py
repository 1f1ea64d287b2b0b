"""How able are the subjects, how hard and telling are the images: item response theory over stored answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.stats import irt
from fca.stats.intervals import RESAMPLES, percentile_interval, point_weights
from fca.stats.irt import HeldOut, IrtFit, ItemBank
from fca.store import Store
from fca.studies.answers import Gathered, at_severity, clean_with_subjects, shifted_responses
from fca.studies.irt.fits import chosen, digest_of, fitted, held_out
from fca.types import FcaError, Table

# Which answers are fitted together: clean images, and every kind of corruption with all its severities.


CALIBRATIONS = ("joint", "ability", "separate")
COMPAT = (None, "seed001")
SEVERAL = "several"  # kinds of corruption in one file
_PER_ITEM = ("difficulty", "difficulty_se", "discrimination", "discrimination_se", "feasibility", "guess")


class Asked(NamedTuple):
    """How to fit: the fields of `analysis=irt` that say so."""

    model: str = "2pl"
    calibration: str = "joint"
    compat: str | None = None
    seed: int = 0


class Calibrated(NamedTuple):
    """One scale: the answers on it, and their fit.

    corruption: clean, or a kind with its clean images; `several` where a file has several kinds.
    severity:   0 clean, missing where all severities share the scale.
    """

    corruption: str
    severity: int | None
    calibration: str
    gathered: Gathered
    fit: IrtFit

    @property
    def first(self) -> bool:
        """Whether this is the fit of a data set itself: its clean images, or all that a file holds."""
        return self.corruption == "clean" or self.gathered.fingerprint is None


def calibrated(store: Store, query: str | None, files: Sequence[str], asked: Asked) -> Iterator[Calibrated]:
    """A fit of every data set's clean images, then of every kind of corruption on it.

    calibration of a kind, of asked:
    joint:    items are images at every severity, subjects have one ability; severities are on one scale.
    ability:  abilities are those on clean images, items are fitted to them severity by severity; one scale too.
    separate: a fit of its own for every severity; parameters of two severities are not on one scale.
    model "auto" is chosen on the clean images of the data set, for all its kinds.
    Raises FcaError for another word, and for `ability` where a subject has no clean answers.
    """
    for what, value, allowed in (("calibration", asked.calibration, CALIBRATIONS), ("compat", asked.compat, COMPAT)):
        if value not in allowed:
            raise FcaError(f"analysis.{what}", value, ", ".join(map(str, allowed)), "take one of these")
    model: dict[str, str] = {}
    clean = {one.dataset: one for one in clean_with_subjects(store, query, files)}
    for name, gathered in clean.items():
        model[name] = chosen(gathered, asked.seed)[0].model if asked.model == "auto" else asked.model
        fit = fitted(gathered, model[name], asked.compat, asked.seed)
        corruption = corruption_of(gathered)
        severity, how = (0, asked.calibration) if corruption == "clean" else (None, "joint")
        yield Calibrated(corruption, severity, how, gathered, fit)
    for kind, gathered in shifted_responses(store, query):
        name = gathered.dataset
        if asked.calibration == "ability":
            fit = _on_clean(kind, gathered, clean.get(name), asked._replace(model=model.get(name, asked.model)))
            yield Calibrated(kind, None, asked.calibration, gathered, fit)
            continue
        parts: list[tuple[int | None, Gathered]] = [(None, gathered)]
        if asked.calibration == "separate":
            severities = gathered.responses.items["severity"].drop_duplicates().tolist()
            parts = [(severity, at_severity(gathered, severity)) for severity in severities]
        for severity, part in parts:
            fit = fitted(part, model.get(name, asked.model), asked.compat, asked.seed)
            yield Calibrated(kind, severity, asked.calibration, part, fit)


def corruption_of(gathered: Gathered) -> str:
    """What the images of one data set were under: clean, the one kind that there is, or `several`.

    >>> from fca.studies.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a", "a@corruption/fog/1"])
    >>> corruption_of(Gathered("zoo", None, Responses(np.ones((1, 2)), frame_of_subjects(["m"]), items), ()))
    'fog'
    """
    kinds = [kind for kind in gathered.responses.items["corruption"].unique() if kind != "clean"]
    return str(kinds[0]) if len(kinds) == 1 else SEVERAL if kinds else "clean"


def _on_clean(kind: str, gathered: Gathered, clean: Gathered | None, asked: Asked) -> IrtFit:
    """The items of every severity on the abilities of the clean fit, as one fit of all of them."""
    subjects = gathered.responses.subjects["subject"]
    known = pd.Index([] if clean is None else clean.responses.subjects["subject"])
    lacking = subjects[~subjects.isin(known)]
    if clean is None or len(lacking):
        allowed = f"subjects of {kind} that answered the clean images of {gathered.dataset} too"
        step = "run shift=clean for them, or take analysis.calibration=joint"
        raise FcaError("subjects without ability on clean images", ", ".join(lacking), allowed, step)
    on_clean = fitted(clean, asked.model, asked.compat, asked.seed)
    place = known.get_indexer(pd.Index(subjects))
    ability, ability_se = on_clean.ability[place], on_clean.ability_se[place]
    severity = gathered.responses.items["severity"].to_numpy()
    fits = [
        irt.fit_items(gathered.responses.correct[:, severity == at], ability, on_clean.model)
        for at in dict.fromkeys(severity.tolist())
    ]  # blocks of items are in this order
    items: dict[str, Any] = {name: np.concatenate([getattr(fit, name) for fit in fits]) for name in _PER_ITEM}
    summed: dict[str, Any] = {
        "log_posterior": float(sum(fit.log_posterior for fit in fits)),
        "iterations": max(fit.iterations for fit in fits),
        "converged": all(fit.converged for fit in fits),
    }
    return replace(on_clean, ability=ability, ability_se=ability_se, **items, **summed)


# Whether ability orders subjects as accuracy does: Kendall's tau, with the bootstrap over models.


TIED = 1e-7  # below what a single answer changes


class Tau(NamedTuple):
    """Kendall's tau-b and its 95 % interval; NaN where it is undefined (no two subjects differ, or a single model)."""

    tau: float
    low: float
    high: float


def agreement(
    ability: Float[np.ndarray, " subjects"], top1: Float[np.ndarray, " subjects"], models: Sequence[str]
) -> Tau:
    """Tau-b of ability with accuracy; the interval resamples models, all snapshots of one together.

    tau_b = sum s(i, j) t(i, j) / sqrt(sum s² sum t²) over pairs of subjects, s and t the signs of their differences.
    A subject that is drawn twice is no pair with itself.

    >>> agreement(np.array([0.0, 1.0, 2.0]), np.array([0.5, 0.7, 0.6]), ["a", "a", "b"]).tau
    0.3333333333333333
    """
    s, t = (_signs(values) for values in (ability, top1))
    cluster = np.unique(np.asarray(models, dtype=str), return_inverse=True)[1]
    [tau] = _tau(s, t, np.ones((1, len(ability))))
    if cluster.max(initial=0) < 1:
        return Tau(float(tau), float("nan"), float("nan"))
    low, high = percentile_interval(_tau(s, t, point_weights(cluster).astype(np.float64)))
    return Tau(float(tau), low, high)


def _signs(values: Float[np.ndarray, " subjects"]) -> Float[np.ndarray, "subjects subjects"]:
    """Of all differences; equal answers give abilities that differ by rounding."""
    difference = values[:, None] - values[None, :]
    return np.asarray(np.sign(np.where(np.abs(difference) < TIED, 0.0, difference)))


def _tau(
    s: Float[np.ndarray, "subjects subjects"],
    t: Float[np.ndarray, "subjects subjects"],
    weights: Float[np.ndarray, "resamples subjects"],
) -> Float[np.ndarray, " resamples"]:
    """Tau-b in every resample, as if subject i were there weights[r, i] times."""
    both, of_s, of_t = (((weights @ pairs) * weights).sum(axis=1) for pairs in (s * t, s * s, t * t))
    answer = np.full(len(weights), np.nan)
    defined = (of_s > 0) & (of_t > 0)
    answer[defined] = both[defined] / np.sqrt(of_s[defined] * of_t[defined])
    return answer


# Tables of abilities, fits and items of calibrated answers.


Z = 1.959963984540054  # 95 % of a normal distribution
ABILITIES = ["dataset", "corruption", "severity", "trait", "subject", "model", "snapshot", "top1"]
ABILITIES += ["ability", "ability_low", "ability_high", "n_items"]
FITS = ["dataset", "corruption", "severity", "trait", "calibration", "irt_model", "n_subjects", "n_models", "n_items"]
FITS += ["share_missing", "tau", "tau_low", "tau_high", "held_out_nll", "held_out_auc", "baseline_nll", "converged"]
CHOICE = ["dataset", "irt_model", "held_out_nll", "held_out_auc", "held_out_top1", "baseline_nll", "cells", "chosen"]
ITEMS = ["dataset", "corruption", "severity", "item", "image_id", "label", "irt_model", "difficulty", "difficulty_se"]
ITEMS += ["discrimination", "feasibility", "guess", "p_max", "expected_success", "top1"]


def abilities(one: Calibrated, trait: str) -> pd.DataFrame:
    """One line a subject: its share of right answers and its ability, ablest first."""
    responses = one.gathered.responses
    frame = responses.subjects[["subject", "model", "snapshot"]].assign(
        **_about(one),
        trait=trait,
        top1=responses.accuracy,
        ability=one.fit.ability,
        ability_low=one.fit.ability - Z * one.fit.ability_se,
        ability_high=one.fit.ability + Z * one.fit.ability_se,
        n_items=(~np.isnan(responses.correct)).sum(axis=1),
    )
    return frame.sort_values("ability", ascending=False, kind="stable")[ABILITIES]


def fit_line(one: Calibrated, trait: str, seed: int) -> dict[str, Any]:
    """One line: how many answered how much, whether ability orders them as accuracy does, and what is predicted.

    Where abilities come from other answers (calibration ability) no answer is held out.
    """
    responses = one.gathered.responses
    models = responses.subjects["model"]
    tau = agreement(one.fit.ability, responses.accuracy, models.tolist())
    line = {
        **_about(one),
        "trait": trait,
        "calibration": one.calibration,
        "irt_model": one.fit.model,
        "n_subjects": len(models),
        "n_models": models.nunique(),
        "n_items": len(responses.items),
        "share_missing": float(np.isnan(responses.correct).mean()),
        "tau": tau.tau,
        "tau_low": tau.low,
        "tau_high": tau.high,
        "converged": one.fit.converged,
    }
    if one.calibration == "ability" and one.corruption != "clean":
        return line
    hidden = held_out(one.gathered, one.fit.model, seed)
    return {**line, **_predicted(hidden)}


def choice(one: Calibrated, seed: int) -> pd.DataFrame:
    """One line a candidate of model "auto", by how well it predicts hidden answers, best first."""
    found = chosen(one.gathered, seed)
    lines = [
        {
            "dataset": one.gathered.dataset,
            "irt_model": hidden.model,
            **_predicted(hidden),
            "held_out_top1": hidden.accuracy,
            "cells": hidden.cells,
            "chosen": hidden.model == one.fit.model,
        }
        for hidden in found
    ]
    return pd.DataFrame(lines, columns=CHOICE)


def items(one: Calibrated) -> pd.DataFrame:
    """One line an item: its parameters, and the share of subjects that were right."""
    responses, fit = one.gathered.responses, one.fit
    about: Mapping[str, Any] = {"dataset": one.gathered.dataset, "corruption": one.corruption, "irt_model": fit.model}
    columns = ("difficulty", "difficulty_se", "discrimination", "feasibility", "guess", "p_max", "expected_success")
    frame = responses.items[["severity", "item", "image_id", "label"]].assign(
        **about, **{name: getattr(fit, name) for name in columns}, top1=np.nanmean(responses.correct, axis=0)
    )
    return frame[ITEMS]


def _about(one: Calibrated) -> dict[str, Any]:
    return {"dataset": one.gathered.dataset, "corruption": one.corruption, "severity": one.severity}


def _predicted(hidden: HeldOut) -> dict[str, float]:
    return {"held_out_nll": hidden.nll, "held_out_auc": hidden.auc, "baseline_nll": hidden.baseline_nll}


# Samples and summaries of fitted items, small enough to draw: the plane, histograms by severity, item curves.


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


PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
THEORY = "models of answers compared as in arXiv:2106.00840"
METHOD = {
    "ability": "95 %: Laplace, given the learned hyperparameters",
    "tau": f"Kendall's tau-b of ability with accuracy; 95 %: {RESAMPLES} bootstrap resamples of models, all snapshots "
    "of one together, without fitting again",
    "held_out": "10 % of the answers hidden; mean negative log likelihood a cell; baseline: additive logit of margins; "
    "fitted in the default way, whatever compat",
    "plane": f"{SAMPLED} items a data set, drawn by seed",
    "severity": "the outer bins hold what lies beyond",
}
ABOUT = {
    "irt_abilities": (
        "How able is every subject, and how sure is that?",
        f"{PAPER}, section 2; {THEORY}",
    ),
    "irt_fits": (
        "Does ability order the subjects as accuracy does, and does the model predict answers that it did not see?",
        f"{PAPER}, table 2, with intervals; {THEORY}",
    ),
    "irt_choice": ("Which model predicts hidden answers best?", f"{PAPER} takes one for all; {THEORY}"),
    "irt_items": ("How hard and how telling is every item?", f"{PAPER}, eq. 3; {THEORY}"),
    "irt_plane": ("Are hard images the telling ones?", f"{PAPER}, figure 2; {THEORY}"),
    "irt_severity": ("What does a corruption change as it gets more severe?", f"{PAPER}, figure 1; {THEORY}"),
    "irt_curves": ("Does the fitted curve of an item follow what subjects did?", f"{PAPER}, section 2; {THEORY}"),
}


@dataclass(frozen=True)
class Irt:
    """`analysis=irt`; reads `predict` rows of full models, clean and under corruptions, and files of answers.

    query:       narrows the rows.    responses: files of answers, each a data set, or more subjects of a stored one.
    model:       1pl, 2pl, 3pl, 3pl-upper, 4pl, or auto: what predicts hidden answers best.
    calibration: joint, ability or separate; see fca.studies.irt.parameters.
    trait:       what the latent variable of the subjects is called, e.g. "agreement with shape".
    seed:        of hidden answers, of sampled items, and of `compat`.    compat: seed001, fitted as the paper did.
    """

    query: str | None = None
    responses: list[str] = field(default_factory=list)
    model: str = "2pl"
    calibration: str = "joint"
    trait: str = "ability"
    seed: int = 0
    compat: str | None = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables irt_abilities, irt_fits, irt_plane, irt_severity, irt_curves, irt_items (a bank), and irt_choice."""
        asked = Asked(self.model, self.calibration, self.compat, self.seed)
        runs: set[str] = set()
        told: dict[str, list[str]] = {"left_out": [], "answers": []}
        parts: dict[str, list[pd.DataFrame]] = {}
        for one in calibrated(store, self.query, self.responses, asked):  # one at a time: the answers are large
            runs |= set(one.gathered.runs)
            told["left_out"] += [f"{one.corruption}: {who}" for who in one.gathered.left_out]
            told["answers"].append(digest_of(one.gathered))  # files are named, but they can change
            for name, frame in self._frames(one):
                parts.setdefault(name, []).append(frame)
        frames = {name: pd.concat(found, ignore_index=True) for name, found in parts.items()}
        for name in ("irt_abilities", "irt_fits"):
            frames[name] = frames[name].astype({"severity": "Int64"})
        frames["irt_plane"] = plane(frames["irt_items"], self.seed)
        frames["irt_severity"] = severity_shares(frames["irt_items"])
        parameters: dict[str, Any] = {**asdict(self), **METHOD, **told}
        return [
            Table(name, *ABOUT[name], frames[name], parameters, tuple(sorted(runs))) for name in ABOUT if name in frames
        ]

    def _frames(self, one: Calibrated) -> Iterator[tuple[str, pd.DataFrame]]:
        """What one fit adds to each table."""
        yield "irt_abilities", abilities(one, self.trait)
        yield "irt_fits", pd.DataFrame([fit_line(one, self.trait, self.seed)], columns=FITS)
        yield "irt_items", items(one)
        if one.first:
            yield "irt_curves", curves(one, self.trait)
            if self.model == "auto":
                yield "irt_choice", choice(one, self.seed)
