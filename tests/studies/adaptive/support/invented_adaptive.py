"""Tables of invented adaptive tests."""

import numpy as np
import pandas as pd

from fca.studies.adaptive.adaptive_replay import AdaptiveReplay
from fca.studies.adaptive.adaptive_tests import AdaptiveTests
from fca.studies.progressive.stats.pool import LEVELS

METHODS = (
    ("Static 3", "static_k", "session_mean"),
    ("optimal_allocation + stratified", "optimal_allocation", "stratified"),
    ("defensive_irt + regression", "defensive_irt", "regression"),
    ("gre_two_stage + pooled", "gre_two_stage", "pooled"),
)


def tables(models=3, datasets=("rendered",), seeds=(0,)):
    """Invented tests of invented models."""
    names = [f"net{number}" for number in range(models)]
    lines = {
        "adaptive_errors": _errors(datasets, names),
        "adaptive_methods": _errors(datasets, [None]),
        "adaptive_curves": _errors(datasets, [None], (0.1, 0.25, 0.5)),
        "adaptive_exposure": _exposure(datasets),
        "adaptive_asked": _asked(datasets, names),
        "adaptive_trajectories": _trajectories(datasets, names),
        "adaptive_sessions": _sessions(datasets, names),
        "adaptive_tests": _live(datasets, names, seeds, [None]),
        "adaptive_test_attributes": _live(datasets, names, seeds, ["size", "view"]),
    }
    specs = (*AdaptiveReplay.tables, *AdaptiveTests.tables)
    return {spec.name: spec.table(_frame(spec, lines[spec.name]), {"budget": 0.25}, ()) for spec in specs}


def _frame(spec, lines):
    return pd.DataFrame(lines, columns=[str(column) for column in spec.columns])


def _errors(datasets, models, budgets=(0.25,)):
    rng = np.random.default_rng(0)
    for dataset in datasets:
        for method, policy, estimator in METHODS:
            for target in ("accuracy", "score"):
                for budget in budgets:
                    for model in models:
                        mse = float(rng.uniform(1, 9) / budget)
                        line = {"dataset": dataset, "model": model, "method": method, "policy": policy}
                        line |= {"estimator": estimator, "target": target, "budget": budget, "share": budget}
                        line |= {"mse_pp2": mse, "mse_low": 0.7 * mse, "mse_high": 1.4 * mse, "ratio": mse / 20}
                        line |= {"ratio_same_bank": 0.8 if estimator == "regression" else None}
                        line |= {"ratio_low": mse / 30, "ratio_high": mse / 10, "bias_pp": 0.1, "coverage": 0.95}
                        line |= {"rank_tau": 0.5 + budget, "rank_tau_low": 0.4, "rank_tau_high": 0.5 + budget}
                        line |= {"repeats": 2}
                        line |= {"warning": "biased" if estimator == "pooled" else None, "models": len(models)}
                        yield line


def _exposure(datasets):
    for dataset in datasets:
        for method, policy, estimator in METHODS[:3]:
            for share in (0.1, 0.25, 0.5):
                line = {"dataset": dataset, "method": method, "policy": policy, "estimator": estimator}
                line |= {"budget": share, "share": share, "exposure": 2 * share, "never": 0.1, "common": share}
                yield line | {"ability_tau": 0.8, "ability_tau_low": 0.7, "ability_tau_high": 0.9, "models": 6}


def _asked(datasets, models):
    for dataset in datasets:
        for number, model in enumerate(models):
            for mapping in "QL":
                for level, first in zip(LEVELS, (1, 2, 1), strict=True):
                    second = 5 / 3 + (number / 10 if level == "hard" else -number / 20)
                    about = {"dataset": dataset, "model": model, "top1": 0.5 + number / 100, "mapping": mapping}
                    yield {**about, "level": level, "first": first, "second": second, "asked": first + second}


def _trajectories(datasets, models):
    for dataset in datasets:
        for number, model in enumerate(models):
            for points in (0, 3, 9):
                about = {"dataset": dataset, "model": model, "top1": 0.5 + number / 100, "points": points}
                yield {**about, "sessions": 4, "share": 1 / 3, "right_second": 0.5, "truth": points / 9}


def _sessions(datasets, models):
    for dataset in datasets:
        for model in models:
            for session, points in (("cat/size", 2), ("yak/view", 7)):
                for place in range(1, 10):
                    about = {"dataset": dataset, "model": model, "top1": 0.5, "session": session, "points": points}
                    yield {
                        **about,
                        "place": place,
                        "round": 1 + (place > 4),
                        "level": LEVELS[place % 3],
                        "right": place % 2 == 0,
                        "image_id": f"{session}/{place}",
                        "truth": 0.4,
                    }


def _live(datasets, models, seeds, attributes):
    for dataset in datasets:
        for number, model in enumerate(models):
            for seed in seeds:
                for attribute in attributes:
                    for target in ("accuracy", "score"):
                        about = {"dataset": dataset, "model": model, "shift": "clean", "ncl": 10, "seed": seed}
                        about |= {"policy": "gre_two_stage", "estimator": "mixed_logit", "budget": 0.25}
                        about |= {
                            "run_id": f"{model}{seed}",
                            "width": None,
                            "protocol": "open",
                            "attribute": attribute,
                            "target": target,
                            "share": 0.25,
                        }
                        about |= {"estimate": 0.5 + number / 50, "low": 0.45, "high": 0.65}
                        if number or len(models) == 1:  # the first of several never answered all images
                            about |= {"truth": 0.5, "error_pp": 2 * number, "covered": True, "time_share": 0.3}
                        yield about
