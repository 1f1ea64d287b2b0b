"""New subjects are scored with saved items, and only with a bank that has them."""

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.irt.ability import Ability
from fca.studies.irt.irt import Irt
from fca.studies.irt.stats import ItemBank, score_ability
from fca.tables.answers import clean_responses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from fca.types import FcaError
from tests.support.lab import Lab

MODELS = {f"net{k}": k - 1.5 for k in range(5)}


def bank_of(lab, **fields):
    """The id of a saved bank."""
    [items] = [table for table in Irt(**fields)(lab.store) if table.name == "irt_items"]
    return lab.store.save(items).name


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A study that tests only read, and the id of its bank."""
    lab = Lab(Store(tmp_path_factory.mktemp("saved") / "outputs"))
    lab.corrupted(MODELS, kinds=("fog",), severities=(1, 2))
    return lab, bank_of(lab)


def scored(lab, **fields):
    [table] = Ability(**fields)(lab.store)
    return table


def test_stored_runs_are_scored_with_the_saved_items_of_their_kind(saved):
    lab, bank = saved
    table = scored(lab, bank=bank)
    items = pd.read_parquet(lab.store.outputs / "tables" / bank / "table.parquet").query("corruption == 'clean'")
    [clean] = clean_responses(lab.store, None)
    known = score_ability(
        clean.responses.correct, ItemBank("2pl", *(items[n].to_numpy() for n in ItemBank._fields[1:]))
    )
    frame = table.frame.query("corruption == 'clean'").set_index("subject")
    assert frame.loc[clean.responses.subjects["subject"], "ability"].tolist() == known.ability.tolist()
    half = frame.loc[clean.responses.subjects["subject"], "ability_high"].to_numpy() - known.ability
    assert half == pytest.approx(1.96 * known.ability_se, rel=1e-4)
    assert table.frame.groupby("corruption")["n_items"].first().to_dict() == {"clean": 48, "fog": 144}
    assert set(table.runs) == set(lab.store.rows()["run_id"])


def test_a_single_new_model_is_scored_without_fitting_an_item(saved, monkeypatch):
    lab, bank = saved

    def refuse(*_, **__):
        raise AssertionError("no item is fitted")

    monkeypatch.setattr("fca.studies.irt.fits.fit_irt", refuse)
    table = scored(lab, bank=bank, query="model == 'net4'")
    assert table.frame["corruption"].tolist() == ["clean", "fog"]
    assert set(table.frame["subject"]) == {"net4"}


def test_a_file_is_scored_by_the_names_of_its_items(saved, tmp_path):
    lab, bank = saved
    [clean] = clean_responses(lab.store, None)
    some = clean.responses.items["item"].tolist()[10:30]
    both = [some[0], f"{some[0]}@corruption/fog/1", f"{some[1]}@corruption/fog/2", "elsewhere.png"]
    other = Store(tmp_path / "other")
    folder = lab.store.outputs / "tables" / bank
    (other.outputs / "tables").mkdir(parents=True)
    (other.outputs / "tables" / bank).symlink_to(folder)
    for name, items in (("clean", some), ("both", both)):
        made = Responses(np.ones((1, len(items))), frame_of_subjects(["ann"]), frame_of_items(items))
        write_responses(made, tmp_path / f"{name}.csv")
    [table] = Ability(bank=bank, responses=[str(tmp_path / f"{n}.csv") for n in ("clean", "both")])(other)
    found = table.frame.set_index(["dataset", "corruption"])["n_items"].to_dict()
    assert found == {("clean", "clean"): 20, ("both", "clean"): 1, ("both", "fog"): 3}
    assert (table.frame["ability"] > 0).all()


def test_without_a_bank_the_items_are_fitted_from_the_same_answers(saved):
    lab, bank = saved
    here = scored(lab).frame
    assert here["corruption"].unique().tolist() == ["clean"]
    there = scored(lab, bank=bank).frame.query("corruption == 'clean'")
    assert here["ability"].tolist() == there["ability"].tolist()


def test_what_is_no_bank_is_refused_with_the_banks_there_are(saved):
    lab, bank = saved
    fits = next(table for table in Irt()(lab.store) if table.name == "irt_fits")
    other = lab.store.save(fits).name
    with pytest.raises(FcaError, match=rf"^bank = {other}, a table irt_fits; allowed: .*: {bank}"):
        scored(lab, bank=other)
    with pytest.raises(FcaError, match=rf"^bank = nowhere; allowed: a saved table irt_items: {bank}"):
        scored(lab, bank="nowhere")


def test_a_bank_of_separate_scales_is_refused(lab):
    lab.corrupted(MODELS, kinds=("fog",), severities=(1,))
    bank = bank_of(lab, model="1pl", calibration="separate")
    with pytest.raises(FcaError, match=rf"{bank}, of calibration separate"):
        scored(lab, bank=bank)


def test_a_bank_of_other_items_is_refused(lab, tmp_path):
    correct = (np.random.default_rng(0).random((6, 40)) < 0.5).astype(float)
    made = Responses(correct, frame_of_subjects(list("abcdef")), frame_of_items([f"q{k}" for k in range(40)]))
    write_responses(made, tmp_path / "quiz.csv")
    bank = bank_of(lab, model="1pl", responses=[str(tmp_path / "quiz.csv")])
    lab.answered("net", 0.5)
    with pytest.raises(FcaError, match="items of these responses in the bank = none; allowed: quiz clean"):
        scored(lab, bank=bank)


def test_no_bank_yet_is_said(lab):
    lab.answered("net", 0.5)
    with pytest.raises(
        FcaError, match=r"^bank = 0123; allowed: a saved table irt_items: none yet; or a file of fca bank; next: .*irt"
    ):
        scored(lab, bank="0123")


def test_expected_abilities_lie_close_to_the_most_probable_ones(lab):
    lab.corrupted({f"net{k}": k - 1.5 for k in range(4)}, kinds=())
    modes, means = (Ability(score=score)(lab.store)[0].frame.set_index("subject") for score in ("map", "eap"))
    assert modes["ability"].to_dict() != means["ability"].to_dict()
    assert means["ability"].to_numpy() == pytest.approx(modes["ability"][means.index].to_numpy(), abs=0.1)
