"""Abilities of subjects and parameters of items, fitted to stored responses: analysis=irt and analysis=reliability.

`calibrated` decides which responses are fitted together: the clean images of a data set, then each kind of corruption
with all its severities. A fit gives lines about subjects, about items, and one line on how far to trust it: Kendall's
tau between ability and accuracy, and the log loss of held-out responses. What the figures draw is sampled or summarised
from these: the plane of difficulty and discrimination, histograms by severity, and item characteristic curves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from fca.stats.correlation import kendall
from fca.store import Store
from fca.studies.irt import fits
from fca.studies.irt.fits import (
    ABILITY,
    DIFFICULTY,
    DISCRIMINATION,
    HELD_OUT_NLL,
    HOLD_OUT,
    IRT_MODEL,
    N_ITEMS,
    NOT_ESTIMABLE,
    PAPER,
    SHARE,
    SUBJECT,
    THEORY,
    TRAIT,
    Compat,
    HoldOut,
    IrtModel,
)
from fca.studies.irt.fittable import clean_with_subjects, shifted_responses
from fca.studies.irt.not_estimable import log_not_estimable
from fca.studies.irt.stats import IrtFit, Scored, excess, fit_items, weakest_link
from fca.studies.irt.stats.subjects import one_class
from fca.tables.answers import DatasetResponses, at_severity
from fca.tables.keys import Query, ResponseFiles
from fca.tables.responses import Responses
from fca.tables.table import CORRUPTION, DATASET, IMAGE_ID, LABEL, MODEL, SEVERITY, SNAPSHOT, TOP1, TableSpec
from fca.types import Column, FcaError, Table, check_choice, interval_columns
from fca.validation import Seed

CALIBRATIONS = ("joint", "ability", "separate")
COMPAT = (None, "seed001")
SEVERAL = "several"  # kinds of corruption in one file
_PER_ITEM = ("difficulty", "difficulty_se", "discrimination", "discrimination_se", "feasibility", "guess")
Z = 1.959963984540054  # 95 % of a normal distribution
SAMPLED = 2000  # items a data set on the plane
BINS = (6, 12)  # of a histogram, at least and at most
LINES = 3000  # of all histograms, which a page holds
INSIDE = 0.99  # of all items lie between the outer edges; the first and the last bin hold those beyond
CURVES = 12  # items a data set
GRID = 41  # abilities of a curve
GROUPS = 6  # of subjects, at most, whose shares of right responses are beside a curve

TAU = Column("tau", float, ".4f", "Kendall's tau of ability with accuracy")
INNER_NLL = Column("inner_nll", float, ".4f", "log loss of the held-out responses that choose: the best is too good")
EXCESS = Column("excess", float, "+.4f", "this log loss less the best one")
HELD_OUT_AUC = Column("held_out_auc", float, ".3f", "AUC of held-out responses")
BASELINE_NLL = Column("baseline_nll", float, ".4f", "log loss from the means of subjects and items alone")
ONE_CLASS = Column("one_class", tuple, "", "subjects that answer one class nearly always; missing without labels")
SHIFT_SE = Column(
    "shift_se", float, ".2f", "standard error of the difference in mean ability of two groups of subjects"
)
WEAK_LINK = Column("weak_link", str, "", "which two groups, that have least in common; missing where none is set apart")
CONVERGED = Column("converged", bool, "", "whether the fit converged")
GUESS = Column("guess", float, ".2f", "chance of a right response without ability")
PROBABILITY = Column("probability", float, ".0%", "chance of a right response")
MARK = Column("mark", str, "", "curve: fitted; observed: share of right responses of a group of subjects")
CEILING = Column("ceiling", float, ".2f", "highest chance of a right response")
_FITTED = (IRT_MODEL, fits.N_SUBJECTS, fits.N_MODELS, N_ITEMS)

IRT_ABILITIES = TableSpec(
    "irt_abilities",
    "How able is every subject, and how sure is that?",
    f"{PAPER}, section 2; {THEORY}",
    (DATASET, CORRUPTION, SEVERITY, TRAIT, SUBJECT, MODEL, SNAPSHOT, TOP1, *interval_columns(ABILITY), N_ITEMS),
)
IRT_FITS = TableSpec(
    "irt_fits",
    "Does ability order the subjects as accuracy does, and does the model predict responses that it did not see?",
    f"{PAPER}, table 2, with intervals; {THEORY}",
    (
        *(DATASET, CORRUPTION, SEVERITY, TRAIT, Column("calibration", str, "", "how severities share a scale")),
        *(*_FITTED, Column("share_missing", float, ".1%", "share without a response")),
        *(*interval_columns(TAU), HOLD_OUT, *interval_columns(HELD_OUT_NLL), HELD_OUT_AUC, BASELINE_NLL),
        *(ONE_CLASS, NOT_ESTIMABLE, SHIFT_SE, WEAK_LINK, CONVERGED),
    ),
)
IRT_CHOICE = TableSpec(
    "irt_choice",
    "Which model predicts held-out responses best?",
    f"{PAPER} takes one for all; {THEORY}",
    (
        *(DATASET, HOLD_OUT, IRT_MODEL, *interval_columns(INNER_NLL), *interval_columns(EXCESS), HELD_OUT_AUC),
        *(Column("held_out_top1", float, ".2%", "accuracy on held-out responses"), BASELINE_NLL),
        *(Column("cells", int, ".0f", "held-out responses"), fits.CHOSEN),
    ),
)
IRT_ITEMS = TableSpec(
    "irt_items",
    "How difficult and how discriminating is every item?",
    f"{PAPER}, eq. 3; {THEORY}",
    (
        *(DATASET, CORRUPTION, SEVERITY, fits.ITEM, IMAGE_ID, LABEL, IRT_MODEL),
        *(DIFFICULTY, Column("difficulty_se", float, ".2f", "standard error of the difficulty")),
        *(DISCRIMINATION, fits.FEASIBILITY, GUESS, fits.P_MAX),
        Column("expected_success", float, ".2f", "fitted chance of a right response, mean over subjects"),
        fits.ITEM_TOP1,
    ),
)
IRT_PLANE = TableSpec(
    "irt_plane",
    "Are difficult images also discriminating?",
    f"{PAPER}, figure 2; {THEORY}",
    (
        *(DATASET, CORRUPTION, SEVERITY, fits.ITEM, LABEL, IRT_MODEL, DIFFICULTY, DISCRIMINATION),
        *(CEILING, Column("ceiling_is", str, "", "which parameter the ceiling is"), fits.ITEM_TOP1),
    ),
)
IRT_SEVERITY = TableSpec(
    "irt_severity",
    "What does a corruption change as it gets more severe?",
    f"{PAPER}, figure 1; {THEORY}",
    (
        *(DATASET, CORRUPTION, fits.PARAMETER, SEVERITY, Column("bin_low", float, ".2f", "lower edge of the bin")),
        *(Column("bin_high", float, ".2f", "upper edge of the bin"), SHARE),
    ),
)
IRT_CURVES = TableSpec(
    "irt_curves",
    "Does the fitted curve of an item follow the responses?",
    f"{PAPER}, section 2; {THEORY}",
    (
        *(DATASET, CORRUPTION, TRAIT, fits.ITEM, LABEL, fits.PLACE),
        *(DIFFICULTY, DISCRIMINATION, MARK, ABILITY, PROBABILITY, fits.N_SUBJECTS),
    ),
)
RELIABILITY = TableSpec(
    "reliability",
    "Does ability order the models as accuracy does, under every corruption and severity?",
    f"{PAPER}, table 2 (its severity is 1), with intervals; {THEORY}",
    (
        DATASET,
        CORRUPTION,
        SEVERITY,
        *_FITTED,
        *interval_columns(TAU),
        ONE_CLASS,
        NOT_ESTIMABLE,
        SHIFT_SE,
        WEAK_LINK,
        CONVERGED,
    ),
)
METHOD = {  # these words are part of the id of a saved bank
    "ability": "95 %: Laplace, given the learned hyperparameters",
    "tau": "Kendall's tau-b of ability with accuracy; 95 %: jackknife over models, all snapshots of one together, and "
    "Student's t on Fisher's z, without fitting again",
    "held_out": "mean negative log likelihood of held-out responses. cells: 10 % of the pairs of model and item, all "
    "snapshots of a model together. subjects: items fitted without a fifth of the models, whose abilities come from a "
    "random half of their responses; the other half is predicted. 95 %: over models, fits as they are. baseline: "
    "additive logit of margins. auto: scored on responses that took no part in the choice. Fitted in the default way, "
    "whatever compat",
    "plane": f"{SAMPLED} items a data set, drawn by seed",
    "severity": "the outer bins hold what lies beyond",
}


@dataclass(frozen=True)
class Irt:
    """`analysis=irt`; reads `predict` rows of full models, clean and under corruptions, and files of responses."""

    tables: ClassVar = (IRT_ABILITIES, IRT_FITS, IRT_CHOICE, IRT_ITEMS, IRT_PLANE, IRT_SEVERITY, IRT_CURVES)

    query: Query = None
    responses: ResponseFiles = field(default_factory=list)
    model: IrtModel = "2pl"
    calibration: Annotated[
        str, "severities: joint (one scale), ability (on that of clean images), separate (own scales)"
    ] = "joint"
    hold_out: Annotated[
        HoldOut, "what models are scored on and auto chosen by: cells (some responses) or subjects (whole networks)"
    ] = "cells"
    trait: Annotated[str, "what the subjects' latent variable is called, e.g. 'agreement with shape'"] = "ability"
    seed: Annotated[Seed, "of held-out responses, of sampled items, and of compat"] = 0
    compat: Annotated[Compat, "seed001: fitted as the paper did, by variational inference"] = None

    def __call__(self, store: Store) -> list[Table]:
        """Tables irt_abilities, irt_fits, irt_plane, irt_severity, irt_curves, irt_items (a bank), and irt_choice."""
        runs: set[str] = set()
        left_out, digests = [], []
        not_estimable: dict[str, list[str]] = {}
        parts = defaultdict[TableSpec, list[pd.DataFrame]](list)
        for one in calibrated(store, self):  # one at a time: responses are large
            runs |= set(one.gathered.runs)
            left_out += [f"{one.corruption}: {who}" for who in one.gathered.left_out]
            digests.append(fits.digest_of(one.gathered))  # files are named, but they can change
            if one.fit.not_estimable:
                not_estimable[fit_name(one.gathered.dataset, one.corruption)] = list(one.fit.not_estimable)
            parts[IRT_ABILITIES].append(abilities(one, self.trait))
            parts[IRT_FITS].append(fit_line(one, self))
            parts[IRT_ITEMS].append(items(one))
            if one.first:
                parts[IRT_CURVES].append(curves(one, self.trait))
            if one.first and self.model == "auto":
                parts[IRT_CHOICE].append(choice(one, self))
        frames = {spec: pd.concat(found, ignore_index=True) for spec, found in parts.items()}
        frames[IRT_PLANE] = plane(frames[IRT_ITEMS], self.seed)
        frames[IRT_SEVERITY] = severity_shares(frames[IRT_ITEMS])
        parameters = {**asdict(self), **METHOD, "left_out": left_out, "answers": digests}
        if not_estimable:
            parameters["not_estimable"] = not_estimable
        return [spec.table(frames[spec], parameters, sorted(runs)) for spec in self.tables if spec in frames]


@dataclass(frozen=True)
class Reliability:
    """`analysis=reliability`: does ability order the models as accuracy does, the paper's check that fits are sound.

    Reads `predict` rows of full models, clean and under corruptions.
    """

    tables: ClassVar = (RELIABILITY,)

    query: Query = None
    model: IrtModel = "2pl"
    hold_out: Annotated[HoldOut, "how auto is chosen: by cells (some responses) or subjects (whole networks)"] = "cells"
    compat: Annotated[Compat, "seed001: fitted as the paper did, by variational inference"] = None
    seed: Annotated[Seed, "of held-out responses, and of compat"] = 0

    def __call__(self, store: Store) -> list[Table]:
        """Table reliability: a fit of its own for every data set, corruption and severity; clean is severity 0."""
        runs: set[str] = set()
        lines, digests = [], []
        not_estimable: dict[str, list[str]] = {}
        clean = [("clean", gathered) for gathered in clean_with_subjects(store, self.query)]
        for corruption, gathered in chain(clean, shifted_responses(store, self.query)):
            for severity in gathered.responses.items["severity"].drop_duplicates().tolist():
                if severity == 0 and corruption != "clean":
                    continue  # clean images have a line of their own
                part = at_severity(gathered, severity)
                fit = fits.fitted(part, self.model, self.compat, self.seed, self.hold_out)
                about = {"dataset": part.dataset, "corruption": corruption, "severity": severity}
                lines.append({**about, **_trust(part.responses, fit)})
                if fit.not_estimable:
                    not_estimable[f"{part.dataset} {corruption} {severity}"] = list(fit.not_estimable)
                digests.append(fits.digest_of(part))
            runs |= set(gathered.runs)
        parameters = {**asdict(self), "tau": METHOD["tau"], "answers": digests}
        if not_estimable:
            parameters["not_estimable"] = not_estimable
        return [RELIABILITY.table(RELIABILITY.frame(lines), parameters, sorted(runs))]


class Calibrated(NamedTuple):
    """One scale: the responses on it, and their fit.

    corruption: clean, or a kind with its clean images; `several` where a file has several kinds.
    severity:   0 clean, missing where all severities share the scale.
    """

    corruption: str
    severity: int | None
    calibration: str
    gathered: DatasetResponses
    fit: IrtFit

    @property
    def first(self) -> bool:
        """Whether this is the fit of a data set itself: its clean images, or all that a file holds."""
        return self.corruption == "clean" or self.gathered.fingerprint is None


def fit_name(dataset: str, corruption: str) -> str:
    """What a fit is called where scales that it could not learn are named, in tables and banks.

    >>> fit_name("zoo", "fog")
    'zoo fog'
    """
    return f"{dataset} {corruption}"


def calibrated(store: Store, how: Irt) -> Iterator[Calibrated]:
    """A fit of every data set's clean images, then of every kind of corruption on it.

    how: the analysis; its `calibration` of a kind is
    joint:    items are images at every severity, subjects have one ability; severities are on one scale.
    ability:  abilities are those on clean images, items are fitted to them severity by severity; one scale too.
    separate: a fit of its own for every severity; parameters of two severities are not on one scale.
    model "auto" is chosen on the clean images of the data set, for all its kinds.
    Raises FcaError for another word, and for `ability` where a subject has no clean responses.
    """
    for what, value, allowed in (("calibration", how.calibration, CALIBRATIONS), ("compat", how.compat, COMPAT)):
        check_choice(f"analysis.{what}", value, allowed)
    first: dict[str, Calibrated] = {}
    for gathered in clean_with_subjects(store, how.query, how.responses):
        fit = fits.fitted(gathered, how.model, how.compat, how.seed, how.hold_out)
        corruption = corruption_of(gathered)
        severity, calibration = (0, how.calibration) if corruption == "clean" else (None, "joint")
        first[gathered.dataset] = Calibrated(corruption, severity, calibration, gathered, fit)
        yield first[gathered.dataset]
    for kind, gathered in shifted_responses(store, how.query):
        clean = first.get(gathered.dataset)
        if how.calibration == "ability":
            yield Calibrated(kind, None, how.calibration, gathered, _on_clean(kind, gathered, clean))
            continue
        model = how.model if clean is None else clean.fit.model
        severities = gathered.responses.items["severity"].drop_duplicates().tolist()
        for severity in severities if how.calibration == "separate" else [None]:
            part = gathered if severity is None else at_severity(gathered, severity)
            fit = fits.fitted(part, model, how.compat, how.seed, how.hold_out)
            yield Calibrated(kind, severity, how.calibration, part, fit)


def corruption_of(gathered: DatasetResponses) -> str:
    """The corruption of the images of one data set: clean, the one kind that there is, or `several`.

    >>> from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a", "a@corruption/fog/1"])
    >>> corruption_of(DatasetResponses("zoo", None, Responses(np.ones((1, 2)), frame_of_subjects(["m"]), items), ()))
    'fog'
    """
    kinds = [kind for kind in gathered.responses.items["corruption"].unique() if kind != "clean"]
    return str(kinds[0]) if len(kinds) == 1 else SEVERAL if kinds else "clean"


def _on_clean(kind: str, gathered: DatasetResponses, clean: Calibrated | None) -> IrtFit:
    """The items of every severity on the abilities of the clean fit, as one fit of all of them."""
    subjects = gathered.responses.subjects["subject"]
    known = pd.Index([] if clean is None else clean.gathered.responses.subjects["subject"])
    lacking = subjects[~subjects.isin(known)]
    if clean is None or len(lacking):
        allowed = f"subjects of {kind} with responses to the clean images of {gathered.dataset} too"
        step = "run shift=clean for them, or take analysis.calibration=joint"
        raise FcaError("subjects without ability on clean images", ", ".join(lacking), allowed, step)
    place = known.get_indexer(pd.Index(subjects))
    fit = replace(clean.fit, ability=clean.fit.ability[place], ability_se=clean.fit.ability_se[place])
    severity, correct = gathered.responses.items["severity"].to_numpy(), gathered.responses.correct
    blocks = [correct[:, severity == at] for at in dict.fromkeys(severity.tolist())]  # items are in this order
    each = [fit_items(block, fit.ability, fit.model) for block in blocks]
    joined: dict[str, Any] = {name: np.concatenate([getattr(one, name) for one in each]) for name in _PER_ITEM}
    joined["log_posterior"] = float(sum(one.log_posterior for one in each))
    joined["iterations"], joined["converged"] = max(one.iterations for one in each), all(one.converged for one in each)
    of_items = tuple(dict.fromkeys(scale for one in each for scale in one.not_estimable))
    log_not_estimable(f"{gathered.dataset}, {kind}", of_items)
    joined["not_estimable"] = tuple(dict.fromkeys((*clean.fit.not_estimable, *of_items)))
    return replace(fit, **joined)


def abilities(one: Calibrated, trait: str) -> pd.DataFrame:
    """The subjects on the scale of one fit, ablest first."""
    responses = one.gathered.responses
    frame = ranked(responses.subjects, responses.correct, one.fit).assign(**_about(one), trait=trait)
    return IRT_ABILITIES.frame(frame).astype({"severity": "Int64"})


def ranked(
    subjects: pd.DataFrame, correct: Float[np.ndarray, "subjects items"], found: IrtFit | Scored
) -> pd.DataFrame:
    """One line a subject: its share of right responses and its ability with the 95 % interval, ablest first."""
    half = Z * found.ability_se
    frame = subjects[["subject", "model", "snapshot"]].assign(
        top1=np.nanmean(correct, axis=1),
        ability=found.ability,
        ability_low=found.ability - half,
        ability_high=found.ability + half,
        n_items=(~np.isnan(correct)).sum(axis=1),
    )
    return frame.sort_values("ability", ascending=False, kind="stable")


def fit_line(one: Calibrated, how: Irt) -> pd.DataFrame:
    """One line a fit: counts of responses, Kendall's tau between ability and accuracy, and held-out log loss.

    Nothing is held out where abilities come from other responses (calibration ability), and no cells of a single
    model, whose snapshots would stand on both sides.
    """
    responses = one.gathered.responses
    line = {**_about(one), "trait": how.trait, "calibration": one.calibration, **_trust(responses, one.fit)}
    line["share_missing"] = float(np.isnan(responses.correct).mean())
    alone = how.hold_out == "cells" and line["n_models"] == 1
    if not alone and (one.calibration != "ability" or one.corruption == "clean"):
        if one.first and how.model == "auto":
            held = fits.chosen(one.gathered, how.seed, how.hold_out).outer
        else:
            held = fits.held_out(one.gathered, one.fit.model, how.seed, how.hold_out)
        line |= {"hold_out": held.hold_out, "held_out_nll": held.nll, "held_out_auc": held.auc}
        line |= {"held_out_nll_low": held.low, "held_out_nll_high": held.high, "baseline_nll": held.baseline_nll}
    return IRT_FITS.frame([line]).astype({"severity": "Int64"})


def choice(one: Calibrated, how: Irt) -> pd.DataFrame:
    """One line a candidate of model "auto", by how well it predicts the held-out responses that choose, best first."""
    candidates = fits.chosen(one.gathered, how.seed, how.hold_out).candidates
    about = {"dataset": one.gathered.dataset, "hold_out": how.hold_out}
    lines = []
    for held in candidates:
        more = excess(held, candidates[0])
        line = {"irt_model": held.model, "inner_nll": held.nll, "inner_nll_low": held.low, "inner_nll_high": held.high}
        line |= dict(zip(map(str, interval_columns(EXCESS)), more, strict=True))
        line |= {"held_out_auc": held.auc, "held_out_top1": held.accuracy, "baseline_nll": held.baseline_nll}
        lines.append({**about, **line, "cells": held.cells, "chosen": held.model == one.fit.model})
    return IRT_CHOICE.frame(lines)


def items(one: Calibrated) -> pd.DataFrame:
    """One line an item: its parameters, and the share of subjects that were right."""
    responses, fit = one.gathered.responses, one.fit
    names = ("difficulty", "difficulty_se", "discrimination", "feasibility", "guess", "p_max", "expected_success")
    frame = responses.items[["severity", "item", "image_id", "label"]].assign(
        dataset=one.gathered.dataset,
        corruption=one.corruption,
        irt_model=fit.model,
        **{name: getattr(fit, name) for name in names},
        top1=np.nanmean(responses.correct, axis=0),
    )
    return IRT_ITEMS.frame(frame)


def _about(one: Calibrated) -> dict[str, Any]:
    return {"dataset": one.gathered.dataset, "corruption": one.corruption, "severity": one.severity}


def _trust(responses: Responses, fit: IrtFit) -> dict[str, Any]:
    """Which model was fitted to how much, and whether its abilities order the subjects as accuracy does."""
    models = responses.subjects["model"]
    tau = kendall(fit.ability, responses.accuracy, models.tolist())
    counts = {"n_subjects": len(models), "n_models": models.nunique(), "n_items": len(responses.items)}
    interval = {"tau": tau.value, "tau_low": tau.low, "tau_high": tau.high}
    labels = responses.items["label"]
    single = one_class(responses.correct, labels.to_numpy())
    named = {"one_class": tuple(responses.subjects["subject"][single]) if len(labels.dropna().unique()) > 1 else None}
    link = weakest_link(responses.correct, fit)
    apart: dict[str, Any] = {"not_estimable": fit.not_estimable}
    if link is not None:
        apart["shift_se"] = link.shift_se if np.isfinite(link.shift_se) else None
        apart["weak_link"] = fits.weak_link_note(responses, link) if link.is_weak else None
    return {"irt_model": fit.model, **counts, **interval, **named, **apart, "converged": fit.converged}


def ceiling_of(irt_model: str) -> str:
    """Which column has the chance of the best: p_max where the model has no feasibility.

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
    return frame.assign(ceiling=value, ceiling_is=named)[list(IRT_PLANE.columns)]


def severity_shares(items: pd.DataFrame) -> pd.DataFrame:
    """Histograms of difficulty, discrimination, and feasibility or p_max at every severity, on common bins.

    12 bins, and fewer (not below 6) where more than 3,000 lines would come of many corruptions.
    """
    histograms = 3 * items.groupby(["dataset", "corruption", "severity"]).ngroups
    bins = int(np.clip(LINES // histograms, *BINS))
    lines = []
    for (dataset, corruption), part in items.groupby(["dataset", "corruption"], sort=False):
        for parameter in ("difficulty", "discrimination", ceiling_of(part["irt_model"].iloc[0])):
            edges = _edges(part[parameter].to_numpy(), bins, unit=parameter in ("feasibility", "p_max"))
            for severity, of in part.groupby("severity", sort=True):
                counts, _ = np.histogram(np.clip(of[parameter], edges[0], edges[-1]), edges)
                about = {"dataset": dataset, "corruption": corruption, "parameter": parameter, "severity": severity}
                for low, high, count in zip(edges, edges[1:], counts, strict=False):
                    lines.append({**about, "bin_low": low, "bin_high": high, "share": count / len(of)})
    return IRT_SEVERITY.frame(lines)


def _edges(values: Float[np.ndarray, " items"], bins: int, unit: bool) -> Float[np.ndarray, " edges"]:
    if unit:
        return np.linspace(0, 1, bins + 1)
    low, high = np.quantile(values, [0.5 - INSIDE / 2, 0.5 + INSIDE / 2])
    if high - low < 1e-9:  # one value: a bin around it
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, bins + 1)


def curves(one: Calibrated, trait: str) -> pd.DataFrame:
    """Item characteristic curves of about 12 items, even over the order of difficulty, beside observed shares.

    mark: curve (probability at this ability) or observed (share right of n_subjects subjects of this mean ability).
    """
    responses, fit = one.gathered.responses, one.fit
    order = np.argsort(fit.difficulty, kind="stable")
    number = min(CURVES, len(order))
    picked = order[((np.arange(number) + 0.5) / number * len(order)).astype(int)]
    grid = np.linspace(fit.ability.min() - 0.5, fit.ability.max() + 0.5, GRID)
    probability = fit.bank.probability(grid)[:, picked].T
    groups = min(GROUPS, max(2, len(fit.ability) // 3))  # of like ability and size
    alike = np.array_split(np.argsort(fit.ability, kind="stable"), groups)
    lines = []
    for place, (at, curve) in enumerate(zip(picked, probability, strict=True), 1):
        about = {"dataset": one.gathered.dataset, "corruption": one.corruption, "trait": trait, "place": place}
        about |= responses.items.loc[at, ["item", "label"]].to_dict()
        about |= {"difficulty": fit.difficulty[at], "discrimination": fit.discrimination[at]}
        for ability, p in zip(grid, curve, strict=True):
            lines.append({**about, "mark": "curve", "ability": ability, "probability": p})
        for group in alike:
            known = group[~np.isnan(responses.correct[group, at])]
            if len(known):
                seen = {"ability": fit.ability[known].mean(), "probability": responses.correct[known, at].mean()}
                lines.append({**about, "mark": "observed", **seen, "n_subjects": len(known)})
    return IRT_CURVES.frame(lines).astype({"n_subjects": "Int64"})
