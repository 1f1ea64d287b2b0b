"""Fits of item response theory, each made once per process for all analyses of a report, and columns that tables share.

The shared columns and the source are defined here, because every table of this study comes from a fit.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Integer

from fca.progress import track, waiting
from fca.studies.irt.fittable import unfit
from fca.studies.irt.not_estimable import log_not_estimable, not_estimable_note
from fca.studies.irt.stats import (
    HOLD_OUTS,
    Choice,
    HeldOut,
    IrtFit,
    Link,
    choose_model,
    fit_irt,
    held_out_fit,
    weakest_link,
)
from fca.studies.irt.stats.model import NAMES
from fca.tables.answers import DatasetResponses
from fca.tables.responses import Responses
from fca.tables.table import IMAGES, TOP1
from fca.types import Column
from fca.validation import Allowed

PAPER = "Sharma et al. (Do models see corruption as we see?, 2023)"
THEORY = "models of responses compared as in arXiv:2106.00840"

SUBJECT = Column("subject", str, "", "model, its snapshot, or person")
ITEM = Column("item", str, "", "image, or image under a corruption")
TRAIT = Column("trait", str, "", "what the latent variable of the subjects is called")
IRT_MODEL = Column("irt_model", str, "", "model of item response theory")
ABILITY = Column(
    "ability", float, ".3f", "ability in standard deviations of the subjects (logits: 1pl, or no spread estimable)"
)
DIFFICULTY = Column("difficulty", float, ".2f", "difficulty of the item, in units of ability")
DISCRIMINATION = Column("discrimination", float, ".2f", "how sharply the item separates subjects by ability")
FEASIBILITY = Column("feasibility", float, ".2f", "highest chance of a right response that any ability reaches")
P_MAX = Column("p_max", float, ".2f", "the ablest subject's chance of a right response")
N_SUBJECTS = Column("n_subjects", int, ".0f", "subjects")
N_MODELS = Column("n_models", int, ".0f", "models of the subjects")
N_ITEMS = Column("n_items", int, ".0f", "items")
PARAMETER = Column("parameter", str, "", "parameter of the items")
ITEM_TOP1 = TOP1.with_format(".0%", "share of subjects with the right response")
IMAGES_OF_CLASS = IMAGES.with_format(".0f", "images of the class")
SHARE = Column("share", float, ".1%", "share of the items")
SHARE_OF_CLASS = SHARE.with_format(".1%", "share of the class's images")
MODAL_WRONG_SHARE = Column("modal_wrong_share", float, ".0%", "share of subjects that predict the same wrong class")
NOT_ESTIMABLE = Column("not_estimable", tuple, "", "scales that the responses leave open; the prior's are taken")
HIDDEN = {"cells": "cells: a tenth of the responses", "subjects": "subjects: whole networks"}
HELD_OUT_NLL = Column("held_out_nll", float, ".4f", "log loss of held-out responses, which chose no model")
CHOSEN = Column("chosen", bool, "", "whether this model is used")
PLACE = Column("place", int, ".0f", "rank of the item's difficulty")
HOLD_OUT = Column("hold_out", str, "", "what was held out", HIDDEN)

IrtModel = Annotated[
    str,
    Allowed(choices=(*NAMES, "auto")),
    "of item responses: 1pl, 2pl, 3pl, 3pl-upper (feasibility), 4pl, or auto: what predicts held-out responses best",
]
HoldOut = Annotated[str, Allowed(choices=HOLD_OUTS)]
Compat = Annotated[str | None, Allowed(choices=("seed001",))]

log = logging.getLogger(__name__)
LONG = 500_000  # cells, of which a fit can take seconds

_results: dict[Hashable, Any] = {}  # by the settings and a digest of the responses, not by the responses themselves


def fitted(
    gathered: DatasetResponses, model: str = "2pl", compat: str | None = None, seed: int = 0, hold_out: str = "cells"
) -> IrtFit:
    """Fit these responses with `fca.studies.irt.stats.fit_irt`, once per process for the same responses and settings.

    model: name of an item response model, or "auto" for the one that predicts held-out responses best.
    hold_out: what "auto" holds out, "cells" (some responses) or "subjects" (whole networks).
    compat: None for the default fit; "seed001" for variational inference as in the paper (Sharma et al. 2023).
    seed: of the responses held out by "auto", and of the noise at the start under compat.

    A warning lists scales, such as the spread of ability, that the responses do not determine. Another one names a
    group of subjects whose abilities cannot be compared with the others, because too few common items link them.
    Raises FcaError for responses that cannot be fitted.
    """
    name = chosen(gathered, seed, hold_out).model if model == "auto" else model

    def make_fit(correct: np.ndarray) -> IrtFit:  # logs the warnings of the fit, so that they too come only once
        fit = fit_irt(correct, name, compat=compat, seed=seed)
        log_not_estimable(gathered.dataset, fit.not_estimable)
        link = weakest_link(correct, fit)
        if link is not None and link.is_weak:
            log.warning("%s: %s", gathered.dataset, weak_link_note(gathered.responses, link))
        return fit

    return _compute_once(gathered, ("fit", name, compat, seed), make_fit)


def not_estimable_lines(fits: pd.DataFrame) -> Iterator[str]:
    """A sentence for each fit that could not estimate a scale of its prior, such as the spread of ability.

    fits: a table with a line for each fit. The column not_estimable has the names of the scales; it is missing, empty
    or not a tuple where all were estimated.

    >>> list(not_estimable_lines(pd.DataFrame([{"dataset": "zoo", "not_estimable": ("spread of ability",)}])))
    ['zoo: these responses do not determine the spread of ability: estimates and intervals lean on the prior.']
    """
    for line in fits.to_dict("records"):
        scales = line.get(NOT_ESTIMABLE)
        if not isinstance(scales, tuple) or not scales:  # a missing value is None or NaN
            continue
        corruption = line.get("corruption", "clean")
        ending = "" if corruption == "clean" else f" ({corruption})"  # the data set alone means its clean images
        yield f"{line['dataset']}: {not_estimable_note(scales)}{ending}."


def priors_taken(fitted_sets: Iterable[tuple[DatasetResponses, IrtFit]]) -> dict[str, Any]:
    """The parameter `not_estimable` of a table: the scales of the prior that its fits could not estimate, by data set.

    fitted_sets: the responses of each data set with their fit.
    The dictionary is empty if all scales were estimated, so that a table then has no such parameter. Parameters enter
    the id of a table, which should depend on this one only where there is something to state.
    """
    scales_by_dataset = {
        gathered.dataset: list(fit.not_estimable) for gathered, fit in fitted_sets if fit.not_estimable
    }
    return {"not_estimable": scales_by_dataset} if scales_by_dataset else {}


def weak_link_note(responses: Responses, link: Link) -> str:
    """A clause that names a group of subjects whose abilities cannot be compared with the others, and gives the reason.

    Abilities of two groups with different items are on one scale only through the items to which both responded.
    link: the group of subjects that has least in common with the others (`weakest_link`), if its link is weak.

    `link.shift_se` is the standard error of the difference of the two groups' mean abilities by the responses alone,
    `link.kept` the share of this difference that the prior leaves.
    """
    names = responses.subjects["subject"][link.group].tolist()
    shown_names = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    group = f"{len(names)} subject{'s' if len(names) > 1 else ''} ({shown_names})"
    if not np.isfinite(link.shift_se):  # no informative response links the group: the difference can be anything
        reason = "share only items, or subjects, that were always right or always wrong"
        return f"{group} and the others {reason}: do not compare their abilities"

    error = f"the difference of their mean abilities has a standard error of {link.shift_se:.2f} by the responses"
    shrinkage = f"the prior draws it to about {link.kept:.0%} of what they show: do not compare their abilities"
    return f"{group} and the others are linked by {link.responses} responses: {error}, and {shrinkage}"


def chosen(gathered: DatasetResponses, seed: int = 0, hold_out: str = "cells") -> Choice:
    """Choose the model that predicts held-out responses best (`fca.studies.irt.stats.choose_model`).

    hold_out: "cells" (some responses) or "subjects" (whole networks). All snapshots of a network are held out together.

    The choice is computed once per process for the same responses and settings, with a progress bar. A warning names
    networks without which no common items link the other subjects.
    """
    network = networks(gathered)
    show_progress = partial(track, what="fits")

    def make_choice(correct: np.ndarray) -> Choice:
        choice = choose_model(correct, seed=seed, hold_out=hold_out, network=network, watch=show_progress)
        _log_unlinked(gathered, choice.outer)
        return choice

    return _compute_once(gathered, ("choice", seed, hold_out, *network), make_choice)


def held_out(gathered: DatasetResponses, model: str, seed: int = 0, hold_out: str = "cells") -> HeldOut:
    """Score one model of item responses on held-out responses (`fca.studies.irt.stats.held_out_fit`).

    hold_out: "cells" (some responses) or "subjects" (whole networks). All snapshots of a network are held out together.

    The score is computed once per process for the same responses and settings. A warning names networks without which
    no common items link the other subjects.
    """
    network = networks(gathered)

    def make_score(correct: np.ndarray) -> HeldOut:
        score = held_out_fit(correct, model, seed=seed, hold_out=hold_out, network=network)
        _log_unlinked(gathered, score)
        return score

    return _compute_once(gathered, ("held out", model, seed, hold_out, *network), make_score)


def _log_unlinked(gathered: DatasetResponses, score: HeldOut) -> None:
    """Log a warning if items could not be fitted to all other subjects when some networks were held out.

    Networks are held out fold by fold, a fifth of them at a time, and items are fitted to the subjects (snapshots) of
    the others. If no common items link all of these, items are fitted to the linked part with most subjects alone.
    `score.unlinked` has the networks of the folds where this happened, by position. The warning names them, and states
    how many of them could not be predicted at all. Nothing is logged if there are none.
    """
    if not score.unlinked:
        return

    models = gathered.responses.subjects["model"].drop_duplicates()  # the networks, in the order of their positions
    names = models.iloc[list(score.unlinked)].tolist()
    shown_names = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    n_unpredicted = sum(score.number[network] == 0 for network in score.unlinked)  # number: of predicted responses
    ending = f", and {n_unpredicted} of these networks not at all" if n_unpredicted else ""
    log.warning(
        "%s: no common item links the other subjects where %s are held out, each with its fold: their responses are "
        "predicted by the part with most subjects, as far as it has their items%s",
        gathered.dataset,
        shown_names,
        ending,
    )


def networks(gathered: DatasetResponses) -> Integer[np.ndarray, " subjects"]:
    """The network that each subject is, or is a snapshot of, as a number 0..k-1."""
    return pd.factorize(gathered.responses.subjects["model"])[0]


def digest_of(gathered: DatasetResponses) -> str:
    """Digest of which responses are right, wrong and missing, without names of subjects and items: 32 hex digits."""
    correct = np.ascontiguousarray(gathered.responses.correct)
    return hashlib.blake2b(correct.tobytes(), digest_size=16).hexdigest()


def _compute_once(gathered: DatasetResponses, settings: tuple[Hashable, ...], make: Callable[[np.ndarray], Any]) -> Any:
    """The result of `make(correct)`, computed once per process for the same responses and settings.

    make: computes the result from the matrix of right (1), wrong (0) and missing (NaN) responses.
    settings: everything else on which the result depends.
    Raises FcaError for responses that cannot be fitted. A waiting message is shown for many responses.
    """
    correct = gathered.responses.correct
    key = (digest_of(gathered), correct.shape, *settings)
    if key in _results:
        return _results[key]

    problem = unfit(gathered)  # an error if the responses cannot be fitted
    if problem is not None:
        raise problem
    subjects, items = correct.shape
    with waiting(f"fitting {subjects} subjects x {items:,} items", long=correct.size >= LONG):
        _results[key] = make(correct)
    return _results[key]
