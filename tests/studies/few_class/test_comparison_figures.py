"""The figures of paired comparisons draw every pair and every chance, and the sentences repeat the tables."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from fca.report import style
from fca.studies.few_class import comparison
from fca.studies.few_class.figures.comparison import (
    paired_figure,
    paired_statements,
    stability_figure,
    stability_statements,
)
from fca.studies.few_class.subset_accuracy import PredictedSubset
from fca.types import Table
from tests.studies.few_class.support.subset_points import points
from tests.support.figure_claims import computes, marks, parts, refuses_empty, sentences_of, values


@cache
def tables(**asked) -> dict[str, Table]:
    subset = comparison.per_subset(points(**asked))
    frames = (comparison.paired(subset), comparison.stability(subset))
    specs = comparison.Comparison.tables
    return {spec.name: spec.table(frame, {}, ()) for spec, frame in zip(specs, frames, strict=True)}


def test_the_forest_plot_has_every_pair_with_its_interval():
    table = tables()["paired"].frame
    spec = style.spec(paired_figure(tables()["paired"]))
    drawn = values(spec)
    for name in ("difference", "difference_low", "difference_high", "p_holm"):
        assert sorted(drawn[name]) == sorted(table[name])
    assert marks(spec, "symbol") == len(table) == 3 * 3 * 2
    assert marks(spec, "rule") == 2 * len(table)  # the interval and the line at 0
    assert marks(spec, "symbol", ncl=[2], protocol=["sub"]) == 3


def test_a_significant_difference_is_a_colour_and_a_shape():
    table = tables()["paired"].frame
    assert set(table["significant"]) == {True, False}
    drawn = values(style.spec(paired_figure(tables()["paired"])))
    assert ((drawn["verdict"] == "differs significantly") == drawn["significant"]).all()
    spec = style.spec(paired_figure(tables()["paired"]))
    encoded = [part for part in parts(spec) if "shape" in part]
    assert encoded
    assert all(part["shape"]["field"] == part["color"]["field"] == "verdict" for part in encoded)


def test_what_was_not_tested_is_named_so():
    bare = points().assign(predictions=None)
    frame = comparison.paired(comparison.per_subset(bare))
    assert frame["significant"].isna().all()
    drawn = values(style.spec(paired_figure(comparison.PAIRED.table(frame, {}, ()))))
    assert set(drawn["verdict"]) == {"no test: no stored predictions, or no interval of the difference"}
    assert all("cannot be tested" in line for line in sentences_of(paired_statements, frame))


def alike(a, b, images=20, seeds=5):
    """Two models that are right on the first so many images of each of five subsets."""
    lines = []
    for model, right in (("a", a), ("b", b)):
        for seed in range(seeds):
            about = {"dataset": "zoo", "model": model, "protocol": "sub", "run_id": f"{model}{seed}", "ncl": 2}
            drawn = {"subset_seed": seed, "classes": (seed, seed + 1), "fingerprint": "f"}
            at = seed * images + np.arange(images)
            predicted = PredictedSubset(at, at % 2, np.arange(images) < right)
            lines.append({**about, **drawn, "top1": right / images, "predictions": predicted})
    return comparison.paired(comparison.per_subset(pd.DataFrame(lines).astype({"subset_seed": "Int64"})))


def test_two_models_that_are_always_right_do_not_differ():
    frame = alike(20, 20)
    assert frame["significant"].tolist() == [False]
    assert "0 of 1 at ncl 2" in sentences_of(paired_statements, frame)[0]


def test_a_difference_that_is_the_same_in_all_seeds_has_no_interval_and_says_so():
    [line] = alike(20, 10).to_dict("records")
    assert line["difference"] == 0.5
    assert line["p_holm"] < 1e-12
    assert pd.isna(line["significant"])
    assert comparison.NO_SPREAD in line["note"]


def test_the_heat_map_has_every_chance_to_be_the_best():
    table = tables()["rank_stability"].frame
    spec = style.spec(stability_figure(tables()["rank_stability"]))
    assert sorted(values(spec)["p_best"]) == sorted(table["p_best"])
    assert marks(spec, "rect") == len(table) == 3 * 3 * 2
    assert marks(spec, "rect", model=["net1"], ncl=[5]) == 3


def test_the_figures_compute_nothing():
    for draw, table in ((paired_figure, "paired"), (stability_figure, "rank_stability")):
        assert not computes(style.spec(draw(tables()[table])))


@pytest.mark.parametrize(("draw", "name"), [(paired_figure, "paired"), (stability_figure, "rank_stability")])
def test_without_a_point_there_is_nothing_to_draw(draw, name):
    refuses_empty(draw, [tables()[name]])


def test_one_draw_of_classes_leaves_no_chance_to_draw():
    with pytest.raises(style.NothingToDraw):
        stability_figure(tables(seeds=1)["rank_stability"])
    assert marks(style.spec(paired_figure(tables(seeds=1)["paired"])), "symbol") == 3 * 3 * 2


def test_sentences_count_what_the_table_says():
    table = tables()["paired"].frame
    sub = table[table["protocol"] == "sub"]
    [line] = [line for line in sentences_of(paired_statements, table) if "sub-models" in line]
    at = {ncl: part["significant"].sum() for ncl, part in sub.groupby("ncl")}
    counts = f"{at[2]} of 3 at ncl 2, {at[5]} of 3 at ncl 5"
    assert line.startswith(f"zoo: with 5 subset seeds, pairs of sub-models that differ significantly: {counts}")
    stable = tables()["rank_stability"].frame
    best = stable.query("protocol == 'sub' and ncl == 2").set_index("model")["p_best"]
    [line] = [line for line in sentences_of(stability_statements, stable) if "sub-models" in line]
    assert f"{best.idxmax()} at ncl 2 ({100 * best.max():.0f} % of the resamples)" in line
