"""The recommendation on jobs whose every answer is planted: which model, what it confuses, which labels are wrong."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fca.metric import Metric
from fca.stats.comparison import paired_interval
from fca.store import Store
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT_LOGITS
from fca.studies.recommend.choice import BEST, CHOSEN, FASTER, GUESS, OPEN, REFUSED, SMALLEST, UNTRAINED, WORSE
from fca.studies.recommend.evidence import Program, evidence_of_jobs
from fca.studies.recommend.expected import gather_other_jobs
from fca.studies.recommend.figures import front_figure
from fca.studies.recommend.recommendation import Recommendation
from fca.types import FcaError
from tests.studies.recommend.support.recommended import SIZE, job_data, network, trained
from tests.support.lab import Lab


@pytest.fixture(scope="module")
def tables(recommended_study):
    return {table.name: table.frame for table in Recommendation()(recommended_study.store)}


def line_of(frame, model, adaptation="probe"):
    return frame[(frame["model"] == model) & (frame["adaptation"] == adaptation)].iloc[0]


def test_the_smaller_of_two_models_that_fail_on_the_same_images_is_recommended(tables):
    frame = tables["recommendation"]
    assert (frame.iloc[0]["model"], frame.iloc[0]["verdict"]) == ("fast", CHOSEN)
    assert frame.iloc[0]["within"] >= 0.9
    assert line_of(frame, "bad")["verdict"] == WORSE
    assert line_of(frame, "untrained", "scratch")["verdict"] == UNTRAINED


@pytest.mark.wide
def test_the_answer_has_three_lines_or_fewer(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=600))
    for model, latency_ms, right in (("large", 40.0, 0.99), ("middle", 10.0, 0.985), ("small", 4.0, 0.972)):
        network(lab, model, latency_ms, weights="w")
        trained(lab, model, right, "probe", weights="w")
    found = {table.name: table.frame for table in Recommendation()(lab.store)}
    lines = found["recommendation_answer"].set_index("line")["model"].to_dict()
    assert lines == {SMALLEST: "middle", BEST: "large", FASTER: "small"}
    wide = {table.name: table.frame for table in Recommendation(within=5.0)(lab.store)}
    assert wide["recommendation_answer"].set_index("line")["model"].to_dict() == {SMALLEST: "small", BEST: "large"}


@pytest.mark.wide
@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"fast": (3.8, 4.3), "fine": (4.2, 4.6)}, "fine"),
        ({"fast": (3.8, 4.1), "fine": (4.2, 4.6)}, "fast"),
        ({"fast": (3.8, 4.3), "fine": (None, None)}, "fast"),
    ],
)
def test_of_models_whose_times_cannot_be_told_apart_the_most_accurate_is_used(tmp_path, ends, expected):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=600))
    for (model, (low, high)), latency_ms, right in zip(ends.items(), (4.0, 4.4), (0.982, 0.988), strict=True):
        network(lab, model, latency_ms, latency_ms_low=low, latency_ms_high=high, weights="w")
        trained(lab, model, right, "probe", weights="w")
    found = {table.name: table.frame for table in Recommendation()(lab.store)}
    assert found["recommendation"].iloc[0]["model"] == expected
    by_file = {table.name: table.frame for table in Recommendation(smallest="params")(lab.store)}
    assert by_file["recommendation"].iloc[0]["model"] == "fine"  # as large: the more accurate one


def test_candidates_far_below_the_best_are_in_the_table_alone(recommended_study):
    table = next(table for table in Recommendation()(recommended_study.store) if table.name == "recommendation")
    chart = json.dumps(front_figure(table).to_dict())
    assert "fast 32 px" in chart
    assert "bad 32 px" in set(table.frame["candidate"].str.removesuffix(" (linear probe)"))
    assert "bad 32 px" not in chart
    assert "more than 25 points below the best are only in the table" in chart.replace('", "', " ")


def test_fine_tuning_is_compared_with_the_probe_on_the_same_test_images(tables, recommended_study):
    [line] = tables["recommendation_finetuning"].to_dict("records")
    n = line["n_test"]
    only_tuned, only_probe = 0.5 * n, 0.45 * n  # right on the last 55 %, and on the first 50 %
    ends = paired_interval(0.05 * n, only_tuned, only_probe, 0)
    assert (line["top1_finetuned"], line["top1_probe"]) == pytest.approx((0.55, 0.5))
    assert line["gain"] == pytest.approx(0.05)
    assert (line["gain_low"], line["gain_high"]) == pytest.approx(ends)
    assert line["candidate"] == "bad 32 px (fine-tuned)"


def test_a_limit_leaves_out_what_is_over_it_and_names_it(recommended_study):
    frame = Recommendation(latency_ms=3.0)(recommended_study.store)[0].frame
    assert (frame.iloc[0]["model"], frame.iloc[0]["verdict"]) == ("bad", CHOSEN)
    refused = line_of(frame, "slow")
    assert (refused["verdict"], refused["why"]) == (REFUSED, "latency_ms = 40 > 3")


@pytest.mark.wide
def test_few_images_give_a_best_guess_and_say_how_many_would_settle_it(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=30))
    for model, latency, right, last in (("slow", 40.0, 27 / 30, False), ("fast", 4.0, 25 / 30, True)):
        network(lab, model, latency)
        trained(lab, model, right, last=last)
    found = {table.name: table.frame for table in Recommendation()(lab.store)}
    frame = found["recommendation"]
    assert (frame.iloc[0]["model"], frame.iloc[0]["verdict"]) == ("slow", GUESS)
    assert line_of(frame, "fast", "scratch")["verdict"] == OPEN
    steps = found["recommendation_next"]
    assert steps["step"].str.contains("images instead of 30|wider margin").any()
    assert "fca[weights]" in steps.iloc[0]["step"], "no candidate has weights"


def test_what_no_image_separates_is_decided_by_how_such_programs_compared_elsewhere(tmp_path):
    """Two inputs of one network are right on the same share of 30 images: other jobs prefer 160 pixels to 128."""
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=30))
    for size in (128, 160):
        compiled = lab.write(
            task="compile", model="tf_efficientnet_lite0", weights="w", input_size=size, precision="int8"
        )
        about = {"weights": f"{compiled}/cut"}
        network(lab, f"lite {size}", size / 100, **about)
        trained(lab, f"lite {size}", 0.9, "probe", **about)
    job = evidence_of_jobs(lab.store, None)[0]
    programs = [candidate.program for candidate in job.candidates]
    assert programs[0] == Program("tf_efficientnet_lite0", "w", 128, "cut", "int8", "probe")
    expectation = gather_other_jobs([], Metric()).expectation(job, Metric())
    before, after = expectation.prior_draws.mean(axis=0), expectation.draws.mean(axis=0)
    assert before[1] > before[0]
    assert 0 < after[1] - after[0] < 0.03
    assert abs(after.mean() - 0.9) < 0.05


def test_confusions_are_those_of_the_recommended_model_on_test_images(tables, recommended_study):
    frame, data = tables["recommendation_confusions"], recommended_study.data
    labels = data.labels[data.rows("test")]
    wrong = labels[round(0.98 * len(labels)) :]
    assert frame["errors"].sum() == len(wrong)
    for line in frame.itertuples():
        label = data.classes.index(line.label)
        assert line.predicted_class == data.classes[(label + 1) % 3]
        assert line.errors == (wrong == label).sum()


def test_a_planted_wrong_label_is_among_those_to_look_at(tables, recommended_study):
    data = recommended_study.data
    planted = data.items.iloc[data.rows("train")[5]]
    suspects = tables["recommendation_relabel"].set_index("image_id")
    suggested = data.classes[(data.classes.index(planted["label"]) + 1) % 3]
    assert suspects.loc[planted["image_id"], ["label", "suggested"]].tolist() == [planted["label"], suggested]
    assert tables["recommendation_classes"]["suspects"].sum() == len(suspects)


def test_the_longest_training_counts_and_of_several_seeds_the_lowest_is_used(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=30))
    network(lab, "net", 4.0)
    trained(lab, "net", 10 / 30, recipe_epochs=3)
    whole = [trained(lab, "net", right / 30, seed=seed) for seed, right in ((1, 20), (0, 24))]
    line = Recommendation()(lab.store)[0].frame.iloc[0]
    assert (line["epochs"], line["seeds"], line["run_id"]) == (10, 2, whole[1])
    assert line["top1_judged"] == pytest.approx(24 / 30)


def test_of_two_probes_of_one_program_the_latest_counts(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=30))
    network(lab, "net", 9.0, weights="w")
    earlier, later = (trained(lab, "net", right / 30, "probe", weights="w") for right in (28, 20))
    line = line_of(Recommendation()(lab.store)[0].frame, "net", "probe")
    assert earlier != later
    assert (line["run_id"], line["seeds"]) == (later, 1)


def test_probes_are_judged_by_training_images_as_well_and_others_by_validation_images_alone(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=30))
    network(lab, "net", 9.0, weights="w")
    trained(lab, "net", 25 / 30, "probe", weights="w")
    trained(lab, "net", 20 / 30, "finetune", weights="w")
    frame = Recommendation()(lab.store)[0].frame
    assert line_of(frame, "net", "probe")["n_judged"] == 60
    assert line_of(frame, "net", "finetune")["n_judged"] == 30
    assert line_of(frame, "net", "finetune")["latency_ms"] == 9.0, "fine-tuning changes no program"


def test_balanced_accuracy_chooses_what_is_right_on_the_rare_class(tmp_path):
    """140 wolves, 10 cats: one model takes all cats for wolves, the other is wrong on some of both."""
    data = job_data(per_class=300, keys=("wolf", "cat"))
    rare = data.items.groupby(["label", "split"]).cumcount() >= 10
    kept = data.items[~(rare & (data.items["label"] == "cat"))].reset_index(drop=True)
    kept = kept.assign(label=kept["label"].astype(str))
    lab = Lab(Store(tmp_path / "outputs"), replace(data, items=kept, fingerprint="rare"))
    both = np.concatenate([lab.data.rows("train"), lab.data.rows("val")])
    labels = lab.data.labels[both]
    always_wolf = np.zeros(len(both), int)
    careful = labels.copy()
    careful[np.flatnonzero(labels == 0)[::6]] = 1  # five in six wolves, every cat
    for model, predicted in (("lazy", always_wolf), ("careful", careful)):
        network(lab, model, 4.0, weights="w", ncl=2)
        about = {"model": model, "weights": "w", "adaptation": "probe", "ncl": 2, "classes": range(2), "seed": 0}
        arrays = {JUDGED_IMAGES: both.astype(np.int32), LEFT_OUT_LOGITS: np.eye(2)[predicted]}
        measured = {"top1": 0.9, "top1_low": 0.8, "top1_high": 0.95, "n_test": 150, "input_size": SIZE}
        lab.write(arrays, task="train", **about, **measured, n_judged=len(both))
    first = {metric: Recommendation(metric=metric)(lab.store)[0].frame.iloc[0] for metric in ("accuracy", "balanced")}
    assert first["accuracy"]["model"] == "lazy"
    assert first["balanced"]["model"] == "careful"
    assert first["balanced"]["top1_judged"] == pytest.approx((5 / 6 + 1) / 2, abs=0.01)


def test_a_store_without_trainings_says_what_makes_some(lab):
    with pytest.raises(FcaError, match=r"none among the 0 stored rows.*fca recommend FOLDER"):
        Recommendation()(lab.store)


@pytest.mark.wide
def test_jobs_of_one_data_set_are_named_by_their_classes(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"), job_data())
    network(lab, "net", 4.0)
    trained(lab, "net", 0.9)
    network(lab, "net", 4.0, ncl=2)
    for seed, classes in enumerate([(0, 1), (1, 2)]):
        run = trained(lab, "net", 0.8, ncl=2, classes=classes, subset_seed=seed)
    trained(lab, "net", 0.8, ncl=2, classes=(0, 2), subset_seed=1, sampler="fca")
    drawn = {f"zoo, ncl=2, subset.seed=1, classes {classes}" for classes in ("1 2", "0 2")}
    names = {"zoo, ncl=3", "zoo, ncl=2, subset.seed=0"} | drawn
    assert all(set(table.frame["dataset"]) <= names for table in Recommendation()(lab.store))
    frame = Recommendation()(lab.store)[0].frame
    assert set(frame["dataset"]) == names
    [alone] = Recommendation("classes == (1, 2)")(lab.store)[0].frame.to_dict("records")
    assert (alone["dataset"], alone["run_id"]) == ("zoo", run)


def costs_file(folder, text):
    file = folder / "costs.csv"
    file.write_text(text)
    return str(file)


EVEN = "true,wolf,cat,yak\nwolf,0,1,1\ncat,1,0,1\nyak,1,1,0\n"


def probed(lab, model, probabilities, latency_ms, **of):
    """A probe whose probabilities of the classes are these for all images of a class; its run id."""
    network(lab, model, latency_ms, weights="w", **of)
    rows = np.concatenate([lab.data.rows("train"), lab.data.rows("val")])
    logits = np.log(np.array(probabilities))
    about = {"model": model, "weights": "w", "adaptation": "probe", "ncl": 3, "classes": range(3), "seed": 0}
    arrays = {JUDGED_IMAGES: rows.astype(np.int32), LEFT_OUT_LOGITS: logits[lab.data.labels[rows]]}
    measured = {"top1": 0.9, "top1_low": 0.8, "top1_high": 0.95, "input_size": SIZE}
    test = lab.data.labels[lab.data.rows("test")]
    run = lab.write(arrays, task="train", **about, **measured, n_test=len(test), n_judged=len(rows))
    stored = {"pred": logits[test].argmax(axis=1).astype(np.int32), "logits": logits[test].astype(np.float32)}
    stored["logit_classes"] = np.array(lab.data.classes)
    lab.write(stored, task="predict", split="test", parent=run, snapshot="best", **about)
    return run


def test_each_image_gets_the_answer_of_least_expected_cost_and_costs_are_in_the_unit_of_the_table(tmp_path):
    """Certain of wolves and cats; a yak is 60 % a cat, which costs 30: answered yak, cats are wrong at 2 each."""
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=90))
    probed(lab, "net", [[0.98, 0.01, 0.01], [0.02, 0.6, 0.38], [0.02, 0.6, 0.38]], 4.0)
    file = costs_file(tmp_path, "true,yak,cat,wolf\nyak,0,30,30\ncat,2,0,2\nwolf,2,2,0\n")
    found = {table.name: table.frame for table in Recommendation(costs=file)(lab.store)}
    line = found["recommendation"].iloc[0]
    assert line["cost_judged"] == pytest.approx(2 / 3), "a third are cats, answered as yak"
    assert line["cost"] == pytest.approx(2 / 3)
    assert line["cost_low"] < 2 / 3 < line["cost_high"] < 30
    assert line["cost_expected_low"] < 2 / 3 < line["cost_expected_high"]
    assert (line["one_answer"], line["cost_of_one_answer"]) == ("yak", pytest.approx(4 / 3))
    assert (line["metric"], np.isnan(line["top1_expected"])) == ("cost", True)
    [pair] = found["recommendation_confusions"].to_dict("records")
    assert (pair["label"], pair["predicted_class"], pair["errors"], pair["cost_of_errors"]) == ("cat", "yak", 30, 60)


def test_costs_choose_the_model_whose_mistakes_are_cheap(tmp_path):
    """One model never tells cats from yaks, the other never wolves from cats: which is better, the table decides."""
    lab = Lab(Store(tmp_path / "outputs"), job_data(per_class=90))
    of_cats_and_yaks, of_wolves_and_cats = [0.02, 0.49, 0.49], [0.49, 0.49, 0.02]
    probed(lab, "herd", [[0.98, 0.01, 0.01], of_cats_and_yaks, of_cats_and_yaks], 4.0)
    probed(lab, "pack", [of_wolves_and_cats, of_wolves_and_cats, [0.01, 0.01, 0.98]], 4.0)
    table = "true,wolf,cat,yak\nwolf,0,{wolf},9\ncat,{wolf},0,{yak}\nyak,9,{yak},0\n"
    for chosen, prices in (("herd", {"wolf": 9, "yak": 1}), ("pack", {"wolf": 1, "yak": 9})):
        file = costs_file(tmp_path, table.format(**prices))
        assert Recommendation(costs=file)(lab.store)[0].frame.iloc[0]["model"] == chosen


def test_with_one_cost_for_every_mistake_the_choice_is_that_of_accuracy(recommended_study, tables, tmp_path):
    by_cost = Recommendation(costs=costs_file(tmp_path, EVEN.replace("1", "7")))
    by_accuracy = tables["recommendation"]
    job = evidence_of_jobs(recommended_study.store, None)[0]
    known = gather_other_jobs([], by_cost.metric_of_others)
    weighed = [asked.compare(job, known) for asked in (by_cost, Recommendation())]
    np.testing.assert_allclose(weighed[0].draws, weighed[1].draws, atol=1e-9)  # float64, through a logit and back
    assert weighed[0].limits.within == pytest.approx(0.01)
    assert weighed[0].candidates[weighed[0].answer].program.network == by_accuracy.iloc[0]["model"]


def test_a_margin_is_in_the_unit_of_the_table_or_one_mistake_in_a_hundred_images(recommended_study, tmp_path):
    file = costs_file(tmp_path, "true,wolf,cat,yak\nwolf,0,1,1\ncat,1,0,1\nyak,8,8,0\n")
    job = evidence_of_jobs(recommended_study.store, None)[0]
    usual = Recommendation(costs=file)
    metric = usual.metric_of(job)
    mean_of_a_mistake = (4 * 1 + 2 * 8) / 6
    assert metric.cost(1 - usual.limits(metric).within) == pytest.approx(mean_of_a_mistake / 100)
    assert metric.cost(1 - Recommendation(costs=file, within=0.4).limits(metric).within) == pytest.approx(0.4)
    assert metric.difference(0.05) == "0.4 an image"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metric": "balanced"}, "metric = balanced; allowed: left out beside costs="),
        ({"metric": "accuracy"}, "metric = accuracy; allowed: left out beside costs="),
        ({"costs": None, "within": 101.0}, "within = 101.0; allowed: a finite number, at least 0, at most 100 points"),
        ({"costs": "nowhere.csv"}, "costs = nowhere.csv; allowed: a CSV file"),
    ],
)
def test_what_contradicts_costs_is_refused(tmp_path, given, message):
    with pytest.raises(FcaError, match=message):
        Recommendation(**({"costs": costs_file(tmp_path, EVEN)} | given)).check()


def test_a_table_that_lacks_a_class_of_the_job_is_refused(recommended_study, tmp_path):
    file = costs_file(tmp_path, "true,wolf,cat\nwolf,0,1\ncat,1,0\n")
    with pytest.raises(FcaError, match="without 'yak'; allowed: all of"):
        Recommendation(costs=file)(recommended_study.store)
