"""Figures of adaptive tests draw every line of their tables and compute nothing."""

import numpy as np
import pandas as pd
import pytest

from fca.analysis.adaptive_replay_errors import ERRORS, OVERALL
from fca.analysis.adaptive_replay_sessions import ASKED, SESSIONS, TRAJECTORIES
from fca.analysis.adaptive_tests import GROUPS, TESTS
from fca.nouns import Table
from fca.reports import adaptive, adaptive_sessions, adaptive_tests, style
from fca.reports.part import parts as all_parts
from tests.reports.specs import computes, drawn, marks, refuses_empty, values

FIGURES = {part.draw: part.tables for part in (*adaptive.PARTS, *adaptive_sessions.PARTS, *adaptive_tests.PARTS)}
METHODS = (
    ("Static 3", "static_k", "session_mean"),
    ("gre_two_stage + mixed_logit", "gre_two_stage", "mixed_logit"),
    ("neyman_irt + difference", "neyman_irt", "difference"),
    ("gre_two_stage + pooled", "gre_two_stage", "pooled"),
)
LEVELS = ("easy", "medium", "hard")


def tables(models=3, datasets=("rendered",), seeds=(0,)):
    """Invented tests of invented models."""
    names = [f"net{number}" for number in range(models)]
    frames = {
        "adaptive_errors": pd.DataFrame(_errors(datasets, names), columns=ERRORS),
        "adaptive_methods": pd.DataFrame(_errors(datasets, [None]), columns=OVERALL),
        "adaptive_curves": pd.DataFrame(_errors(datasets, [None], (0.1, 0.25, 0.5)), columns=OVERALL),
        "adaptive_asked": pd.DataFrame(_asked(datasets, names), columns=ASKED),
        "adaptive_trajectories": pd.DataFrame(_trajectories(datasets, names), columns=TRAJECTORIES),
        "adaptive_sessions": pd.DataFrame(_sessions(datasets, names), columns=SESSIONS),
        "adaptive_tests": pd.DataFrame(_live(datasets, names, seeds, [None]), columns=TESTS),
        "adaptive_test_attributes": pd.DataFrame(_live(datasets, names, seeds, ["size", "view"]), columns=GROUPS),
    }
    return {name: Table(name, "how?", "Table 2", frame, {"budget": 0.25}, ()) for name, frame in frames.items()}


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
                        line |= {"ratio_low": mse / 30, "ratio_high": mse / 10, "bias_pp": 0.1, "coverage": 0.95}
                        line |= {"warning": "biased" if estimator == "pooled" else None, "models": len(models)}
                        yield line


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


def figure(draw, **asked):
    known = tables(**asked)
    return style.spec(draw(*(known[name] for name in FIGURES[draw])))


every_figure = pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)


@every_figure
@pytest.mark.parametrize(
    "asked", [{"models": 1}, {"models": 8, "datasets": ("rendered", "photos"), "seeds": (0, 1)}], ids=["few", "many"]
)
def test_figures_are_drawn_however_little_or_much_there_is(draw, asked):
    spec = figure(draw, **asked)
    assert drawn(spec)
    assert not computes(spec)


@every_figure
def test_an_empty_table_says_that_there_is_nothing_to_draw(draw):
    refuses_empty(draw, [tables()[name] for name in FIGURES[draw]])


@every_figure
def test_a_choice_of_data_set_filters(draw):
    spec = figure(draw)
    assert marks(spec, "symbol") > 0
    assert marks(spec, "symbol", dataset=["another"]) == 0


@pytest.mark.parametrize(
    ("draw", "dots", "rules"),
    [
        (adaptive.errors_figure, 2 * 4 * (3 + 1), 2 * 4),
        (adaptive.curves_figure, 2 * 4 * 3, 2 * 4 * 3),
        (adaptive_sessions.asked_figure, 3 * 2 * 3, 0),
        (adaptive_sessions.trajectories_figure, 3 * 2 * 3, 0),
        (adaptive_sessions.sessions_figure, 3 * 2 * 9, 3),
        (adaptive_tests.live_figure, 3 * 2 + 2 * 2, 3 * 2),
        (adaptive_tests.attributes_figure, 2 * (3 * 2 + 2 * 2), 2 * 3 * 2),
        (adaptive_tests.truth_figure, 2 * 2 * 2, 2 * 2 * 2 + 2),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_line_is_drawn(draw, dots, rules):
    spec = figure(draw)
    assert (marks(spec, "symbol"), marks(spec, "rule")) == (dots, rules)


def test_every_session_by_points_is_a_bar():
    assert marks(figure(adaptive_sessions.trajectories_figure), "rect") == 3 * 3


def test_methods_are_told_apart_by_what_they_need():
    kinds = values(figure(adaptive.errors_figure)).drop_duplicates("method").set_index("method")["kind"]
    assert kinds.to_dict() == {
        "Static 3": "evenly drawn",
        "gre_two_stage + mixed_logit": "adaptive, needs levels only",
        "neyman_irt + difference": "needs an item bank",
        "gre_two_stage + pooled": "biased by its adaptive draw",
    }


def test_live_tests_are_told_apart_by_what_differs_but_the_seed():
    frame = tables(seeds=(0, 1))["adaptive_tests"].frame
    assert set(adaptive_tests.named(frame)["row"]) == {"net0", "net1", "net2"}
    two = pd.concat([frame, frame.assign(policy="optimal_allocation", width=0.03)])
    assert "net1 · gre_two_stage + mixed_logit" in set(adaptive_tests.named(two)["row"])
    assert "net1 · optimal_allocation + mixed_logit · width 0.03" in set(adaptive_tests.named(two)["row"])


def test_by_attribute_one_test_a_model_is_drawn():
    known = tables(seeds=(0, 1))["adaptive_test_attributes"]
    spec = style.spec(adaptive_tests.attributes_figure(known))
    assert set(values(spec)["seed"]) == {0}
    assert "Of some models the first test." in spec["title"]["subtitle"][0]
    assert "Of some" not in figure(adaptive_tests.attributes_figure)["title"]["subtitle"][0]


def test_answers_are_in_words_of_the_tables():
    known = tables()
    accuracy, score = adaptive.method_answers(known["adaptive_methods"].frame)
    assert accuracy.startswith("rendered: squared error of accuracy at 25 % of the images, against Static 3: gre_two")
    assert "score" in score
    [told] = adaptive_sessions.asked_answers(known["adaptive_asked"].frame)
    assert told == "rendered: a session asks 2.7 hard images of net0 (top1 50 %) and 2.9 of net2 (52 %)."
    [told] = adaptive_tests.live_answers(known["adaptive_tests"].frame)
    assert told.startswith("rendered: 3 live tests of 25 % of the images: 4 of 4 intervals hold the truth")
    assert told.endswith("; 30 % of the time of a full run.")


def test_the_report_finds_these_parts():
    keys = {part.key for part in all_parts()}
    assert keys >= {"adaptive_errors", "adaptive_curves", "adaptive_asked", "adaptive_trajectories"}
    assert keys >= {"adaptive_sessions", "adaptive_tests", "adaptive_test_attributes", "adaptive_truth"}
