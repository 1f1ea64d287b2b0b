"""Accuracy under corruptions, from stored predictions whose numbers are known."""

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from fca.stats.intervals import mean_with_interval
from fca.store import Store
from fca.studies.irt.corruption_accuracy import CorruptionAccuracy
from fca.studies.irt.figures.corruptions import loss_statements
from fca.types import FcaError
from tests.support.figure_claims import drawn_findings, sentences_of
from tests.support.lab import Lab

FOG = ("corruption/fog/1", "corruption/fog/3", "corruption/fog/5")


@pytest.fixture
def lab(tmp_path):
    return Lab(Store(tmp_path / "outputs"))


def answered(lab, model, shares):
    """Predictions of which about this share is right."""
    return {shift: lab.answered(model, share, shift, seed=0) for shift, share in shares.items()}


def found(lab, **keys):
    return [table.frame for table in CorruptionAccuracy(**keys)(lab.store)]


def right(lab, run_id):
    return (lab.store.array(run_id, "pred") == lab.true).astype(float)


def test_accuracies_and_losses_are_those_by_hand_for_a_single_model(lab):
    runs = answered(lab, "net", {"clean": 0.9, **dict(zip(FOG, (0.8, 0.5, 0.3), strict=True))})
    accuracies, losses = found(lab)
    for line in accuracies.to_dict("records"):
        shift = f"corruption/fog/{line['severity']}" if line["severity"] else "clean"
        known = right(lab, runs[shift])
        assert line["top1"] == pytest.approx(known.mean())
        wilson = proportion_confint(known.sum(), len(known), method="wilson")
        assert (line["top1_low"], line["top1_high"]) == pytest.approx(wilson)
    [line] = losses.to_dict("records")
    mean = np.mean([right(lab, runs[shift]) for shift in FOG], axis=0)
    lost = right(lab, runs["clean"]) - mean
    assert (line["top1_mean"], line["loss"], line["top1_clean"]) == pytest.approx(
        (mean.mean(), lost.mean(), right(lab, runs["clean"]).mean())
    )
    interval = mean_with_interval(lost, None, (-1.0, 1.0))[1:]
    assert (line["loss_low"], line["loss_high"]) == pytest.approx(interval, rel=1e-12)  # sums in another order
    low, high = stats.t.interval(0.95, len(lost) - 1, lost.mean(), stats.sem(lost))
    assert line["loss_high"] - line["loss_low"] == pytest.approx(high - low, rel=0.1)  # Student's, moved by skewness
    assert (line["severities"], line["images"]) == (3, len(lab.true))


def test_without_clean_predictions_there_is_no_loss(lab):
    answered(lab, "net", dict.fromkeys(FOG, 0.5))
    accuracies, losses = found(lab)
    assert sorted(accuracies["severity"]) == [1, 3, 5]
    assert losses[["loss", "loss_low", "loss_high", "top1_clean"]].isna().all(axis=None)
    assert losses["top1_mean"].notna().all()


def test_without_corrupted_images_the_command_that_makes_some_is_named(lab):
    answered(lab, "net", {"clean": 0.9})
    with pytest.raises(FcaError, match=r"none among the 1 stored rows.*shift=clean,corruption/all"):
        found(lab)


def test_the_figure_has_a_square_for_each_severity_and_the_answer_names_the_worst(lab):
    for model, share in (("best", 0.9), ("other", 0.6)):
        shifts = {"clean": share, "corruption/fog/1": share - 0.1, "corruption/snow/1": share - 0.4}
        answered(lab, model, shifts)
    tables = CorruptionAccuracy()(lab.store)
    [figure] = drawn_findings(CorruptionAccuracy())
    spec = figure.draw(*tables).to_dict()
    [(_, lines)] = spec["datasets"].items()
    assert len(lines) == len(tables[0].frame)
    assert {line["panel"] for line in lines} == {"best", "other"}
    most_harmful, losses = sentences_of(loss_statements, tables[1].frame)
    assert "snow hurts best most" in most_harmful
    under_snow = tables[1].frame.set_index(["subject", "corruption"]).loc[("best", "snow")]
    assert f"the largest loss of best, under snow, is {100 * under_snow['loss']:+.1f} points [" in losses


def test_of_one_corruption_its_accuracy_is_stated_and_no_worst_one(lab):
    answered(lab, "net", {"clean": 0.9, "corruption/fog/1": 0.5})
    [_, losses] = CorruptionAccuracy()(lab.store)
    accuracy, loss = sentences_of(loss_statements, losses.frame)
    [line] = losses.frame.to_dict("records")
    assert accuracy.startswith(f"Under fog, net is right on {100 * line['top1_mean']:.1f} % [")
    assert accuracy.endswith(f"over its severities, {100 * line['top1_clean']:.1f} % on clean images.")
    assert loss.startswith(f"zoo: the loss of net under fog is {100 * line['loss']:+.1f} points [")


def test_of_many_models_the_four_best_on_clean_images_are_drawn_and_the_title_counts_all(lab):
    for at in range(5):
        answered(lab, f"net{at}", {"clean": 0.2 + 0.15 * at, "corruption/fog/1": 0.5})
    accuracies, losses = CorruptionAccuracy()(lab.store)
    [figure] = drawn_findings(CorruptionAccuracy())
    spec = figure.draw(accuracies, losses).to_dict()
    [(_, lines)] = spec["datasets"].items()
    best = losses.frame.sort_values("top1_clean")["subject"].tail(4)
    assert {line["panel"] for line in lines} == set(best)
    assert "The 4 most accurate of 5 subjects" in str(spec["title"])


def test_a_mean_over_two_severities_is_not_compared_with_one_over_three(lab):
    shares = {"clean": 0.9, **dict(zip(FOG, (0.8, 0.7, 0.6), strict=True))}
    shares |= {shift.replace("fog", "snow"): share - 0.05 for shift, share in shares.items() if "fog" in shift}
    shares |= {"corruption/jpeg/1": 0.2, "corruption/jpeg/3": 0.1}
    answered(lab, "net", shares)
    tables = CorruptionAccuracy()(lab.store)
    levels = tables[1].frame.set_index("corruption")["severity_levels"].to_dict()
    assert levels == {"fog": "1, 3, 5", "snow": "1, 3, 5", "jpeg": "1, 3"}

    sentences = sentences_of(loss_statements, tables[1].frame)
    assert len(sentences) == 2
    for sentence in sentences:
        assert sentence.endswith("; not compared, because of other severities: jpeg (1, 3).")
        assert "snow" in sentence.partition(";")[0]
    assert sentences[0].startswith("Of 2 corruptions of")

    [figure] = drawn_findings(CorruptionAccuracy())
    spec = figure.draw(*tables).to_dict()
    assert (
        "The corruptions at the bottom are not compared, because of other severities: jpeg (1, 3)."
        in spec["title"]["subtitle"]
    )
    [lines] = spec["datasets"].values()
    place = {line["corruption"]: line["place"] for line in lines}
    assert max(place, key=place.get) == "jpeg", "though its mean is the lowest"
