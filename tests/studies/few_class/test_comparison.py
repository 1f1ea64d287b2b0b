"""Paired comparisons and rank stability of stored runs against answers counted one by one."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fca.stats.comparison import paired_interval, seeds_needed
from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.studies.few_class.comparison import Comparison
from fca.subset import draw_subset, full_set
from fca.types import FcaError
from tests.studies.few_class.support.sub_models import answers, images, sub_model
from tests.support.lab import Lab


def tables(lab, **fields):
    return {table.name: table.frame for table in Comparison(**fields)(lab.store)}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A study that tests only read, what its models got right, and its tables."""
    lab, right = studied(Lab(Store(tmp_path_factory.mktemp("read") / "outputs")))
    return lab, right, tables(lab)


def studied(lab):
    """Three models on two sizes and four draws, with answers; what each got right by (model, subset)."""
    right = {}
    for m, model in enumerate("abc"):
        for subset in lab.subsets():
            right[model, subset] = answers(lab, subset, 0.6 + 0.15 * m, seed=len(right))
            sub_model(lab, model, subset, right[model, subset])
    return lab, right


@pytest.mark.wide
def test_images_that_only_one_model_gets_right_are_counted_once(read):
    lab, right, found = read
    frame = found["paired"]
    assert frame["protocol"].tolist() == ["sub"] * 6
    for line in frame.itertuples():
        lead = dict.fromkeys(np.concatenate([images(lab, s) for s in lab.subsets(ncl=(line.ncl,))]).tolist(), 0)
        for subset in lab.subsets(ncl=(line.ncl,)):
            for at, image in enumerate(images(lab, subset)):
                lead[image] += int(right[line.model_a, subset][at]) - int(right[line.model_b, subset][at])
        only_a, only_b = sum(v > 0 for v in lead.values()), sum(v < 0 for v in lead.values())
        assert (line.images, line.only_a_right, line.only_b_right) == (len(lead), only_a, only_b)
        assert line.p == scipy.stats.binomtest(only_a, only_a + only_b).pvalue


def test_differences_are_means_over_subsets_with_their_bootstrap(read):
    lab, right, found = read
    for line in found["paired"].itertuples():
        pairs = [(right[line.model_a, s].mean(), right[line.model_b, s].mean()) for s in lab.subsets(ncl=(line.ncl,))]
        each = np.array([a - b for a, b in pairs])
        differences = (line.difference, line.difference_low, line.difference_high)
        assert differences == pytest.approx(mean_with_interval(each))
        assert line.difference == pytest.approx(each.mean())
        assert (line.subsets, line.seeds) == (4, 4)
        more = [max(0, seeds - 4) if np.isfinite(seeds) else pd.NA for seeds in seeds_needed(each)]
        found = [line.more_seeds, line.more_seeds_low, line.more_seeds_high]
        assert [*map(str, found)] == [str(pd.NA if v is pd.NA else int(v)) for v in more]
        assert ("no upper bound" in str(line.note)) == (found[2] is pd.NA)


def test_p_is_corrected_over_the_pairs_of_one_size(read):
    frame = read[2]["paired"]
    for _, part in frame.groupby("ncl"):
        p, corrected = part["p"].to_numpy(), part["p_holm"].to_numpy()
        order = np.argsort(p)
        assert corrected[order].tolist() == np.minimum(np.maximum.accumulate(p[order] * [3, 2, 1]), 1).tolist()
    apart = (frame["p_holm"] < 0.05) & ((frame["difference_low"] > 0) | (frame["difference_high"] < 0))
    assert frame["significant"].tolist() == apart.tolist()


def test_one_subset_has_the_interval_of_paired_proportions(lab):
    subset = full_set(6)
    one, other = (answers(lab, subset, skill, seed) for skill, seed in ((0.9, 0), (0.5, 1)))
    sub_model(lab, "a", subset, one)
    sub_model(lab, "b", subset, other)
    [line] = tables(lab)["paired"].query("protocol == 'sub'").to_dict("records")
    cells = [int(cell.sum()) for cell in (one & other, one & ~other, ~one & other, ~one & ~other)]
    assert (line["difference_low"], line["difference_high"]) == paired_interval(*cells)
    assert line["difference"] == pytest.approx((cells[1] - cells[2]) / 48)
    assert (line["significant"], line["seeds"]) == (True, 0)
    assert pd.isna(line["more_seeds"])
    assert tables(lab)["rank_stability"]["p_best"].isna().all()


@pytest.mark.parametrize("protocol", ["open", "masked"])
def test_full_models_are_compared_on_every_subset_from_one_answer(lab, protocol):
    logits = {model: lab.logits(seed, skill=1.5) for seed, model in enumerate("ab")}
    for model in "ab":
        lab.predict(model, logits[model])
    frame = tables(lab, ncl=[2.0, 4.0], seeds=[0, 1, 2])["paired"]
    frame = frame[frame["protocol"] == protocol].set_index("ncl")
    for ncl in (2, 4):
        lead = np.zeros(48)
        for seed in range(3):
            classes = draw_subset(6, ncl, seed).classes
            for image in np.flatnonzero(np.isin(lab.true, classes)):
                allowed = range(6) if protocol == "open" else classes
                right = [max(allowed, key=lambda c: logits[m][image, c]) == lab.true[image] for m in "ab"]
                lead[image] += int(right[0]) - int(right[1])
        assert frame.loc[ncl, ["only_a_right", "only_b_right"]].tolist() == [(lead > 0).sum(), (lead < 0).sum()]


def test_initialisation_seeds_are_averaged_image_by_image(lab):
    subset = full_set(6)
    first, second = (answers(lab, subset, 0.7, seed) for seed in (0, 1))
    sub_model(lab, "a", subset, first, seed=0)
    sub_model(lab, "a", subset, second, seed=1)
    sub_model(lab, "b", subset, first, seed=0)
    [line] = tables(lab)["paired"].query("protocol == 'sub'").to_dict("records")
    assert (line["only_a_right"], line["only_b_right"]) == ((second & ~first).sum(), (first & ~second).sum())
    assert line["difference"] == pytest.approx((second.mean() - first.mean()) / 2)


def test_sub_models_without_predictions_are_compared_by_accuracy_alone(lab):
    for subset in lab.subsets(ncl=(2,)):
        lab.train("a", subset, 0.8 + subset.seed / 100)
        sub_model(lab, "b", subset, answers(lab, subset, 0.6, seed=subset.seed))
    [line] = tables(lab)["paired"].to_dict("records")
    assert line["note"].startswith("predictions of both models are not stored")
    assert all(pd.isna(line[name]) for name in ("significant", "images", "p", "p_holm"))
    assert line["difference_low"] < line["difference"] < line["difference_high"]


def test_answers_of_some_subsets_are_counted_and_noted(lab):
    studied(lab)
    extra = draw_subset(6, 2, 4)
    for model in "ab":
        lab.train(model, extra, 0.5)
    line = tables(lab)["paired"].query("ncl == 2 and model_a == 'a' and model_b == 'b'").iloc[0]
    assert line["subsets"] == 5
    assert "images of 4 of 5 subsets" in line["note"]


def test_models_share_only_the_subsets_that_both_have(lab):
    for seed in range(3):
        sub_model(lab, "a", draw_subset(6, 2, seed), answers(lab, draw_subset(6, 2, seed), 0.8, seed))
    for seed in range(1, 5):
        sub_model(lab, "b", draw_subset(6, 2, seed), answers(lab, draw_subset(6, 2, seed), 0.8, seed + 9))
    assert tables(lab)["paired"]["subsets"].tolist() == [2]
    assert set(tables(lab)["rank_stability"]["subsets"]) == {2}


def test_one_model_is_no_pair(lab):
    sub_model(lab, "a", full_set(6), answers(lab, full_set(6), 0.8, 0))
    with pytest.raises(FcaError, match="pairs of models on one subset = none among the 2 stored rows"):
        tables(lab)


def test_the_order_of_models_over_four_seeds_has_no_chances_and_says_so(read):
    lab, right, found = read
    frame = found["rank_stability"].query("ncl == 3").set_index("model")
    table = np.array([[right[m, s].mean() for m in "abc"] for s in lab.subsets(ncl=(3,))])
    assert frame["p_best"].isna().all()
    assert set(frame["note"]) == {"no interval: 4 subset seeds, 5 needed"}
    assert frame["rank"].to_dict() == dict(zip("abc", scipy.stats.rankdata(-table.mean(0)).tolist(), strict=True))
    w = scipy.stats.friedmanchisquare(*table.T).statistic / (4 * 2)
    assert frame["kendall_w"].tolist() == pytest.approx([w] * 3)


@pytest.mark.wide
def test_snapshots_and_shifts_of_a_sub_model_are_not_its_answers(lab):
    studied(lab)
    before = tables(lab)["paired"]
    parent = lab.store.rows("task == 'train'")["run_id"].iloc[0]
    nothing = {"pred": np.full(16, -1, np.int32), "logit_classes": np.array(["ant", "bee"])}
    about = {"task": "predict", "parent": parent, "model": "a", "ncl": 2, "classes": (0, 1)}
    lab.write(nothing, **about, snapshot="0.5")
    lab.write(nothing, **about, snapshot="best", shift="corruption/fog/3")
    pd.testing.assert_frame_equal(tables(lab)["paired"], before)
