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
Z_95 = 1.959963984540054  # 95 % of a normal distribution
ITEMS_ON_PLANE = 2000  # items a data set on the plane
FEWEST_AND_MOST_BINS = (6, 12)  # of a histogram, at least and at most
MOST_HISTOGRAM_LINES = 3000  # of all histograms, which a page holds
SHARE_INSIDE_EDGES = 0.99  # of all items lie between the outer edges; the first and the last bin hold those beyond
MOST_CURVES = 12  # items a data set
POINTS_OF_CURVE = 41  # abilities of a curve
MOST_GROUPS = 6  # of subjects, at most, whose shares of right responses are beside a curve

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
        DATASET,
        CORRUPTION,
        SEVERITY,
        TRAIT,
        Column("calibration", str, "", "how severities share a scale"),
        *_FITTED,
        Column("share_missing", float, ".1%", "share without a response"),
        *interval_columns(TAU),
        HOLD_OUT,
        *interval_columns(HELD_OUT_NLL),
        HELD_OUT_AUC,
        BASELINE_NLL,
        ONE_CLASS,
        NOT_ESTIMABLE,
        SHIFT_SE,
        WEAK_LINK,
        CONVERGED,
    ),
)
IRT_CHOICE = TableSpec(
    "irt_choice",
    "Which model predicts held-out responses best?",
    f"{PAPER} takes one for all; {THEORY}",
    (
        DATASET,
        HOLD_OUT,
        IRT_MODEL,
        *interval_columns(INNER_NLL),
        *interval_columns(EXCESS),
        HELD_OUT_AUC,
        Column("held_out_top1", float, ".2%", "accuracy on held-out responses"),
        BASELINE_NLL,
        Column("cells", int, ".0f", "held-out responses"),
        fits.CHOSEN,
    ),
)
IRT_ITEMS = TableSpec(
    "irt_items",
    "How difficult and how discriminating is every item?",
    f"{PAPER}, eq. 3; {THEORY}",
    (
        DATASET,
        CORRUPTION,
        SEVERITY,
        fits.ITEM,
        IMAGE_ID,
        LABEL,
        IRT_MODEL,
        DIFFICULTY,
        Column("difficulty_se", float, ".2f", "standard error of the difficulty"),
        DISCRIMINATION,
        fits.FEASIBILITY,
        GUESS,
        fits.P_MAX,
        Column("expected_success", float, ".2f", "fitted chance of a right response, mean over subjects"),
        fits.ITEM_TOP1,
    ),
)
IRT_PLANE = TableSpec(
    "irt_plane",
    "Are difficult images also discriminating?",
    f"{PAPER}, figure 2; {THEORY}",
    (
        DATASET,
        CORRUPTION,
        SEVERITY,
        fits.ITEM,
        LABEL,
        IRT_MODEL,
        DIFFICULTY,
        DISCRIMINATION,
        CEILING,
        Column("ceiling_is", str, "", "which parameter the ceiling is"),
        fits.ITEM_TOP1,
    ),
)
IRT_SEVERITY = TableSpec(
    "irt_severity",
    "What does a corruption change as it gets more severe?",
    f"{PAPER}, figure 1; {THEORY}",
    (
        DATASET,
        CORRUPTION,
        fits.PARAMETER,
        SEVERITY,
        Column("bin_low", float, ".2f", "lower edge of the bin"),
        Column("bin_high", float, ".2f", "upper edge of the bin"),
        SHARE,
    ),
)
IRT_CURVES = TableSpec(
    "irt_curves",
    "Does the fitted curve of an item follow the responses?",
    f"{PAPER}, section 2; {THEORY}",
    (
        DATASET,
        CORRUPTION,
        TRAIT,
        fits.ITEM,
        LABEL,
        fits.PLACE,
        DIFFICULTY,
        DISCRIMINATION,
        MARK,
        ABILITY,
        PROBABILITY,
        fits.N_SUBJECTS,
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
    "plane": f"{ITEMS_ON_PLANE} items a data set, drawn by seed",
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
        """Fit item response models, and return tables of all fits.

        There is a fit for the clean images of each data set, for each file of responses, and for each kind of
        corruption of a data set (for each of its severities where calibration=separate).

        The tables are irt_abilities, irt_fits, irt_items, irt_plane, irt_severity and irt_curves, and with model=auto
        also irt_choice. A saved irt_items is an item bank: with it, new models are tested on fewer images. The tables
        irt_curves and irt_choice have only the fits of clean images and of files, on which the model is chosen. The
        parameter not_estimable lists the fits whose responses do not determine a scale such as the spread of ability,
        which is then taken from the prior. Raises FcaError as `calibrated` does.
        """
        runs: set[str] = set()
        left_out: list[str] = []
        digests: list[str] = []
        not_estimable: dict[str, list[str]] = {}
        frames_by_spec = defaultdict[TableSpec, list[pd.DataFrame]](list)

        for scale in calibrated(store, self):  # one at a time, as the responses of all would fill the memory
            runs |= set(scale.gathered.runs)
            left_out += [f"{scale.corruption}: {reason}" for reason in scale.gathered.left_out]
            # digest of the responses, for the tables' ids: a file can change under its name
            digests.append(fits.digest_of(scale.gathered))
            if scale.fit.not_estimable:
                not_estimable[fit_name(scale.gathered.dataset, scale.corruption)] = list(scale.fit.not_estimable)

            frames_by_spec[IRT_ABILITIES].append(abilities(scale, self.trait))
            frames_by_spec[IRT_FITS].append(fit_line(scale, self))
            frames_by_spec[IRT_ITEMS].append(items(scale))
            if scale.is_clean_or_of_file:
                frames_by_spec[IRT_CURVES].append(curves(scale, self.trait))
            if scale.is_clean_or_of_file and self.model == "auto":
                frames_by_spec[IRT_CHOICE].append(choice(scale, self))

        joined_frames = {spec: pd.concat(frames, ignore_index=True) for spec, frames in frames_by_spec.items()}
        joined_frames[IRT_PLANE] = plane(joined_frames[IRT_ITEMS], self.seed)
        joined_frames[IRT_SEVERITY] = severity_shares(joined_frames[IRT_ITEMS])

        # "answers": the digests of all responses, under the name by which the ids of saved tables are made
        parameters = {**asdict(self), **METHOD, "left_out": left_out, "answers": digests}
        if not_estimable:
            parameters["not_estimable"] = not_estimable
        return [
            spec.table(joined_frames[spec], parameters, sorted(runs)) for spec in self.tables if spec in joined_frames
        ]


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
        """Table reliability: one line for each data set, corruption and severity, each with a fit of its own.

        The clean images of a data set have one line, as severity 0 of the corruption "clean". The parameter
        not_estimable lists the fits whose responses do not determine a spread of ability or difficulty, which is then
        taken from the prior. Raises FcaError as `clean_with_subjects` and `shifted_responses` do.
        """
        runs: set[str] = set()
        lines: list[dict[str, Any]] = []
        digests: list[str] = []
        not_estimable: dict[str, list[str]] = {}

        clean = [("clean", gathered) for gathered in clean_with_subjects(store, self.query)]
        for corruption, gathered in chain(clean, shifted_responses(store, self.query)):
            for severity in gathered.responses.items["severity"].drop_duplicates().tolist():
                if severity == 0 and corruption != "clean":
                    continue  # responses to a kind of corruption include the clean images, which have a line already

                at_level = at_severity(gathered, severity)
                fit = fits.fitted(at_level, self.model, self.compat, self.seed, self.hold_out)
                lines.append(
                    {
                        "dataset": at_level.dataset,
                        "corruption": corruption,
                        "severity": severity,
                        **_fit_summary(at_level.responses, fit),
                    }
                )
                if fit.not_estimable:
                    not_estimable[f"{at_level.dataset} {corruption} {severity}"] = list(fit.not_estimable)
                digests.append(fits.digest_of(at_level))  # of the responses, for the table's id
            runs |= set(gathered.runs)

        parameters = {**asdict(self), "tau": METHOD["tau"], "answers": digests}  # tau: how it is computed, in words
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
    def is_clean_or_of_file(self) -> bool:
        """Whether this is the fit of a data set itself: its clean images, or all responses of a file.

        Responses of a file have no fingerprint, which identifies the images of a stored data set.
        """
        return self.corruption == "clean" or self.gathered.fingerprint is None


def fit_name(dataset: str, corruption: str) -> str:
    """Name of a fit where tables and banks list the scales that it could not estimate.

    >>> fit_name("zoo", "fog")
    'zoo fog'
    """
    return f"{dataset} {corruption}"


def calibrated(store: Store, analysis: Irt) -> Iterator[Calibrated]:
    """Yield the fit of the clean images of every data set, then that of every kind of corruption of every data set.

    Files of responses (analysis.responses) are fitted with the clean images, each as a whole, even if its images are
    corrupted.
    analysis.calibration is how the severities of a kind of corruption are fitted:
    joint:    items are images at every severity, each subject has one ability; all severities are on one scale.
    ability:  abilities are those on clean images, items are fitted to them severity by severity; also on one scale.
    separate: a separate fit for every severity; parameters of two severities are not on one scale.

    Model "auto" is chosen on the clean images of a data set, for all kinds of corruption of it.
    Raises FcaError for an unknown calibration or compat, for `ability` where a subject has no clean responses, and as
    `clean_with_subjects` and `shifted_responses` do.
    """
    check_choice("analysis.calibration", analysis.calibration, CALIBRATIONS)
    check_choice("analysis.compat", analysis.compat, COMPAT)

    scale_of_data_set: dict[str, Calibrated] = {}
    # clean images of stored runs, and files
    for gathered in clean_with_subjects(store, analysis.query, analysis.responses):
        fit = fits.fitted(gathered, analysis.model, analysis.compat, analysis.seed, analysis.hold_out)
        corruption = corruption_of(gathered)  # of the items of a file; clean for stored responses
        is_clean = corruption == "clean"
        scale = Calibrated(
            corruption,
            severity=0 if is_clean else None,  # all severities of a file share one scale
            # a file is always fitted as a whole: only corruptions of stored runs are fitted by severity, below
            calibration=analysis.calibration if is_clean else "joint",
            gathered=gathered,
            fit=fit,
        )
        scale_of_data_set[gathered.dataset] = scale
        yield scale

    for kind, gathered in shifted_responses(store, analysis.query):
        clean = scale_of_data_set.get(gathered.dataset)  # None where only corrupted images have responses
        if analysis.calibration == "ability":
            fit = _fit_at_clean_abilities(kind, gathered, clean)
            yield Calibrated(kind, severity=None, calibration="ability", gathered=gathered, fit=fit)  # on one scale
            continue

        model = analysis.model if clean is None else clean.fit.model
        severities = [None]  # one fit of all severities together
        if analysis.calibration == "separate":
            # `gathered` also has the responses to clean images, as severity 0: they are fitted again, for the subjects
            # of this kind
            severities = gathered.responses.items["severity"].drop_duplicates().tolist()
        for severity in severities:
            on_scale = gathered if severity is None else at_severity(gathered, severity)  # the responses on one scale
            fit = fits.fitted(on_scale, model, analysis.compat, analysis.seed, analysis.hold_out)
            yield Calibrated(kind, severity, analysis.calibration, on_scale, fit)


def corruption_of(gathered: DatasetResponses) -> str:
    """The corruption of the images of one data set: clean, the one kind that there is, or `several`.

    >>> from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
    >>> items = frame_of_items(["a", "a@corruption/fog/1"])
    >>> corruption_of(DatasetResponses("zoo", None, Responses(np.ones((1, 2)), frame_of_subjects(["m"]), items), ()))
    'fog'
    """
    kinds = [kind for kind in gathered.responses.items["corruption"].unique() if kind != "clean"]
    if not kinds:
        return "clean"
    return str(kinds[0]) if len(kinds) == 1 else SEVERAL


def _fit_at_clean_abilities(kind: str, gathered: DatasetResponses, clean: Calibrated | None) -> IrtFit:
    """Fit the items of each severity at the abilities of the clean fit, and join them into one fit of all severities.

    kind: of corruption.
    gathered: responses to images under it, at all severities.
    clean: fit of the clean images; None where there is none. Raises FcaError, naming the subjects that lack an ability
    on clean images.
    """
    subjects = gathered.responses.subjects["subject"]
    clean_subjects = pd.Index([] if clean is None else clean.gathered.responses.subjects["subject"])
    lacking_subjects = subjects[~subjects.isin(clean_subjects)]
    if clean is None or len(lacking_subjects):
        allowed = f"subjects of {kind} with responses to the clean images of {gathered.dataset} too"
        step = "run shift=clean for them, or take analysis.calibration=joint"
        raise FcaError("subjects without ability on clean images", ", ".join(lacking_subjects), allowed, step)

    clean_positions = clean_subjects.get_indexer(pd.Index(subjects))
    ability = clean.fit.ability[clean_positions]
    ability_se = clean.fit.ability_se[clean_positions]

    # items are ordered by severity, so the parameters of severities in that order are those of all items
    severity_of_item = gathered.responses.items["severity"].to_numpy()
    fits_by_severity = []
    for severity in dict.fromkeys(severity_of_item.tolist()):
        responses = gathered.responses.correct[:, severity_of_item == severity]
        fits_by_severity.append(fit_items(responses, ability, clean.fit.model))

    not_estimable_scales = tuple(dict.fromkeys(scale for fit in fits_by_severity for scale in fit.not_estimable))
    log_not_estimable(f"{gathered.dataset}, {kind}", not_estimable_scales)

    item_parameters: dict[str, Any] = {
        name: np.concatenate([getattr(fit, name) for fit in fits_by_severity])
        for name in _PER_ITEM  # the fields of a fit with one value for each item
    }
    return replace(
        clean.fit,
        ability=ability,
        ability_se=ability_se,
        **item_parameters,
        log_posterior=float(sum(fit.log_posterior for fit in fits_by_severity)),
        iterations=max(fit.iterations for fit in fits_by_severity),
        converged=all(fit.converged for fit in fits_by_severity),
        not_estimable=tuple(dict.fromkeys((*clean.fit.not_estimable, *not_estimable_scales))),
    )


def abilities(scale: Calibrated, trait: str) -> pd.DataFrame:
    """Lines of table irt_abilities: the subjects on the scale of one fit, ablest first.

    trait: what the latent variable is called.
    """
    responses = scale.gathered.responses
    frame = ranked(responses.subjects, responses.correct, scale.fit)
    frame = frame.assign(**_scale_columns(scale), trait=trait)
    return IRT_ABILITIES.frame(frame).astype({"severity": "Int64"})


def ranked(
    subjects: pd.DataFrame, correct: Float[np.ndarray, "subjects items"], estimates: IrtFit | Scored
) -> pd.DataFrame:
    """One line per subject: its share of right responses and its ability with the 95 % interval, ablest first.

    correct: 1 right, 0 wrong, NaN missing.
    estimates: abilities of these subjects, in the same order.
    """
    half_width = Z_95 * estimates.ability_se
    frame = subjects[["subject", "model", "snapshot"]].assign(
        top1=np.nanmean(correct, axis=1),
        ability=estimates.ability,
        ability_low=estimates.ability - half_width,
        ability_high=estimates.ability + half_width,
        n_items=(~np.isnan(correct)).sum(axis=1),
    )
    return frame.sort_values("ability", ascending=False, kind="stable")


def fit_line(scale: Calibrated, analysis: Irt) -> pd.DataFrame:
    """The line of a fit in table irt_fits: its size, Kendall's tau of ability with accuracy, and the held-out log loss.

    Nothing is held out where abilities come from other responses (calibration ability). Cells (pairs of network and
    item) are not held out where all subjects are snapshots of a single network: all snapshots' responses to an item are
    hidden together, so that a hidden item would have no response left.
    """
    responses = scale.gathered.responses
    line = {
        **_scale_columns(scale),
        "trait": analysis.trait,
        "calibration": scale.calibration,
        **_fit_summary(responses, scale.fit),
        "share_missing": float(np.isnan(responses.correct).mean()),
    }

    # with calibration ability, only the fit of clean images estimates abilities; the others take them from it
    has_own_abilities = scale.calibration != "ability" or scale.corruption == "clean"
    is_split_possible = analysis.hold_out != "cells" or line["n_models"] > 1
    if has_own_abilities and is_split_possible:
        line |= _held_out_columns(scale, analysis)
    return IRT_FITS.frame([line]).astype({"severity": "Int64"})


def _held_out_columns(scale: Calibrated, analysis: Irt) -> dict[str, Any]:
    """How well the model predicts responses that it was not fitted to, as columns of table irt_fits.

    Model "auto" is chosen on the clean images of a data set, or on all responses of a file. A fit of these
    (`scale.is_clean_or_of_file`) is scored on responses that took no part in the choice. All other fits are scored on
    any held-out responses, as is done for a model given by name.
    """
    if scale.is_clean_or_of_file and analysis.model == "auto":
        score = fits.chosen(scale.gathered, analysis.seed, analysis.hold_out).outer
    else:
        score = fits.held_out(scale.gathered, scale.fit.model, analysis.seed, analysis.hold_out)
    return {
        "hold_out": score.hold_out,
        "held_out_nll": score.nll,
        "held_out_auc": score.auc,
        "held_out_nll_low": score.low,
        "held_out_nll_high": score.high,
        "baseline_nll": score.baseline_nll,
    }


def choice(scale: Calibrated, analysis: Irt) -> pd.DataFrame:
    """Lines of table irt_choice: the candidates of model "auto", best first, with the scores by which one is chosen.

    The scores are on responses that were held out of the fits. They flatter the chosen model a little, as it is the
    best of several on the same responses.

    Each candidate also has its excess, the log loss above that of the best candidate.
    scale: the fit of the responses on which the model is chosen (`scale.is_clean_or_of_file`).
    """
    candidates = fits.chosen(scale.gathered, analysis.seed, analysis.hold_out).candidates
    best = candidates[0]
    lines = []
    for candidate in candidates:
        loss_above_best = excess(candidate, best)  # with its interval
        excess_columns = map(str, interval_columns(EXCESS))
        lines.append(
            {
                "dataset": scale.gathered.dataset,
                "hold_out": analysis.hold_out,
                "irt_model": candidate.model,
                "inner_nll": candidate.nll,
                "inner_nll_low": candidate.low,
                "inner_nll_high": candidate.high,
                **dict(zip(excess_columns, loss_above_best, strict=True)),
                "held_out_auc": candidate.auc,
                "held_out_top1": candidate.accuracy,
                "baseline_nll": candidate.baseline_nll,
                "cells": candidate.cells,
                "chosen": candidate.model == scale.fit.model,
            }
        )
    return IRT_CHOICE.frame(lines)


def items(scale: Calibrated) -> pd.DataFrame:
    """Lines of table irt_items for one fit: each item's parameters, and the share of subjects that were right on it."""
    responses, fit = scale.gathered.responses, scale.fit
    frame = responses.items[["severity", "item", "image_id", "label"]].assign(
        dataset=scale.gathered.dataset,
        corruption=scale.corruption,
        irt_model=fit.model,
        difficulty=fit.difficulty,
        difficulty_se=fit.difficulty_se,
        discrimination=fit.discrimination,
        feasibility=fit.feasibility,
        guess=fit.guess,
        p_max=fit.p_max,
        expected_success=fit.expected_success,
        top1=np.nanmean(responses.correct, axis=0),
    )
    return IRT_ITEMS.frame(frame)


def _scale_columns(scale: Calibrated) -> dict[str, Any]:
    return {"dataset": scale.gathered.dataset, "corruption": scale.corruption, "severity": scale.severity}


def _fit_summary(responses: Responses, fit: IrtFit) -> dict[str, Any]:
    """Columns on one fit: the model, its size, and whether abilities can be trusted to order the subjects.

    The columns on trust are Kendall's tau of ability with accuracy, the subjects that nearly always predict a single
    class, and the scales that the responses do not determine. `shift_se` is about the two groups of subjects that have
    the fewest items in common: it is the standard error of the difference of their mean abilities. Where no two groups
    stand apart, for example because all subjects responded to all items, this column is missing.
    """
    models = responses.subjects["model"]
    labels = responses.items["label"]
    tau = kendall(fit.ability, responses.accuracy, models.tolist())  # its interval is over models

    single_class_subjects = None  # not known without labels of two classes
    if len(labels.dropna().unique()) > 1:
        answers_one_class = one_class(responses.correct, labels.to_numpy())
        single_class_subjects = tuple(responses.subjects["subject"][answers_one_class])

    link_columns: dict[str, Any] = {}
    link = weakest_link(responses.correct, fit)
    if link is not None:  # two groups stand apart
        # the standard error is infinite if no informative response links the groups; a table holds no infinity, so the
        # note states it in words
        link_columns["shift_se"] = link.shift_se if np.isfinite(link.shift_se) else None
        link_columns["weak_link"] = fits.weak_link_note(responses, link) if link.is_weak else None

    return {
        "irt_model": fit.model,
        "n_subjects": len(models),
        "n_models": models.nunique(),
        "n_items": len(responses.items),
        "tau": tau.value,
        "tau_low": tau.low,
        "tau_high": tau.high,
        "one_class": single_class_subjects,
        "not_estimable": fit.not_estimable,
        **link_columns,
        "converged": fit.converged,
    }


def ceiling_of(irt_model: str) -> str:
    """Name of the column with an item's highest chance of a right response: p_max where the model has no feasibility.

    >>> ceiling_of("2pl"), ceiling_of("4pl")
    ('p_max', 'feasibility')
    """
    return "feasibility" if irt_model in ("3pl-upper", "4pl") else "p_max"


def plane(items: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Lines of table irt_plane: a sample of the items, with the highest chance of a right response as their ceiling.

    Up to 2,000 items of every data set are drawn by the seed, equally many of each corruption.
    items: the frame of table irt_items.
    """
    samples: list[pd.DataFrame] = []
    for _, items_of_dataset in items.groupby("dataset", sort=False):
        sample_size = ITEMS_ON_PLANE // items_of_dataset["corruption"].nunique()
        for _, items_of_corruption in items_of_dataset.groupby("corruption", sort=False):
            shuffled = np.random.default_rng(seed).permutation(len(items_of_corruption))
            positions = np.sort(shuffled[:sample_size])
            samples.append(items_of_corruption.iloc[positions])
    frame = pd.concat(samples, ignore_index=True)

    ceiling_column = frame["irt_model"].map(ceiling_of)  # feasibility if the model has one, else p_max
    ceiling = frame["feasibility"].where(ceiling_column == "feasibility", frame["p_max"])
    return frame.assign(ceiling=ceiling, ceiling_is=ceiling_column)[list(IRT_PLANE.columns)]


def severity_shares(items: pd.DataFrame) -> pd.DataFrame:
    """Lines of table irt_severity: histograms of difficulty, discrimination, and feasibility or p_max at each severity.

    All severities of a corruption have the same bins: equal parts of 0 to 1 for a probability, else of the central 99 %
    of the values. The outer bins also hold the values beyond them. A histogram has 12 bins, or fewer (at least 6) where
    many corruptions would give more than 3,000 lines.
    items: the frame of table irt_items.
    """
    n_histograms = 3 * items.groupby(["dataset", "corruption", "severity"]).ngroups  # three parameters
    n_bins = int(np.clip(MOST_HISTOGRAM_LINES // n_histograms, *FEWEST_AND_MOST_BINS))

    lines = []
    for (dataset, corruption), items_of_corruption in items.groupby(["dataset", "corruption"], sort=False):
        ceiling_column = ceiling_of(items_of_corruption["irt_model"].iloc[0])
        for parameter in ("difficulty", "discrimination", ceiling_column):
            is_probability = parameter in ("feasibility", "p_max")
            edges = _bin_edges(items_of_corruption[parameter].to_numpy(), n_bins, is_probability)
            for severity, items_at_severity in items_of_corruption.groupby("severity", sort=True):
                clipped_values = np.clip(items_at_severity[parameter], edges[0], edges[-1])
                counts, _ = np.histogram(clipped_values, edges)
                for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
                    lines.append(
                        {
                            "dataset": dataset,
                            "corruption": corruption,
                            "parameter": parameter,
                            "severity": severity,
                            "bin_low": low,
                            "bin_high": high,
                            "share": count / len(items_at_severity),
                        }
                    )
    return IRT_SEVERITY.frame(lines)


def _bin_edges(values: Float[np.ndarray, " items"], n_bins: int, is_probability: bool) -> Float[np.ndarray, " edges"]:
    """Edges of equal bins: from 0 to 1 for a probability, else over the central 99 % of the values."""
    if is_probability:
        return np.linspace(0, 1, n_bins + 1)

    low, high = np.quantile(values, [0.5 - SHARE_INSIDE_EDGES / 2, 0.5 + SHARE_INSIDE_EDGES / 2])
    if high - low < 1e-9:  # a single value: a bin around it
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, n_bins + 1)


def curves(scale: Calibrated, trait: str) -> pd.DataFrame:
    """Lines of table irt_curves: fitted curves of up to 12 items, and the shares of right responses beside them.

    The items are evenly spaced by rank of difficulty. Lines whose mark is "curve" have the fitted probability of a
    right response at an ability. Those with mark "observed" have the share of right responses of a group of
    `n_subjects` subjects of similar ability, at the mean ability of the group.
    trait: what the latent variable is called.
    """
    responses, fit = scale.gathered.responses, scale.fit

    # items evenly spaced along the order of difficulty
    by_difficulty = np.argsort(fit.difficulty, kind="stable")
    n_curves = min(MOST_CURVES, len(by_difficulty))
    ranks = ((np.arange(n_curves) + 0.5) / n_curves * len(by_difficulty)).astype(int)  # middles of equal parts
    curve_items = by_difficulty[ranks]
    ability_grid = np.linspace(fit.ability.min() - 0.5, fit.ability.max() + 0.5, POINTS_OF_CURVE)
    curve_probabilities = fit.bank.probability(ability_grid)[:, curve_items].T  # items x abilities

    # groups of subjects with similar ability, as equal in size as possible
    n_groups = min(MOST_GROUPS, max(2, len(fit.ability) // 3))  # of three subjects or more, where there are that many
    subject_groups = np.array_split(np.argsort(fit.ability, kind="stable"), n_groups)

    lines = []
    for place, (item, probabilities) in enumerate(zip(curve_items, curve_probabilities, strict=True), 1):
        item_columns = {
            "dataset": scale.gathered.dataset,
            "corruption": scale.corruption,
            "trait": trait,
            "place": place,
            **responses.items.loc[item, ["item", "label"]].to_dict(),
            "difficulty": fit.difficulty[item],
            "discrimination": fit.discrimination[item],
        }
        for ability, probability in zip(ability_grid, probabilities, strict=True):
            lines.append({**item_columns, "mark": "curve", "ability": ability, "probability": probability})

        for group in subject_groups:
            responding = group[~np.isnan(responses.correct[group, item])]
            if not len(responding):  # nobody of the group has a response to this item
                continue
            lines.append(
                {
                    **item_columns,
                    "mark": "observed",
                    "ability": fit.ability[responding].mean(),
                    "probability": responses.correct[responding, item].mean(),
                    "n_subjects": len(responding),
                }
            )
    return IRT_CURVES.frame(lines).astype({"n_subjects": "Int64"})
