"""The findings of Few-Class Arena as measures, and as an analysis of a store."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fca.report import style
from fca.store import Store
from fca.studies.few_class import findings
from fca.studies.few_class.findings import Findings
from fca.subset import draw_subset
from tests.support.figure_claims import computes, drawn_findings, marks
from tests.support.lab import Lab


def drawn(values):
    """Accuracies of subsets: (model, protocol, ncl, seed) -> top1."""
    lines = [(*key, (key[2], key[3]), top1) for key, top1 in values.items()]
    return pd.DataFrame(lines, columns=["model", "protocol", "ncl", "subset_seed", "classes", "top1"])


def test_the_measures_of_the_findings_are_what_they_are_called():
    rng = np.random.default_rng(5)
    keys = [(m, p, n, s) for m in "xyz" for p in ("sub", "open") for n in (2, 3, 20) for s in range(5)]
    values = {key: rng.uniform(0.3, 1) for key in keys}
    subset = drawn(values)
    few = subset[subset["ncl"] < 20]
    draws = [(n, s) for n in (2, 3) for s in range(5)]
    best = [max(values[m, "sub", *d] for m in "xyz") - max(values[m, "open", *d] for m in "xyz") for d in draws]
    assert findings.mean_of(*findings.sub_minus_full(few, "open", "max"))["value"] == pytest.approx(100 * np.mean(best))
    mean = [values[m, "sub", *d] - values[m, "open", *d] for m in "xyz" for d in draws]
    assert findings.mean_of(*findings.sub_minus_full(few, "open"))["value"] == pytest.approx(100 * np.mean(mean))
    gained = [values[m, "sub", n, s] - values[m, "sub", 20, s] for m in "xyz" for n, s in draws]
    found = findings.mean_of(*findings.few_minus_most_classes(subset, [2, 3]))
    assert found["value"] == pytest.approx(100 * np.mean(gained))
    apart = subset[(subset["model"] == "x") == (subset["protocol"] == "sub")]
    best = [values["x", "sub", *d] - max(values[m, "open", *d] for m in "yz") for d in draws]
    found = findings.mean_of(*findings.best_of_different_models(apart[apart["ncl"] < 20], "open"))
    assert (found["value"], found["models"]) == (pytest.approx(100 * np.mean(best)), 3)
    assert not findings.mean_of(*findings.best_of_different_models(few, "open"))
    rho = [scipy.stats.spearmanr([1, 2, 3], [values[m, "open", *d] for m in "xyz"]).statistic for d in draws]
    found = findings.mean_of(*findings.size_correlation(few, pd.Series({"x": 1.0, "y": 2.0, "z": 3.0}), "open"))
    assert found["value"] == pytest.approx(np.mean(rho))
    spread = {}
    for p in ("sub", "open"):
        means = np.array([[np.mean([values[m, p, n, s] for m in "xyz"]) for s in range(5)] for n in (2, 3)])
        spread[p] = np.sqrt(means.var(axis=1, ddof=1).mean())  # pooled over ncl: equal degrees of freedom
    found = findings.spread_ratio(few, "open", few, "sub")
    assert found["value"] == pytest.approx(spread["open"] / spread["sub"])
    assert found["value_low"] < found["value"] < found["value_high"]
    few_draws = few[(few["subset_seed"] < 2) & (few["ncl"] == 2)]
    found = findings.mean_of(*findings.sub_minus_full(few_draws, "open"))
    alone = (
        found["value"]
        - scipy.stats.t.ppf(0.975, 1) * np.ptp(findings.sub_minus_full(few_draws, "open")[0]["value"]) / 2
    )
    assert found["value_low"] == pytest.approx(max(alone, -100))
    far = pd.DataFrame({"value": [-90.0, 90.0], "subset_seed": [0, 1]})
    found = findings.mean_of(far, 1)
    assert (found["value_low"], found["value_high"]) == (-100, 100), "no difference is larger"
    found = findings.mean_of(far.assign(value=far["value"] / 100), 1, limit=1.0)
    assert (found["value_low"], found["value_high"]) == (-1, 1), "nor a correlation"
    two = findings.spread_ratio(few[few["subset_seed"] < 2], "open", few, "sub")
    assert two["seeds"] == 2, "the spread of two draws is known no better beside one of five"
    assert np.isnan([two["value_low"], two["value_high"]]).all()


def test_the_analysis_has_a_line_and_a_mark_for_every_measure_that_is_defined(tmp_path):
    lab, rng = Lab(Store(tmp_path)), np.random.default_rng(0)
    top1 = {}
    for at, model in enumerate(("a", "b", "c")):
        lab.predict(model, lab.logits(at), params=at + 1)
        for ncl in (2, 3):
            for seed in range(4):
                subset = draw_subset(6, ncl, seed)
                top1[model, ncl, seed] = round(rng.uniform(0.5, 1), 2)
                lab.train(model, subset, top1[model, ncl, seed], params=at + 1)
    analysis = Findings()
    [table] = analysis(lab.store)
    frame = table.frame.set_index("finding")
    undefined = {"a, other models", "a, other models, masked", "b, few to many"}  # no ncl above 5
    assert set(frame.index) == set(findings.MEASURES) - undefined
    rho = [[top1[m, n, s] for m in "abc"] for n in (2, 3) for s in range(4)]
    rho = [scipy.stats.spearmanr([1, 2, 3], values).statistic for values in rho]
    assert frame.loc["d.2", "value"] == pytest.approx(np.mean(rho))
    gained = [top1[m, 2, s] - top1[m, 3, s] for m in "abc" for s in range(4)]
    assert frame.loc["d.1", "value"] == pytest.approx(100 * np.mean(gained))
    right = np.array([lab.logits(at).argmax(axis=1) == lab.true for at in range(3)])
    subsets = [np.isin(lab.true, draw_subset(6, ncl, seed).classes) for ncl in (2, 3) for seed in range(4)]
    lost = [right[:, inside].mean(axis=1) - right.mean(axis=1) for inside in subsets]
    assert frame.loc["c.1", "value"] == pytest.approx(100 * np.mean(lost))
    outside = (frame["value_low"] > frame["no_effect"]) | (frame["value_high"] < frame["no_effect"])
    assert (frame["verdict"].isin(["above", "below"]) == outside).all()
    [finding] = drawn_findings(analysis)
    drawn = style.spec(finding.draw(table))
    assert frame.loc["b, full to sub", ["value_low", "value_high"]].notna().all(), "four subset seeds are enough"
    assert "Without a bar" not in str(drawn["title"])
    assert not computes(drawn)
    assert marks(drawn, "symbol") == len(table.frame)
