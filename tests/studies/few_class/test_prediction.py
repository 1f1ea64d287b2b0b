"""Predictions of invented accuracies whose answer is known."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from fca.stats.features import knn_top1, sample_rows
from fca.stats.similarity import class_similarity, subset_scores
from fca.store import Store
from fca.studies.few_class.prediction import PREDICTORS, Prediction, judge_predictors
from fca.subset import draw_subset
from fca.types import FcaError
from tests.support.lab import Lab, images

pytestmark = pytest.mark.slow  # many studies

SEEDS, NCL = range(7), (2, 3)


def tables(lab, **fields):
    return {table.name: table.frame for table in Prediction(**fields)(lab.store)}


def line(frame, predictor, **chosen):
    chosen = {"predictor": predictor, "held_out": "subset seed", **chosen}
    for name, value in chosen.items():
        frame = frame[frame[name] == value]
    [found] = frame.to_dict("records")
    return found


def simss_of(lab, seed=1):
    """SimSS of each subset, by an encoder whose features are stored."""
    features = lab.features(seed=seed).astype(np.float16)
    lab.embed("hog", features)
    similarity = class_similarity(features, lab.true)
    return {s.classes: subset_scores(similarity, lab.true, np.array(s.classes)).simss for s in lab.subsets(NCL, SEEDS)}


def train(lab, model, accuracy):
    """A sub-model on every subset; accuracy: of its classes."""
    drawn = {s.classes: s for s in reversed(lab.subsets(NCL, SEEDS))}
    for subset in drawn.values():
        lab.train(model, subset, accuracy(subset.classes))
    return len(drawn)


def noise(classes, scale=0.02):
    return scale * np.random.default_rng(list(classes)).normal()


def follow_simss(lab):
    """Accuracy follows SimSS but for a little noise; returns how many subsets there are."""
    simss = simss_of(lab)
    return train(lab, "net", lambda c: 0.5 + 0.6 * simss[c] - 0.02 * len(c) + noise(c, 0.002))


@pytest.fixture
def easy(lab):
    follow_simss(lab)
    return lab


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The tables of `easy`, made once."""
    lab = Lab(Store(tmp_path_factory.mktemp("easy")))
    follow_simss(lab)
    return tables(lab)


def test_accuracy_that_follows_simss_is_predicted_beyond_ncl(told):
    found = told["prediction"]
    assert found["predictor"].tolist() == list(PREDICTORS)
    simss, alone = line(found, "simss"), line(found, "log_ncl")
    assert simss["verdict"] == "beyond ncl"
    assert simss["within_ncl_r"] > simss["within_ncl_r_low"] > 0.9
    assert simss["error_points"] < 0.5 < alone["error_points"]
    assert simss["gain_points"] == pytest.approx(alone["error_points"] - simss["error_points"])
    assert 0 < simss["gain_points_low"] < simss["gain_points"] < simss["gain_points_high"]
    assert simss["width_points"] < alone["width_points"]
    assert (simss["datasets"], simss["better_in"]) == (1, 1)


def test_accuracy_that_follows_ncl_alone_is_predicted_by_nothing_else(lab):
    simss_of(lab)
    train(lab, "net", lambda c: 0.9 - 0.05 * len(c) + noise(c, 0.004))
    found = tables(lab)["prediction"]
    assert not found["verdict"].eq("beyond ncl").any()
    assert line(found, "simss")["verdict"] == "not beyond ncl"
    assert line(found, "mean")["gain_points_high"] < 0
    baselines = found[found["predictor"].isin(["mean", "ncl", "log_ncl"])]
    assert set(baselines["verdict"]) == {"baseline"}
    assert baselines["within_ncl_r"].isna().all()
    assert np.isnan(line(found, "log_ncl")["gain_points"])


def test_predictions_equal_scikit_learns_with_each_subset_seed_left_out(study):
    found = tables(study)
    for predictor in ("log_ncl", "simss", "knn", "logme"):
        part = found["prediction_points"].query("predictor == @predictor")
        ncl, value = np.log(part["ncl"].to_numpy()), part["value"].to_numpy()
        x = ncl[:, None] if predictor == "log_ncl" else np.column_stack([ncl, value])
        groups = part["subset_seed"].fillna(-1)
        reference = cross_val_predict(LinearRegression(), x, part["top1"], groups=groups, cv=LeaveOneGroupOut())
        assert part["top1_predicted"].to_numpy() == pytest.approx(np.clip(reference, 0, 1), abs=1e-9)
        error = 100 * np.abs(np.clip(reference, 0, 1) - part["top1"]).mean()
        assert line(found["prediction"], predictor)["error_points"] == pytest.approx(error)


def test_two_data_sets_are_also_predicted_from_each_other(easy):
    farm = Lab(easy.store, replace(images(per_class=9), name="farm"), easy.count)
    simss = simss_of(farm, seed=2)
    train(farm, "net", lambda c: 0.3 + 0.6 * simss[c] - 0.02 * len(c) + noise(c, 0.002))  # 20 points harder
    found = tables(easy)
    frame = found["prediction"]
    assert frame["held_out"].tolist() == ["subset seed"] * len(PREDICTORS) + ["data set"] * len(PREDICTORS)
    known, new = (line(frame, "simss", held_out=way) for way in ("subset seed", "data set"))
    assert (known["datasets"], known["seeds"], known["better_in"]) == (2, 14, 2)
    assert known["error_points"] < 0.5
    assert known["verdict"] == "beyond ncl"
    assert new["error_points"] > 15  # SimSS does not know that the farm is harder
    assert np.isnan(new["coverage"])  # one other data set cannot show by how much they differ
    assert known["within_ncl_r"] == new["within_ncl_r"]
    points = found["prediction_points"]
    both = points[(points["predictor"] == "simss") & (points["held_out"] == "data set")]
    error = 100 * (both["top1"] - both["top1_predicted"]).abs()
    each = error.groupby(both["dataset"]).mean()
    of_two = [new["error_points_low"], new["error_points_high"]]
    wider = stats.sem(each) * 3**0.5  # two folds share their fits: sqrt(1 + 2 / 1)
    assert of_two == pytest.approx(stats.t.interval(0.95, 1, each.mean(), wider))
    part = points[(points["predictor"] == "log_ncl") & (points["held_out"] == "data set")]
    zoo, other = (part[part["dataset"] == d] for d in ("zoo", "farm"))
    fit = LinearRegression().fit(np.log(zoo[["ncl"]].to_numpy()), zoo["top1"])
    expected = fit.predict(np.log(other[["ncl"]].to_numpy()))
    assert other["top1_predicted"].to_numpy() == pytest.approx(expected, abs=1e-9)


def test_the_best_model_of_each_subset_is_predicted(easy):
    train(easy, "better", lambda c: 0.99)
    points = tables(easy)["prediction_points"]
    assert set(points["model"]) == {"better"}
    assert (points["top1"] == 0.99).all()
    assert (points["models"] == 2).all()


def test_full_models_are_predicted_where_they_are_asked_for(study):
    found = tables(study, target="masked")
    assert set(found["prediction"]["target"]) == {"DCN masked"}
    with pytest.raises(FcaError, match=r"analysis\.target = top5; allowed: sub, open, masked"):
        tables(study, target="top5")


def test_two_seeds_that_drew_the_same_classes_are_one_subset(told):
    drawn = [draw_subset(6, n, s).classes for n in NCL for s in SEEDS]
    points = told["prediction_points"].query("predictor == 'simss'")
    assert points["classes"].map(tuple).is_unique
    assert len(drawn) > len(set(drawn)) == len(points) == line(told["prediction"], "simss")["n"]


def test_one_subset_seed_leaves_nothing_unseen(lab):
    lab.embed("hog", lab.features(seed=1))
    for n in (2, 3, 4, 5):
        lab.train("net", draw_subset(6, n, 0), 0.9 - n / 20)
    found = tables(lab)
    simss = line(found["prediction"], "simss")
    assert np.isnan([simss[name] for name in ("error_points", "gain_points", "coverage", "within_ncl_r_low")]).all()
    assert simss["verdict"] == "undecided"
    assert found["prediction"]["better_in"].isna().all()
    assert found["prediction_points"]["top1_predicted"].isna().all()


def test_each_encoder_is_judged_by_itself(easy):
    easy.embed("pixels", np.random.default_rng(5).normal(size=(len(easy.true), 8)))
    found = tables(easy)["prediction"]
    assert line(found, "simss", encoder="hog")["verdict"] == "beyond ncl"
    assert line(found, "simss", encoder="pixels")["verdict"] != "beyond ncl"
    assert line(found, "log_ncl", encoder="hog")["error_points"] == pytest.approx(
        line(found, "log_ncl", encoder="pixels")["error_points"]
    )


def test_predictors_read_the_split_and_as_many_images_as_asked(easy):
    train_labels = easy.data.labels[easy.data.rows("train")]
    features = np.random.default_rng(3).normal(size=(len(train_labels), 4)).astype(np.float16)
    easy.embed("hog", features, split="train")
    points = tables(easy, split="train", images=9)["prediction_points"]
    for one in points[points["predictor"] == "knn"].itertuples():
        inside = np.flatnonzero(np.isin(train_labels, one.classes))
        rows = inside[sample_rows(train_labels[inside], 9)]
        assert len(rows) == 9 // one.ncl * one.ncl
        assert one.value == knn_top1(features[rows], train_labels[rows])


def test_a_subset_with_a_class_of_one_image_is_left_out(lab):
    scarce = images()
    ant = scarce.items["label"].eq("ant") & scarce.items["split"].eq("test")
    items = scarce.items.drop(scarce.items[ant].index[1:]).reset_index(drop=True)
    bare = Lab(lab.store, replace(scarce, items=items, fingerprint="scarce"), lab.count)
    bare.embed("hog", bare.features(seed=1))
    train(bare, "net", lambda c: 0.8 + noise(c))
    ant_label = 3
    assert ant_label not in {c for classes in tables(bare)["prediction_points"]["classes"] for c in classes}


def test_adaptations_are_targets_of_their_own(easy, told):
    assert set(told["prediction"]["target"]) == {"DCN sub"}
    for subset in dict.fromkeys(easy.subsets((3,), range(4))):
        easy.train("net", subset, 0.99, adaptation="probe")
    found = tables(easy)
    assert set(found["prediction"]["target"]) == {"DCN sub, probe", "DCN sub, scratch"}
    points = found["prediction_points"]
    assert set(points.loc[points["target"] == "DCN sub, probe", "top1"]) == {0.99}
    scratch = points.loc[points["target"] == "DCN sub, scratch", "top1_predicted"]
    assert scratch.tolist() == told["prediction_points"]["top1_predicted"].tolist()


def test_a_similarity_without_features_is_judged_alone(told):
    points = told["prediction_points"].query("predictor == 'simss'")
    points = points.assign(encoder="sim", simss=lambda f: f["value"], separation=0.0)
    points = points.assign(intra=0.5, inter=0.5, log_ncl=np.log(points["ncl"]), silhouette=np.nan, knn=np.nan)
    judgement = [
        line
        for line, _ in judge_predictors(
            points.assign(probe=np.nan, logme=np.nan, stored=points["dataset"]).reset_index(), 0.005
        )
    ]
    assert [line["predictor"] for line in judgement] == ["mean", "ncl", "log_ncl", "simss", "separation", "intra_inter"]
    assert judgement[3]["error_points"] == line(told["prediction"], "simss")["error_points"]
