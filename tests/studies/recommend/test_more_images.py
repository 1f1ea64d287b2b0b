"""The curve of the recommended probe: found by its program, judged by the metric, continued no farther than checked."""

import numpy as np
import pytest

from fca.metric import Metric
from fca.store import Store
from fca.studies.recommend.evidence import Program, evidence_of_jobs
from fca.studies.recommend.figures.more_images import more_images_statements
from fca.studies.recommend.more_images import MORE_IMAGES, curve_row, measured_curve, more_images
from fca.studies.recommend.recommendation import Recommendation
from tests.studies.recommend.support.recommended import SIZE, TOP1, curve, job_data, network, trained
from tests.support.lab import Lab

FAST = Program("fast", "w", SIZE, "whole", "fp32", "probe")


@pytest.fixture
def lab(tmp_path):
    """A fast probe that is recommended, and a slow one that is no better; 60 training images of 3 classes."""
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=60))
    for model, latency in (("slow", 40.0), ("fast", 4.0)):
        network(lab, model, latency, weights="w")
        trained(lab, model, 0.9, "probe", weights="w")
    return lab


@pytest.mark.wide
def test_the_curve_of_the_recommended_program_is_shown_and_continued_to_four_times_the_images(lab):
    curve(lab, "slow", top1=TOP1 - 0.3)
    run = curve(lab, "fast")
    table = next(table for table in Recommendation()(lab.store) if table.name == MORE_IMAGES.name)
    frame = table.frame
    n = len(lab.data.rows("train"))

    measured = frame[frame["point"] == "measured"]
    assert measured["measured"].tolist() == pytest.approx(TOP1[::-1].tolist(), abs=1e-6)  # float32
    assert set(frame["run_id"]) == {run}
    assert frame["images"].max() == 4 * n
    assert frame["images_a_class"].max() == pytest.approx(4 * n / 3)
    predicted = frame[frame["point"] == "predicted"].set_index("times")
    assert (np.diff(predicted["accuracy"]) > 0).all()
    assert predicted.loc[1.0, "accuracy"] == pytest.approx(0.9, abs=0.02)
    gain = predicted.loc[2.0, "accuracy"] - predicted.loc[1.0, "accuracy"]
    assert predicted.loc[2.0, "gain"] == pytest.approx(gain, abs=0.003)  # of 4,000 draws
    assert (predicted["accuracy_low"] < predicted["accuracy"]).all()
    [(sentence, _)] = more_images_statements(frame)
    assert sentence.startswith(f"With {n / 3:.0f} more training images a class, {2 * n / 3:.0f} a class in all, ")


def test_without_a_curve_of_that_very_program_nothing_is_said(lab):
    curve(lab, "slow")
    curve(lab, "fast", input_size=2 * SIZE)
    curve(lab, "fast", classes=range(2), ncl=2)
    [of] = [one for one in evidence_of_jobs(lab.store, None) if one.job.classes == (0, 1, 2)]
    assert more_images(of, FAST, Metric()).empty
    assert more_images(of, None, Metric()).empty
    assert list(more_images(of, FAST._replace(adaptation="finetune"), Metric())) == [
        str(c) for c in MORE_IMAGES.columns
    ]


def test_balanced_accuracy_counts_every_class_alike(lab):
    judged = np.flatnonzero(lab.data.items["split"] != "test")
    is_first = lab.data.labels[judged] == 0
    few_of_first = np.concatenate([judged[is_first][:8], judged[~is_first]])
    curve(lab, "fast", first_class=0.5, judged=few_of_first)
    [of] = evidence_of_jobs(lab.store, None)
    row = curve_row(of, FAST)

    n_others = (~is_first).sum()
    accuracy = (8 * 0.5 + n_others * TOP1) / (8 + n_others)
    assert measured_curve(of, row, Metric()).accuracy == pytest.approx(accuracy, abs=1e-6)  # float32
    balanced = measured_curve(of, row, Metric("balanced"))
    assert balanced.accuracy == pytest.approx((0.5 + 2 * TOP1) / 3, abs=1e-6)
    assert balanced.images < 8 + n_others  # unequal weights: fewer effective images
    assert (
        "of balanced accuracy is expected"
        in more_images_statements(more_images(of, FAST, Metric("balanced")))[0].sentence
    )


def test_many_images_have_no_prediction(lab, monkeypatch):
    monkeypatch.setattr("fca.studies.recommend.stats.learning_curve.MOST_A_CLASS", 10.0)
    curve(lab, "fast")
    [of] = evidence_of_jobs(lab.store, None)
    frame = more_images(of, FAST, Metric())
    assert frame.loc[frame["point"] == "predicted", "times"].tolist() == [1.0]
    assert more_images_statements(frame) == []
