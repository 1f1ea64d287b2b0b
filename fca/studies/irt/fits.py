"""Fits that several analyses of one report need are made once in a process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

from fca.stats.irt import HeldOut, IrtFit, check_responses, choose_model, fit_irt, held_out_fit
from fca.studies.answers import Gathered
from fca.types import FcaError

Made = TypeVar("Made")
_made: dict[Hashable, Any] = {}  # by what was asked and a digest of the answers, not the answers themselves


def fitted(gathered: Gathered, model: str = "2pl", compat: str | None = None, seed: int = 0) -> IrtFit:
    """`fca.stats.irt.fit_irt` of these answers; model "auto": the one that predicts hidden answers best."""
    name = chosen(gathered, seed)[0].model if model == "auto" else model
    correct = gathered.responses.correct
    return _once(gathered, ("fit", name, compat, seed), lambda: fit_irt(correct, name, compat=compat, seed=seed))


def chosen(gathered: Gathered, seed: int = 0) -> list[HeldOut]:
    """`fca.stats.choose_model` of these answers: how well each model predicts hidden ones, best first."""
    correct = gathered.responses.correct
    return _once(gathered, ("choice", seed), lambda: choose_model(correct, seed=seed))


def held_out(gathered: Gathered, model: str, seed: int = 0) -> HeldOut:
    """`fca.stats.held_out_fit` of these answers and one model."""
    correct = gathered.responses.correct
    return _once(gathered, ("held out", model, seed), lambda: held_out_fit(correct, model, seed=seed))


def digest_of(gathered: Gathered) -> str:
    """Which answers these are, whatever they are called: 32 hex digits."""
    correct = np.ascontiguousarray(gathered.responses.correct)
    return hashlib.blake2b(correct.tobytes(), digest_size=16).hexdigest()


def _once(gathered: Gathered, asked: tuple[Hashable, ...], make: Callable[[], Made]) -> Made:
    correct = gathered.responses.correct
    key = (digest_of(gathered), correct.shape, *asked)
    if key not in _made:
        try:
            check_responses(correct)
        except FcaError as error:
            what, *rest = error.args
            error.args = (f"{gathered.dataset}: {what}", *rest)  # one of several: which?
            raise
        _made[key] = make()
    made: Made = _made[key]
    return made
