"""Figures of item response theory draw what their tables say, and the sentences repeat it."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.report.finding import findings_of, statements
from fca.studies.irt.figures.irt import ability_statements, fit_statements, reliability_statements
from fca.studies.irt.irt import (
    IRT_CHOICE,
    RELIABILITY,
    Calibrated,
    Irt,
    Reliability,
    abilities,
    curves,
    fit_line,
    items,
    plane,
    severity_shares,
)
from fca.studies.irt.stats import fit_irt
from fca.tables.answers import DatasetResponses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
from tests.support.figure_claims import computes, drawn, drawn_findings, marks, parts, sentences_of, values

FIGURES = drawn_findings(Irt(), Reliability())
KNOWN = {finding.key: finding for finding in FIGURES}
SPECS = {spec.name: spec for spec in (*Irt.tables, RELIABILITY)}
every_figure = pytest.mark.parametrize("shown", FIGURES, ids=lambda shown: shown.key)


def calibrated(dataset, kind, snapshots, model):
    """Answers of four models to 60 images, harder with severity."""
    rng = np.random.default_rng(len(kind))
    severities = [0] if kind == "clean" else [0, 1, 2]
    names = [f"net{k}{f'/{at}' if at else ''}" for k in range(4) for at in snapshots]
    images = [f"{k}.png" for k in range(60)]
    shifted = [image if s == 0 else f"{image}@corruption/{kind}/{s}" for s in severities for image in images]
    skill, ease = np.arange(len(names)) * 3 / len(names) - 1, np.tile(rng.normal(size=60), len(severities))
    logit = skill[:, None] + ease - 0.7 * np.repeat(severities, 60)
    correct = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(float)
    responses = Responses(correct, frame_of_subjects(names), frame_of_items(shifted))
    severity = 0 if kind == "clean" else None
    return Calibrated(kind, severity, "joint", DatasetResponses(dataset, "f", responses, ()), fit_irt(correct, model))


@cache
def tables(datasets=("zoo", "sea"), kinds=("clean", "fog"), snapshots=("0.1", "best"), model="2pl", trait="ability"):
    fits = [calibrated(name, kind, snapshots, model) for name in datasets for kind in kinds]
    every = pd.concat([items(one) for one in fits], ignore_index=True)
    frames = {
        "irt_abilities": pd.concat([abilities(one, trait) for one in fits]),
        "irt_fits": pd.concat([fit_line(one, Irt(trait=trait)) for one in fits], ignore_index=True),
        "irt_plane": plane(every, 0),
        "irt_severity": severity_shares(every),
        "irt_curves": pd.concat([curves(one, trait) for one in fits if one.corruption == "clean"]),
    }
    frames["reliability"] = taus(datasets, kinds)
    return {name: SPECS[name].table(frame, {}, ()) for name, frame in frames.items()}


def taus(datasets, kinds):
    about = {"irt_model": "2pl", "n_subjects": 8, "n_models": 4, "n_items": 60, "converged": True}
    lines = []
    for name in datasets:
        for kind in kinds:
            for severity in [0] if kind == "clean" else [1, 2]:
                tau = 0.97 - severity / 100
                where = {"dataset": name, "corruption": kind, "severity": severity}
                lines.append({**where, **about, "tau": tau, "tau_low": tau - 0.05, "tau_high": 1.0})
    return RELIABILITY.frame(lines)


CASES = {
    "many": {},
    "one": {"datasets": ("zoo",), "kinds": ("clean",), "snapshots": (None,)},
    "corrupted": {"datasets": ("zoo",), "kinds": ("clean", "fog", "snow"), "model": "3pl-upper"},
}


@cache
def figure(shown, case="many"):
    return style.spec(shown.draw(*(tables(**CASES[case])[spec.name] for spec in shown.tables)))


@every_figure
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_figures_are_drawn_however_little_or_much_there_is(shown, case):
    if case == "one" and shown.key == "reliability":
        with pytest.raises(style.NothingToDraw, match="no corrupted images"):
            figure(shown, case)
    else:
        assert drawn(figure(shown, case))


@every_figure
def test_figures_compute_nothing(shown):
    assert not computes(figure(shown))


@pytest.mark.wide
@every_figure
def test_a_choice_of_the_page_leaves_its_data_set(shown):
    kind = "rect" if shown.key == "irt_severity" else "symbol"
    every, chosen = marks(figure(shown), kind), marks(figure(shown), kind, dataset=["zoo"])
    assert 0 < chosen < every


@pytest.mark.wide
@pytest.mark.parametrize("key", [key for key in KNOWN if key != "irt_curves"])
def test_a_choice_of_corruption_leaves_it_alone(key):
    kind = "rect" if key == "irt_severity" else "symbol"
    every, chosen = (marks(figure(KNOWN[key], "corrupted"), kind, **only) for only in ({}, {"corruption": ["fog"]}))
    assert 0 < chosen < every


def test_histograms_of_many_corruptions_are_lower_so_that_the_figure_can_be_read_on():
    shown = KNOWN["irt_severity"]
    few = figure(shown, "corrupted")["spec"]["height"]
    table = tables(**CASES["corrupted"])["irt_severity"]
    fog = table.frame[table.frame["corruption"] == "fog"]
    many = pd.concat([fog.assign(corruption=f"kind {k}") for k in range(19)], ignore_index=True)
    assert 0 < style.spec(shown.draw(SPECS["irt_severity"].table(many, {}, ())))["spec"]["height"] < few


def test_every_subject_and_its_interval_is_drawn():
    shown = KNOWN["irt_abilities"]
    frame = tables()["irt_abilities"].frame
    drawn = values(figure(shown))
    for name in ("ability", "ability_low", "ability_high"):
        assert sorted(drawn[name]) == sorted(frame[name])
    assert marks(figure(shown), "symbol") == marks(figure(shown), "rule") == len(frame)
    assert marks(figure(shown), "symbol", model=["net1"]) == 2 * 2 * 2
    [fit, *_] = tables()["irt_fits"].frame.to_dict("records")
    ends = f"[{fit['tau_low']:.3f}, {fit['tau_high']:.3f}]"
    assert f"tau {fit['tau']:.3f} {ends}" in drawn["panel"].iloc[0]
    many = {**fit, "n_models": 9, "tau_low": 0.5, "tau_high": 1.0}
    [order, *_] = sentences_of(ability_statements, frame, pd.DataFrame([many]))
    assert order.endswith(f"tau {fit['tau']:.3f} [0.500, 1.000].")


def test_the_trait_is_what_the_axis_and_the_sentences_call_it():
    found = tables(**CASES["one"], trait="agreement with shape")
    for shown in (KNOWN["irt_abilities"], KNOWN["irt_curves"]):
        spec = style.spec(shown.draw(*(found[spec.name] for spec in shown.tables)))
        assert any(piece.get("title") == "agreement with shape" for piece in parts(spec))
    sentences = sentences_of(ability_statements, found["irt_abilities"].frame, found["irt_fits"].frame)
    assert len(sentences) == 2
    assert all("agreement with shape" in sentence.lower() for sentence in sentences)
    assert sentences[0].startswith("Agreement with shape orders the 4 subjects of zoo ")


def test_the_plane_is_coloured_by_feasibility_where_the_model_has_one():
    legends = {
        case: {
            piece["legend"]["title"]
            for piece in parts(figure(KNOWN["irt_plane"], case))
            if "gradientLength" in str(piece.get("legend"))
        }
        for case in ("many", "corrupted")
    }
    assert legends == {"many": {"p_max"}, "corrupted": {"feasibility"}}
    assert marks(figure(KNOWN["irt_plane"]), "symbol") == len(tables()["irt_plane"].frame)


def test_a_ridge_is_as_high_as_its_share():
    drawn = values(figure(KNOWN["irt_severity"], "corrupted"))
    assert set(drawn["corruption"]) == {"fog", "snow"}, "clean images are the first ridge of each"
    for _, panel in drawn.groupby("panel"):
        height = (panel["severity"] - panel["ridge"]).to_numpy()
        assert height == pytest.approx(0.9 * panel["share"].to_numpy() / panel["share"].max())


def test_tau_is_drawn_with_its_interval_and_severity_one_is_marked():
    shown = KNOWN["reliability"]
    frame = tables()["reliability"].frame
    assert marks(figure(shown), "symbol") == marks(figure(shown), "rule") == len(frame)
    [scale] = [piece for piece in parts(figure(shown)) if "diamond" in str(piece.get("range"))]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {0: "circle", 1: "diamond", 2: "circle"}


@pytest.mark.parametrize("dataset", ["zoo", "sea"])
def test_the_sentences_repeat_the_tables(dataset):
    frames = {name: table.frame[table.frame["dataset"] == dataset] for name, table in tables().items()}
    fits = frames["irt_fits"]
    order, _ = sentences_of(ability_statements, frames["irt_abilities"], fits)
    sentences = " ".join(sentences_of(fit_statements, fits))
    [line] = fits[fits["corruption"] == "clean"].to_dict("records")
    assert f"tau {line['tau']:.3f}" in order
    assert f"{dataset}: 2pl is fitted to 8 subjects (4 models) and 60 items." in sentences
    assert f"log loss {line['held_out_nll']:.3f}" in sentences
    worse = fits.assign(held_out_nll=0.5, baseline_nll=0.4, converged=[False, True])
    sentences_of_worse = " ".join(sentences_of(fit_statements, worse))
    assert "means alone: 0.400, no worse." in sentences_of_worse
    assert f"{dataset}: the fit did not converge for clean" in sentences_of_worse
    assert sentences_of(reliability_statements, frames["reliability"]) == [
        f"{dataset}: tau between ability and accuracy is 0.960 (fog) at severity 1, and 0.950 to 0.960 at all "
        "severities."
    ]


def test_without_candidates_nothing_is_stated_on_a_choice():
    [choice] = [finding for finding in findings_of(Irt()) if finding.key == "irt_choice"]
    assert list(statements(choice, {"irt_choice": IRT_CHOICE.table(IRT_CHOICE.frame([]), {}, ())})) == []


def test_the_order_of_too_few_or_of_equal_subjects_is_not_known():
    frames = {name: table.frame[table.frame["dataset"] == "zoo"] for name, table in tables().items()}
    abilities, fits = frames["irt_abilities"], frames["irt_fits"]
    [two, _] = sentences_of(ability_statements, abilities, fits.assign(n_subjects=2))
    assert two == "Not known: zoo has too few subjects to compare their orders by ability and by accuracy."
    [equal, _] = sentences_of(ability_statements, abilities, fits.assign(tau=np.nan, tau_low=np.nan, tau_high=np.nan))
    assert equal == "Not known: all subjects of zoo have the same ability or the same accuracy."
