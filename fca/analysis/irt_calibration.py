"""Which answers are fitted together: clean images, and every kind of corruption with all its severities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fca.analysis.fits import chosen, fitted
from fca.analysis.responses import Gathered, at_severity, clean_with_subjects, shifted_responses
from fca.nouns import FcaError
from fca.stats import irt
from fca.stats.irt import IrtFit
from fca.store import Store

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

    >>> from fca.responses import Responses, frame_of_items, frame_of_subjects
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
