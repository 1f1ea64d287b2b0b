"""Images are ranked by the chosen features as by hand, a planted cue is found, gaps are those of both ends."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.numpy import save_file
from scipy.stats import rankdata, zscore

from fca.report.finding import sentences
from fca.report.pictures import Pictures
from fca.report.style import NothingToDraw, spec
from fca.stats.intervals import wilson
from fca.studies.reliance.figures.objects import encoder_statements, gap_statements
from fca.studies.reliance.spurious_rank import ALL_CLASSES, SpuriousRank, cue_ranks, ranks_of
from fca.types import FcaError
from tests.support.figure_claims import drawn_findings, sentences_of
from tests.support.lab import KEYS, Lab, images

CUE = 3  # the feature in which wolves differ


@pytest.fixture
def made(lab):
    """Features of all images of one encoder, a linear layer on them, and a model that is right where the cue is."""
    lab.data = images(per_class=12)
    lab.store.keep_items(lab.data)
    rng = np.random.default_rng(0)
    n, labels = len(lab.data.items), lab.data.labels
    x = rng.random((n, 10)).astype(np.float16) + np.eye(10, dtype=np.float16)[labels + 4]
    x[labels == 0, CUE] += rng.permutation((labels == 0).sum()).astype(np.float16)
    embed = lab.embed_all("robust", x)
    weight = np.eye(10, dtype=np.float32)[4:]
    weight[0, CUE] = 2.0
    probe = lab.layer(embed, weight)
    test = lab.data.rows("test")
    right = (labels[test] != 0) | (x[test, CUE] > np.median(x[labels == 0, CUE]))
    lab.answered("net", right)
    return lab, x, embed, probe


@pytest.fixture
def lab(tmp_path):
    from fca.store import Store

    class Embeds(Lab):
        def embed_all(self, encoder, features, **columns):
            return self.embed(encoder, features, split="all", **columns)

        def layer(self, embed, weight, adaptation="probe", **columns):
            about = {"task": "train", "model": "robust", "adaptation": adaptation, "parent": embed, "ncl": len(KEYS)}
            about |= {"classes": range(len(KEYS)), "top1": 1.0, **columns}
            run_id = self.write(**about)
            folder = self.store.folder(run_id)
            save_file({"weight": weight, "bias": np.zeros(len(weight), np.float32)}, folder / "best.safetensors")
            return run_id

    return Embeds(Store(tmp_path / "outputs"), images(per_class=12), itertools.count())


def frames(store, **fields):
    return {table.name: table for table in SpuriousRank(**fields)(store)}


@given(arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(0, 5).map(float)))
def test_ranks_are_the_mean_rank_of_every_feature_with_ties_averaged(x):
    score, rank = cue_ranks(x, "rank")
    by_hand = np.mean([rankdata(-column) for column in x.T], axis=0)
    np.testing.assert_allclose(score, by_hand, rtol=1e-12)
    np.testing.assert_array_equal(rank, rankdata(score))
    assert cue_ranks(np.exp(x), "rank")[1].tolist() == rank.tolist(), "only the order within a feature counts"


def test_z_scores_are_scipy_s_and_the_strongest_is_first():
    x = np.random.default_rng(0).normal(size=(9, 3))
    score, rank = cue_ranks(x, "zscore")
    np.testing.assert_allclose(score, zscore(x, axis=0).mean(axis=1), atol=1e-12)
    assert rank[score.argmax()] == 1
    assert cue_ranks(np.ones((4, 2)), "zscore")[0].tolist() == [0] * 4, "a constant feature ranks nothing"


@pytest.mark.parametrize("by", ["rank", "zscore"])
def test_a_planted_cue_is_the_most_important_feature_and_ranks_the_images(made, by):
    lab, x, *_ = made
    found = frames(lab.store, top=1, by=by)
    weights = found["feature_importance"].frame.set_index("label")
    train = (lab.data.items["split"] == "train").to_numpy() & (lab.data.labels == 0)
    assert weights.loc["wolf", "feature"] == CUE
    assert weights.loc["wolf", "importance"] == pytest.approx(2 * x[train, CUE].astype(np.float32).mean(), rel=1e-3)
    ranked = found["spurious_ranks"].frame
    assert len(ranked) == len(lab.data.items)
    by_id = dict(zip(lab.data.items["image_id"], x[:, CUE].astype(float), strict=True))
    for split in ("train", "test"):
        wolves = ranked[(ranked["label"] == "wolf") & (ranked["split"] == split)]
        expected = rankdata(-np.array([by_id[image] for image in wolves["image_id"]]))
        assert wolves["rank"].tolist() == expected.tolist()


def test_the_gap_is_that_of_both_ends_with_newcombe_s_interval(made):
    lab, *_ = made
    gap = frames(lab.store, top=1, k=3)["spurious_gap"].frame
    wolf = gap[gap["label"] == "wolf"].iloc[0]
    assert (wolf["k"], wolf["top_accuracy"], wolf["bottom_accuracy"]) == (3, 1.0, 0.0)
    (low, _), (_, high) = wilson(3, 3), wilson(0, 3)
    assert wolf["gap_low"] == pytest.approx(1 - np.hypot(1 - low, high), abs=1e-12)
    assert wolf["gap_high"] == 1.0
    others = gap[~gap["label"].isin(["wolf", ALL_CLASSES])]
    assert (others["gap"] == 0).all()
    assert (others["gap_low"] < 0).all()
    mean = gap[gap["label"] == ALL_CLASSES].iloc[0]
    assert mean["gap"] == pytest.approx(1 / len(KEYS))
    assert frames(lab.store)["spurious_gap"].frame["k"].max() == 4, "a third of the twelve images of a class"


def test_annotated_features_need_no_layer_and_decide_which_classes_are_ranked(made, tmp_path):
    lab, *_ = made
    (tmp_path / "chosen.csv").write_text(f"class,feature\nwolf,{CUE}\ncat,1\ncat,2\n")
    lab.store.folder(made[3]).joinpath("row.json").unlink()
    found = frames(lab.store, features=str(tmp_path / "chosen.csv"))
    assert set(found["spurious_ranks"].frame["label"]) == {"wolf", "cat"}
    assert found["feature_importance"].frame.empty


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("class,node\nwolf,1\n", "columns class and feature"),
        ("class,feature\nwulf,1\n", "class in .* = wulf"),
        ("class,feature\nwolf,10\n", "feature in .* = 10; allowed: 0 to 9"),
    ],
)
def test_a_file_of_features_that_are_none_is_refused(made, tmp_path, content, message):
    (tmp_path / "chosen.csv").write_text(content)
    with pytest.raises(FcaError, match=message):
        frames(made[0].store, features=str(tmp_path / "chosen.csv"))
    with pytest.raises(FcaError, match=r"nowhere\.csv"):
        frames(made[0].store, features="nowhere.csv")


def test_two_encoders_are_refused_by_name_and_one_can_be_chosen(made):
    lab, x, embed, _ = made
    other = lab.embed_all("plain", x[:, ::-1])
    lab.layer(other, np.eye(10, dtype=np.float32)[4:])
    with pytest.raises(FcaError, match=f"robust \\(run {embed}\\), plain \\(run {other}\\)"):
        frames(lab.store)
    one, same = frames(lab.store, encoder="robust"), frames(lab.store, encoder=embed)
    pd.testing.assert_frame_equal(one["spurious_ranks"].frame, same["spurious_ranks"].frame)


def test_without_features_or_a_layer_on_them_the_command_that_makes_both_is_named(lab):
    with pytest.raises(FcaError, match="none among the 0 stored rows"):
        frames(lab.store)
    lab.embed_all("robust", np.zeros((len(lab.data.items), 4)))
    with pytest.raises(FcaError, match=r"with a probe or head.*adaptation=probe"):
        frames(lab.store)


def test_shuffled_rows_give_the_same_tables(made, monkeypatch):
    lab, *_ = made
    plain = frames(lab.store)
    rows = lab.store.rows().sample(frac=1, random_state=1).reset_index(drop=True)
    monkeypatch.setattr(type(lab.store), "rows", lambda self, query=None: rows)
    for name, table in frames(lab.store).items():
        pd.testing.assert_frame_equal(table.frame, plain[name].frame)


def test_without_predictions_images_are_ranked_and_no_gap_is_drawn(made):
    lab, *_ = made
    for run_id in lab.store.rows("task == 'predict'")["run_id"]:
        lab.store.folder(run_id).joinpath("row.json").unlink()
    found = frames(lab.store)
    assert found["spurious_gap"].frame.empty
    assert len(found["spurious_pictures"].frame)
    assert sentences(SpuriousRank(), found) == []
    for figure in drawn_findings(SpuriousRank()):
        with pytest.raises(NothingToDraw):
            figure.draw(*(found[table.name] for table in figure.tables))


def test_the_headline_has_a_number_and_its_interval_and_the_figures_draw_both_ends(made, monkeypatch):
    shown = lambda _, ids, __: Pictures([f"data:image/png;base64,{one}" for one in ids], None)  # noqa: E731
    monkeypatch.setattr("fca.studies.reliance.spurious_rank.pictures", shown)
    found = frames(made[0].store, top=1, k=3, shown=2)
    [line] = sentences(SpuriousRank(), found)
    assert line.startswith("Where the cues of a class of zoo are strong, the model is not significantly more accurate")
    assert re.search(r": net by \+\d+ points \[-\d+, \+\d+\]\.$", line)
    for figure in drawn_findings(SpuriousRank()):
        assert json.dumps(spec(figure.draw(*(found[table.name] for table in figure.tables))))
    images = found["spurious_pictures"].frame
    assert images["label"].iloc[0] == "wolf", "the widest gap first"
    wolves = images[images["label"] == "wolf"].groupby("end")["rank"].agg(list)
    assert wolves["top"] == [1, 2]
    assert wolves["bottom"] == [12, 11]


def test_a_model_that_ranks_the_images_itself_does_not_answer_whether_cues_help():
    line = {"dataset": "zoo", "label": ALL_CLASSES, "gap": 0.3, "gap_low": 0.2, "gap_high": 0.4}
    gap = pd.DataFrame([line | {"subject": "net, the encoder"}])
    assert sentences_of(gap_statements, gap) == []
    [sentence] = sentences_of(encoder_statements, gap)
    assert sentence.endswith(", by construction: its own features rank the images.")


def saved(lab, **fields):
    return lab.store.save(frames(lab.store, **fields)["spurious_ranks"]).name


def test_a_saved_table_gives_the_ranks_of_images_in_any_order(made):
    lab, *_ = made
    table_id = saved(lab)
    rows = np.random.default_rng(0).permutation(lab.data.rows("train"))
    frame = frames(lab.store)["spurious_ranks"].frame.set_index("image_id")["rank"]
    expected = [frame[image] for image in lab.data.items["image_id"].iloc[rows]]
    assert ranks_of(lab.store, table_id, lab.data, rows).tolist() == expected


def test_without_a_table_ranks_are_those_of_the_images_own_column(lab):
    rows = np.random.default_rng(0).permutation(lab.data.rows("train"))
    own = np.arange(len(lab.data.items), dtype=float)
    ranked = replace(lab.data, items=lab.data.items.assign(rank=own))
    assert ranks_of(lab.store, None, ranked, rows).tolist() == own[rows].tolist()
    with pytest.raises(
        FcaError, match=r"adaptation.ranks = None; allowed: id of .*column rank.*analysis=spurious_rank"
    ):
        ranks_of(lab.store, None, lab.data, rows)
    gap = replace(ranked, items=ranked.items.assign(rank=np.where(own == rows[3], np.nan, own)))
    with pytest.raises(FcaError, match=f"images without ranks in column rank = {ranked.items['image_id'][rows[3]]} "):
        ranks_of(lab.store, None, gap, rows)


def test_ranks_that_are_none_or_of_other_images_or_classes_are_refused(made, tmp_path):
    lab, *_ = made
    table_id, rows = saved(lab), lab.data.rows("train")
    weights_id = lab.store.save(frames(lab.store)["feature_importance"]).name
    with pytest.raises(FcaError, match=rf"adaptation\.ranks = nothing; .*: {table_id}"):
        ranks_of(lab.store, "nothing", lab.data, rows)
    with pytest.raises(FcaError, match=f"{weights_id}, a table feature_importance"):
        ranks_of(lab.store, weights_id, lab.data, rows)
    other = images(per_class=13)
    with pytest.raises(FcaError, match=r"images without ranks in table .* others of 78"):
        ranks_of(lab.store, table_id, other, other.rows("train"))
    (tmp_path / "one.csv").write_text("class,feature\nwolf,1\n")
    with pytest.raises(FcaError, match="classes without ranks = ant, bee, cat, dog, yak"):
        ranks_of(lab.store, saved(lab, features=str(tmp_path / "one.csv")), lab.data, rows)
    (lab.store.outputs / "tables" / table_id / "table.parquet").write_bytes(b"broken")
    with pytest.raises(FcaError, match="a whole table"):
        ranks_of(lab.store, table_id, lab.data, rows)
