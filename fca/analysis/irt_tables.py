"""Tables of abilities, fits and items of calibrated answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fca.analysis.fits import chosen, held_out
from fca.analysis.irt_calibration import Calibrated
from fca.analysis.irt_tau import agreement
from fca.stats.irt import HeldOut

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
