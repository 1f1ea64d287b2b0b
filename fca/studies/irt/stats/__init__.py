"""Item response theory: abilities of subjects, difficulty and discrimination of items, on one scale."""

from __future__ import annotations

from fca.studies.irt.stats.fit import as_fit, fit_irt, fit_items
from fca.studies.irt.stats.held_out import HOLD_OUTS, Choice, HeldOut, choose_model, excess, held_out_fit, hide
from fca.studies.irt.stats.linkage import Link, weakest_link
from fca.studies.irt.stats.model import (
    ALIASES,
    MODELS,
    IrtFit,
    ItemBank,
    Scored,
    check_responses,
    model_name,
    parts_of,
    score_ability,
)

__all__ = [
    "ALIASES", "HOLD_OUTS", "MODELS", "Choice", "HeldOut", "IrtFit", "ItemBank", "Link", "Scored", "as_fit",
    "check_responses", "choose_model", "excess", "fit_irt", "fit_items", "held_out_fit", "hide", "model_name",
    "parts_of", "score_ability", "weakest_link",
]  # fmt: skip
