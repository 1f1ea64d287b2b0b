"""Item response theory over stored answers: scales, intervals, what is held out, and tables that can be drawn."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.irt import stats as irt
from fca.studies.irt.fits import chosen, fitted
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.irt import Irt
from fca.tables.answers import clean_responses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from fca.types import FcaError
from tests.support.lab import Lab

pytestmark = pytest.mark.slow  # many fits

MODELS = {f"net{k}": k - 1.5 for k in range(5)}


def tables(lab, **fields):
    return {table.name: table for table in Irt(**fields)(lab.store)}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """A study that tests only read: five models on clean images, fog and snow."""
    lab = Lab(Store(tmp_path_factory.mktemp("read") / "outputs"))
    lab.corrupted(MODELS, severities=(1, 2))
    return lab, tables(lab)


def test_every_data_set_and_corruption_is_one_fit(read):
    lab, found = read
    fits = found["irt_fits"].frame
    assert fits["corruption"].tolist() == ["clean", "fog", "snow"]
    assert fits["severity"].tolist() == [0, pd.NA, pd.NA]
    assert fits["n_items"].tolist() == [48, 144, 144]
    assert (fits["n_subjects"] == 5).all()
    assert (fits["share_missing"] == 0).all()
    assert fits["converged"].all()
    assert found["irt_items"].runs == tuple(sorted(lab.store.rows()["run_id"]))


def test_abilities_and_items_are_those_of_the_fit(read):
    lab, found = read
    [(_, fog), _] = shifted_responses(lab.store, None)
    fit = irt.fit_irt(fog.responses.correct, "2pl")
    line = found["irt_abilities"].frame.query("corruption == 'fog' and subject == 'net2'").iloc[0]
    at = fog.responses.subjects["subject"].tolist().index("net2")
    assert line["ability"] == fit.ability[at]
    assert line["ability_high"] - line["ability"] == pytest.approx(1.96 * fit.ability_se[at], rel=1e-4)
    assert line["top1"] == fog.responses.correct[at].mean()
    items = found["irt_items"].frame.query("corruption == 'fog'")
    assert items["item"].tolist() == fog.responses.items["item"].tolist()
    for name in ("difficulty", "difficulty_se", "discrimination", "p_max", "expected_success"):
        assert items[name].tolist() == getattr(fit, name).tolist()


def test_one_parameter_orders_subjects_exactly_as_accuracy_does(read):
    fits = tables(read[0], model="1pl")["irt_fits"].frame
    assert fits["tau"].tolist() == pytest.approx([1.0] * 3, abs=1e-12)


def test_abilities_held_fixed_are_those_of_clean_images(read):
    found = tables(read[0], calibration="ability")
    each = found["irt_abilities"].frame.set_index(["corruption", "subject"])["ability"]
    assert each["fog"].to_dict() == each["clean"].to_dict()
    items = found["irt_items"].frame
    [(_, fog), _] = shifted_responses(read[0].store, None)
    clean = fitted(clean_responses(read[0].store, None)[0])
    hard = fog.responses.items["severity"] == 2
    alone = irt.fit_items(fog.responses.correct[:, hard], clean.ability, "2pl")
    assert items.query("corruption == 'fog' and severity == 2")["difficulty"].tolist() == alone.difficulty.tolist()
    assert found["irt_fits"].frame["held_out_nll"].isna().tolist() == [False, True, True]


def test_separate_severities_have_scales_of_their_own(read):
    found = tables(read[0], calibration="separate")
    fits = found["irt_fits"].frame
    assert list(zip(fits["corruption"], fits["severity"], strict=True))[:4] == [
        ("clean", 0), ("fog", 0), ("fog", 1), ("fog", 2)
    ]  # fmt: skip
    clean, again = (
        found["irt_abilities"].frame.query(f"corruption == '{kind}' and severity == 0") for kind in ("clean", "fog")
    )
    assert clean["ability"].tolist() == again["ability"].tolist()


def test_subjects_without_clean_answers_have_no_ability_to_hold_fixed(lab):
    lab.corrupted(MODELS, kinds=("fog",), severities=(1,))
    lab.answered("late", 0.5, "corruption/fog/1")
    with pytest.raises(FcaError, match="subjects without ability on clean images = late; allowed: subjects of fog"):
        tables(lab, calibration="ability")
    assert "late" in set(tables(lab)["irt_abilities"].frame["subject"])


@pytest.mark.slow
def test_auto_takes_what_predicts_hidden_answers_best_for_all_corruptions(read):
    found = tables(read[0], model="auto")
    choice = found["irt_choice"].frame
    nll = choice["inner_nll"].tolist()
    assert nll == sorted(nll)
    assert choice["excess"].tolist() == pytest.approx(np.subtract(nll, nll[0]), abs=1e-12)
    assert choice["chosen"].tolist() == [True, False, False, False]
    assert set(found["irt_fits"].frame["irt_model"]) == {choice["irt_model"].iloc[0]}
    clean = chosen(clean_responses(read[0].store, None)[0])
    assert clean.model == choice["irt_model"].iloc[0]
    assert found["irt_fits"].frame["held_out_nll"].iloc[0] == clean.outer.nll != clean.candidates[0].nll
    assert "irt_choice" not in read[1]


def written(folder, names):
    """A file of responses by these subjects, better from the first to the last."""
    rng = np.random.default_rng(0)
    correct = (rng.random((len(names), 40)) < np.linspace(0.2, 0.9, len(names))[:, None]).astype(float)
    made = Responses(correct, frame_of_subjects(names), frame_of_items([f"q{k}" for k in range(40)]))
    write_responses(made, folder / "quiz.csv")
    return {"responses": [str(folder / "quiz.csv")]}


def test_networks_are_held_out_whole_where_that_is_chosen(lab, tmp_path):
    names = [f"net{k}/{at}" for k in range(6) for at in ("0.1", "best")]
    given = written(tmp_path, names)
    lines = {way: tables(lab, hold_out=way, model="1pl", **given)["irt_fits"].frame.iloc[0] for way in irt.HOLD_OUTS}
    network, correct = np.repeat(np.arange(6), 2), clean_responses(lab.store, None, given["responses"])[0]
    for way, line in lines.items():
        known = irt.held_out_fit(correct.responses.correct, "1pl", hold_out=way, network=network)
        found = line[["hold_out", "held_out_nll", "held_out_nll_low", "held_out_nll_high"]].tolist()
        assert found == [way, known.nll, known.low, known.high]
    with pytest.raises(FcaError, match="hold_out = rows; allowed: cells, subjects"):
        tables(lab, hold_out="rows", **given)


def test_of_one_network_nothing_is_held_out(lab, tmp_path):
    given = written(tmp_path, ["net/0.1", "net/0.5", "net/best"])
    line = tables(lab, **given)["irt_fits"].frame.iloc[0]
    assert pd.isna(line[["hold_out", "held_out_nll", "baseline_nll"]]).all()
    with pytest.raises(FcaError, match="answers that can be hidden = 0"):
        tables(lab, model="auto", **given)


def test_the_trait_is_named_in_the_tables(read):
    found = tables(read[0], trait="agreement with shape")
    assert {t for name in ("irt_abilities", "irt_fits", "irt_curves") for t in found[name].frame["trait"]} == {
        "agreement with shape"
    }


def test_files_are_data_sets_without_runs(lab, tmp_path):
    correct = (np.random.default_rng(0).random((6, 40)) < np.linspace(0.2, 0.9, 6)[:, None]).astype(float)
    names = [f"person{k}" for k in range(6)]
    made = Responses(correct, frame_of_subjects(names), frame_of_items([f"q{k}" for k in range(40)]))
    write_responses(made, tmp_path / "quiz.csv")
    found = tables(lab, responses=[str(tmp_path / "quiz.csv")])
    assert found["irt_fits"].frame["dataset"].tolist() == ["quiz"]
    assert found["irt_fits"].runs == ()
    assert found["irt_abilities"].frame["subject"].iloc[0] in names[-2:]


def test_what_cannot_be_fitted_is_named(lab, tmp_path):
    lab.answered("alone", 0.5)
    with pytest.raises(FcaError, match="zoo: subjects = 1; allowed: 2 or more; next: add answers of other models"):
        tables(lab)
    one = Responses(np.ones((1, 2)), frame_of_subjects(["a"]), frame_of_items(["x", "y"]))
    write_responses(one, tmp_path / "one.csv")
    with pytest.raises(FcaError, match="one: subjects = 1; allowed: 2 or more"):
        tables(lab, responses=[str(tmp_path / "one.csv")])
    lab.answered("alone", 0.5, seed=1)
    for field in ("calibration", "model", "compat"):
        with pytest.raises(FcaError, match="nonsense"):
            tables(lab, **{field: "nonsense"})


def test_a_data_set_that_one_subject_answered_does_not_stop_the_others(lab, caplog):
    for model in ("one", "two"):
        lab.answered(model, 0.5)
    other = replace(lab.data, name="other", fingerprint="elsewhere")
    type(lab)(lab.store, other, lab.count).answered("one", 0.5)
    assert tables(lab)["irt_fits"].frame["dataset"].tolist() == ["zoo"]
    assert "left out: other: subjects = 1; allowed: 2 or more" in caplog.text


def test_a_data_set_on_which_no_two_subjects_differ_does_not_stop_the_others(lab, caplog):
    for model in ("one", "two"):
        lab.answered(model, 0.5)
    easy = type(lab)(lab.store, replace(lab.data, name="easy", fingerprint="elsewhere"), lab.count)
    for model in ("one", "two"):
        easy.answered(model, 1.0)
    assert tables(lab)["irt_fits"].frame["dataset"].tolist() == ["zoo"]
    assert "left out: easy: items that divide the subjects, among 48 = 0; allowed: 1 or more" in caplog.text
    with pytest.raises(FcaError, match="easy: items that divide the subjects, among 48 = 0"):
        tables(lab, query="dataset == 'easy'")


def test_shifted_answers_of_a_file_are_not_called_clean(lab, tmp_path):
    def fits(kinds):
        items = [f"{i}.png@corruption/{kind}/{s}" for kind in kinds for s in (1, 2) for i in range(10)]
        correct = (np.random.default_rng(0).random((6, len(items))) < np.linspace(0.2, 0.9, 6)[:, None]).astype(float)
        made = Responses(correct, frame_of_subjects([f"m{k}" for k in range(6)]), frame_of_items(items))
        write_responses(made, tmp_path / "quiz.csv")
        return tables(lab, responses=[str(tmp_path / "quiz.csv")], calibration="separate")

    for kinds, told in ((["fog"], "fog"), (["fog", "snow"], "several")):
        found = fits(kinds)
        [line] = found["irt_fits"].frame.to_dict("records")
        assert (line["corruption"], line["calibration"]) == (told, "joint")
        assert pd.isna(line["severity"])
        assert set(found["irt_items"].frame["corruption"]) == {told}
        assert len(found["irt_curves"].frame)


def test_subjects_that_are_left_out_are_in_the_parameters(lab):
    lab.corrupted(MODELS, kinds=("fog",), severities=(1, 2))
    lab.answered("some", 0.5, "corruption/fog/2")
    assert tables(lab)["irt_fits"].parameters["left_out"] == ["fog: some lacks 1"]
