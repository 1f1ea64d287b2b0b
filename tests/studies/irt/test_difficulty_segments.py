"""Segments of planted answers: every line against a count by hand, one cut for all severities, ties, and files."""

import numpy as np
import pandas as pd
import pytest

from fca.stats.intervals import wilson
from fca.store import Store
from fca.studies.irt.class_robustness import ClassRobustness
from fca.studies.irt.difficulty_segments import DifficultySegments, places, quartered, tie_order
from fca.studies.irt.figures.classes import hard_images_statements, robust_classes_statements
from fca.studies.irt.fits import fitted
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.stats import fit_irt
from fca.tables.answers import DatasetResponses, clean_responses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from fca.types import FcaError
from tests.studies.irt.support.shifted_lab import FOG, SNAPSHOTS, shifted
from tests.support.figure_claims import sentences_of
from tests.support.lab import KEYS, Lab, images

SEGMENTS = ["easy", "med_easy", "med_hard", "hard"]


@pytest.fixture(scope="module")
def moved(tmp_path_factory):
    return shifted(Lab(Store(tmp_path_factory.mktemp("moved"))), {"fog": FOG})


def tables(lab, **fields):
    return {table.name: table.frame for table in DifficultySegments(**fields)(lab.store)}


def by_hand(responses, hardness, cuts):
    """Segment of each item: how many cut values it is above, where nothing is tied with a cut."""
    return np.array([SEGMENTS[sum(h > c for c in cuts)] for h in hardness])


@pytest.mark.wide
def test_clean_lines_are_counts_by_hand_in_quarters_of_twelve(moved):
    [gathered] = clean_responses(moved.store, None)
    answers = gathered.responses
    quarter = quartered(gathered, "2pl", None, 0).quarter["difficulty"]
    assert np.bincount(quarter).tolist() == [12] * 4
    success = fit_irt(answers.correct, "2pl").expected_success
    assert all(success[quarter == q].min() >= success[quarter == q + 1].max() - 1e-9 for q in range(3))
    lines = tables(moved)["segment_models"].query("severity == 0").set_index(["subject", "segment"])
    assert len(lines) == 12 * 4
    for row, subject in enumerate(answers.subjects["subject"]):
        for q, segment in enumerate(SEGMENTS):
            line = lines.loc[subject, segment]
            right = int(answers.correct[row, quarter == q].sum())
            assert (line["right"], line["n"], line["share"]) == (right, 12, right / 12)
            assert (line["share_low"], line["share_high"]) == wilson(right, 12)
            assert line["model"] == subject.split("/")[0]


def test_a_corruption_is_cut_where_clean_images_are(moved):
    [(kind, gathered)] = shifted_responses(moved.store, None)
    items = gathered.responses.items
    clean = (items["severity"] == 0).to_numpy()
    hardness = 1 - fitted(gathered).expected_success
    cuts = np.sort(hardness[clean])[[11, 23, 35]]
    apart = ~np.isclose(hardness[:, None], cuts, atol=1e-8).any(axis=1)
    found = quartered(gathered, "2pl", None, 0).quarter["difficulty"]
    told = np.array(SEGMENTS)[found]
    assert (told[apart] == by_hand(gathered.responses, hardness, cuts)[apart]).all()
    lines = tables(moved)["segment_models"]
    severe = lines[(lines["corruption"] == kind) & (lines["severity"] == 5)]
    fifth = (items["severity"] == 5).to_numpy()
    assert severe.groupby("segment")["n"].first().to_dict() == pd.Series(told[fifth]).value_counts().to_dict()
    assert (
        severe.loc[severe["segment"] == "hard", "n"].iloc[0] > 12 > severe.loc[severe["segment"] == "easy", "n"].iloc[0]
    )


def test_clean_images_are_told_once_however_many_corruptions(lab):
    lines = tables(shifted(lab, severities=(1, 5)))["segment_models"]
    assert not lines.duplicated(["corruption", "severity", "subject", "segment"]).any()
    assert set(zip(lines["corruption"], lines["severity"], strict=True)) == {
        ("clean", 0),
        *((kind, severity) for kind in ("fog", "glow") for severity in (1, 5)),
    }


def test_classes_in_the_outer_quarters_are_counted_by_hand(moved):
    [gathered] = clean_responses(moved.store, None)
    fit = fit_irt(gathered.responses.correct, "2pl")
    found, label = quartered(gathered, "2pl", None, 0), gathered.responses.items["label"].to_numpy()
    lines = tables(moved)["segment_classes"].set_index(["parameter", "quarter", "label"])
    assert len(lines) == 2 * 2 * len(KEYS)
    for parameter, value in (("difficulty", -fit.expected_success), ("discrimination", fit.discrimination)):
        quarter = found.quarter[parameter]
        assert value[quarter == 3].min() >= value[quarter == 0].max()
        for key in KEYS:
            for name, q in (("top", 3), ("bottom", 0)):
                line, count = lines.loc[parameter, name, key], int(((label == key) & (quarter == q)).sum())
                assert (line["items"], line["images"], line["share"]) == (count, 8, count / 8)
                assert (line["share_low"], line["share_high"]) == wilson(count, 8)


def test_one_discrimination_for_all_makes_no_quarters_of_it(moved):
    assert set(tables(moved, model="1pl")["segment_classes"]["parameter"]) == {"difficulty"}


def test_compat_cuts_raw_difficulty_at_each_severity(moved, monkeypatch):
    asked = []

    def plain(gathered, model, compat, seed):
        asked.append((model, compat, seed))
        return fitted(gathered, model)

    monkeypatch.setattr("fca.studies.irt.difficulty_segments.fitted", plain)
    [(_, gathered)] = shifted_responses(moved.store, None)
    quarter = quartered(gathered, "3pl-upper", "seed001", 7).quarter["difficulty"]
    assert asked == [("3pl-upper", "seed001", 7)]
    difficulty = fitted(gathered, "3pl-upper").difficulty
    for severity in range(6):
        own = (gathered.responses.items["severity"] == severity).to_numpy()
        assert np.bincount(quarter[own]).tolist() == [12] * 4
        hardest = np.argsort(difficulty[own])[-12:]
        assert difficulty[own][quarter[own] == 3].sum() == pytest.approx(difficulty[own][hardest].sum())


def test_compat_runs_and_differs_from_the_default(moved):
    ours, theirs = (tables(moved, model="3pl-upper", compat=compat) for compat in (None, "seed001"))
    counts = theirs["segment_models"].groupby("n").size()
    assert counts.index.tolist() == [12]  # quarters at every severity
    assert len(set(ours["segment_models"]["n"])) > 1


def test_permuted_items_are_in_the_same_quarters(moved):
    [gathered] = clean_responses(moved.store, None)
    answers, turned = gathered.responses, np.random.default_rng(0).permutation(48)
    other = Responses(answers.correct[:, turned], answers.subjects, answers.items.iloc[turned].reset_index(drop=True))
    one, two = (
        quartered(DatasetResponses("zoo", None, given, ()), "1pl", None, 0).quarter["difficulty"]
        for given in (answers, other)
    )
    assert one[turned].tolist() == two.tolist()


def test_equal_items_of_sorted_classes_do_not_fill_quarters_class_by_class():
    order = tie_order(pd.Series([f"{number:03d}" for number in range(400)]), seed=0)  # all tied, sorted by class
    first_class = order[:100] // 100  # quarter of each image of the first
    assert np.bincount(first_class, minlength=4).min() > 10


def test_a_file_is_a_data_set_and_labels_need_not_be_known(tmp_path, lab):
    rng = np.random.default_rng(1)
    correct = (rng.normal(size=(6, 1)) > rng.normal(size=40)).astype(float)
    subjects, items = [f"net{s}" for s in range(6)], [f"{i}.png" for i in range(40)]
    answers = Responses(correct, frame_of_subjects(subjects), frame_of_items(items))
    write_responses(answers, tmp_path / "other.npz")
    found = tables(lab, responses=[str(tmp_path / "other.npz")])
    assert set(found["segment_models"]["dataset"]) == {"other"}
    assert found["segment_models"]["n"].tolist() == [10] * 24
    assert found["segment_classes"].empty
    assert found["segment_classes_shown"].empty


def test_corruptions_in_a_file_are_cut_on_its_clean_items(tmp_path, lab):
    rng = np.random.default_rng(2)
    hard = rng.normal(size=40)
    correct = (rng.normal(size=(6, 1)) + 0.3 * rng.normal(size=(6, 80)) > np.concatenate([hard, hard + 1])).astype(
        float
    )
    items = [f"{i}.png" for i in range(40)]
    both = frame_of_items([*items, *(f"{item}@cifar_c/fog/3" for item in items)])
    answers = Responses(correct, frame_of_subjects([f"net{s}" for s in range(6)]), both)
    write_responses(answers, tmp_path / "c.npz")
    lines = tables(lab, responses=[str(tmp_path / "c.npz")])["segment_models"]
    assert set(zip(lines["corruption"], lines["severity"], strict=True)) == {("clean", 0), ("fog", 3)}
    assert places(DatasetResponses("c", None, answers, ())) == [("clean", 0), ("fog", 3)]


def test_without_clean_answers_there_is_nothing_to_cut_on(lab):
    [(_, gathered)] = shifted_responses(shifted(lab, {"fog": FOG}, clean=False).store, None)
    with pytest.raises(FcaError, match="clean responses of zoo beside those under fog = none"):
        quartered(gathered, "2pl", None, 0)
    assert set(quartered(gathered, "2pl", "seed001", 0).quarter) == {"difficulty", "discrimination"}


def test_an_unknown_compat_is_named(moved):
    with pytest.raises(FcaError, match=r"analysis\.compat = seed002; allowed: null or seed001"):
        tables(moved, compat="seed002")


def test_the_runs_and_the_way_are_told(moved):
    for table in DifficultySegments()(moved.store):
        assert len(table.runs) == 4 * len(SNAPSHOTS) * 6
        assert "cut on clean images" in table.parameters["segments"]


def test_a_larger_lab_finds_the_planted_class(lab):
    large = shifted(Lab(lab.store, images(per_class=40)), {"fog": FOG}, severities=(5,))
    lines = tables(large)["segment_models"]
    hard = lines.query("corruption == 'fog' and severity == 5 and segment == 'hard'")["n"].iloc[0]
    assert hard > 80  # more than a third of 240: wolves and yaks are there


@pytest.mark.wide
def test_subjects_that_guess_are_marked_and_nothing_is_derived_from_them(lab):
    rng = np.random.default_rng(0)
    for model in ("a", "b", "c"):
        for shift in ("clean", "corruption/fog/1", "corruption/fog/2", "corruption/snow/1", "corruption/snow/2"):
            lab.answered(model, rng.random(len(lab.true)) < 1 / len(lab.data.classes), shift)
    found = tables(lab)
    assert found["segment_models"]["at_chance"].all()
    assert found["segment_classes"]["at_chance"].all()
    assert sentences_of(hard_images_statements, found["segment_models"]) == [
        "Not known: on clean images of zoo, all subjects are at the level of chance."
    ]
    named = next(table.frame for table in ClassRobustness()(lab.store) if table.name == "robust_classes")
    assert sentences_of(robust_classes_statements, named) == [
        "zoo: on clean images all subjects are at the level of chance; no class can be said to be susceptible or "
        "robust."
    ]
