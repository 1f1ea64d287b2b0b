"""A scale that responses leave open is said wherever its items are used: banks, files, replays, other pages."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from fca.report import finding
from fca.store import Store
from fca.studies.adaptive.adaptive_replay import AdaptiveReplay, banks_of_others
from fca.studies.adaptive.anchor_files import read_anchors
from fca.studies.adaptive.commands import bank as bank_door
from fca.studies.adaptive.pools import complete_responses
from fca.studies.adaptive.task import priors_of_bank
from fca.studies.irt.ability import Ability
from fca.studies.irt.bank import origin_of, read_bank
from fca.studies.irt.difficulty_segments import DifficultySegments
from fca.studies.irt.gallery import Gallery
from fca.studies.irt.irt import Calibrated, Irt, _fit_at_clean_abilities
from fca.studies.irt.stats import fit_irt, fit_items
from fca.tables.answers import DatasetResponses
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects
from fca.tasks.predict import CLEAN
from fca.types import ImageData

SENTENCE = "these responses do not determine the spread of ability"
OF_BANK = "the responses behind its items of alike clean do not determine the spread of ability"


def written(path, right):
    names = pd.Index([f"net{at}" for at in range(len(right))], name="subject")
    pd.DataFrame(right, index=names, columns=[f"i{at}" for at in range(right.shape[1])]).to_csv(path)
    return str(path)


@pytest.fixture(scope="module")
def alike(tmp_path_factory):
    """20 subjects of one ability: nothing shows how far abilities spread."""
    rng = np.random.default_rng(0)
    right = (rng.random((20, 60)) < np.linspace(0.05, 0.95, 60)).astype(int)
    assert fit_irt(right.astype(float)).not_estimable == ("spread of ability",)
    return written(tmp_path_factory.mktemp("alike") / "alike.csv", right)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """20 subjects of abilities that differ."""
    rng = np.random.default_rng(0)
    right = (rng.random((20, 60)) < expit(np.linspace(-2, 2, 20)[:, None] - rng.normal(size=60))).astype(int)
    assert fit_irt(right.astype(float)).not_estimable == ()
    return written(tmp_path_factory.mktemp("good") / "good.csv", right)


def images_of(name):
    """The 60 items as images of a data set."""
    items = pd.DataFrame({"image_id": [f"i{at}" for at in range(60)], "label": "a", "split": "test"})
    return ImageData(name, items, ("a",), "f" * 12, read=lambda _: None)


@pytest.mark.wide
def test_a_bank_says_so_as_table_and_as_file_in_scores_and_tests(alike, tmp_path, caplog):
    store = Store(tmp_path / "outputs")
    ids = {table.name: store.save(table).name for table in Irt(responses=[alike])(store)}
    path = str(tmp_path / "bank.json")
    caplog.clear()
    assert bank_door.main([ids["irt_items"], path, "--outputs", str(store.outputs)]) == 0
    assert OF_BANK in caplog.text

    for bank in (ids["irt_items"], path):
        assert origin_of(store, bank).not_estimable == {"alike clean": ["spread of ability"]}
        [prior] = priors_of_bank(store, bank, images_of("alike"), np.arange(60), CLEAN)
        assert prior.startswith(f"task.bank: {OF_BANK}")
        caplog.clear()
        Ability(responses=[alike], bank=bank)(store)
        assert OF_BANK in caplog.text


def test_a_bank_of_two_sets_says_so_of_the_one_whose_fit_leans_on_the_prior(alike, good, tmp_path, caplog):
    store = Store(tmp_path / "outputs")
    ids = {table.name: store.save(table).name for table in Irt(responses=[alike, good])(store)}
    path = str(tmp_path / "bank.json")
    assert bank_door.main([ids["irt_items"], path, "--outputs", str(store.outputs)]) == 0
    for bank in (ids["irt_items"], path):
        assert origin_of(store, bank).not_estimable == {"alike clean": ["spread of ability"]}
        assert priors_of_bank(store, bank, images_of("good"), np.arange(60), CLEAN) == []
        assert len(priors_of_bank(store, bank, images_of("alike"), np.arange(60), CLEAN)) == 1

    frame = read_bank(store, path)
    of_good = frame[frame["dataset"] == "good"]
    assert origin_of(store, path).not_estimable_of(of_good) == {}

    alone = tmp_path / "of_good.csv"  # a file whose items are those of `good` only
    names = pd.read_csv(good).rename(columns={f"i{at}": f"g{at}" for at in range(60)})
    names.to_csv(alone, index=False)
    both = {table.name: table for table in Irt(responses=[alike, str(alone)])(store)}
    caplog.clear()
    [scored] = Ability(responses=[str(alone)], bank=store.save(both["irt_items"]).name)(store)
    assert "do not determine" not in caplog.text
    assert "notes" not in scored.parameters


@pytest.mark.parametrize("has_bank", [True, False])
def test_the_page_of_scores_says_so_with_a_bank_and_without(has_bank, alike, tmp_path):
    store = Store(tmp_path / "outputs")
    tables = {table.name: table for table in Irt(responses=[alike])(store)}
    bank = store.save(tables["irt_items"]).name if has_bank else None
    asked = Ability(responses=[alike], bank=bank)
    [table] = asked(store)
    key = "alike clean" if has_bank else "alike"
    assert table.parameters["not_estimable"] == {key: ["spread of ability"]}

    [line] = [line for line in finding.sentences(asked, {table.name: table}) if "do not determine" in line]
    assert line.startswith(f"bank {bank}: {OF_BANK}" if has_bank else f"alike: {SENTENCE}")


@pytest.mark.wide
def test_anchors_say_so_when_they_are_chosen_and_when_they_are_used(alike, tmp_path, caplog):
    path = tmp_path / "anchors.json"
    assert bank_door.main(["anchors", alike, "--save", str(path), "--k", "10"]) == 0
    content = json.loads(path.read_text())
    has_bank = content["method"] not in ("random + line", "random + weighted")
    assert content["not_estimable"] == ["spread of ability"] * has_bank
    assert (SENTENCE in caplog.text) == has_bank

    content["not_estimable"] = ["spread of ability"]
    path.write_text(json.dumps(content))
    caplog.clear()
    assert read_anchors(path)[1].not_estimable == ("spread of ability",)
    assert bank_door.main(["anchors", alike, "--use", str(path)]) == 0
    assert SENTENCE in caplog.text


@pytest.mark.wide
def test_banks_of_other_models_say_so(alike, tmp_path, caplog):
    [one] = complete_responses(Store(tmp_path / "outputs"), None, [alike], "open")
    assert "spread of ability" in banks_of_others(one, "2pl").not_estimable
    assert f"alike, item banks of other models: {SENTENCE}" in caplog.text


@pytest.mark.slow
def test_replays_say_so_of_the_banks_of_other_models(alike, tmp_path, caplog):
    replayed = AdaptiveReplay(responses=[alike], budgets=[0.5], repeats=1)
    tables = {table.name: table for table in replayed(Store(tmp_path / "outputs"))}
    assert "spread of ability" in next(iter(tables["adaptive_methods"].parameters["not_estimable"].values()))
    assert f"alike, item banks of other models: {SENTENCE}" in caplog.text
    assert any(SENTENCE in line for line in finding.sentences(replayed, tables))


@pytest.mark.parametrize("analysis", [DifficultySegments, Gallery])
def test_pages_of_items_say_so(analysis, alike, tmp_path):
    asked = analysis(responses=[alike])
    tables = {table.name: table for table in asked(Store(tmp_path / "outputs"))}
    [line] = [line for line in finding.sentences(asked, tables) if "do not determine" in line]
    assert line.startswith("alike")
    assert SENTENCE in line


def test_items_on_clean_abilities_keep_what_their_own_fit_could_not_learn(caplog):
    rng, names = np.random.default_rng(0), [f"s{at}" for at in range(8)]
    clean = (rng.random((8, 40)) < expit(np.linspace(-2, 2, 8)[:, None] - rng.normal(size=40))).astype(float)
    fit = fit_irt(clean)
    of_clean = Responses(clean, frame_of_subjects(names), frame_of_items([f"i{at}" for at in range(40)]))
    calibrated = Calibrated("clean", 0, "ability", DatasetResponses("zoo", "fp", of_clean, ()), fit)

    corrupted = np.zeros((8, 40))
    corrupted[7, 0] = 1
    own = fit_items(corrupted, fit.ability, fit.model).not_estimable
    assert own
    items = frame_of_items([f"i{at}@corruption/fog/5" for at in range(40)])
    fog = DatasetResponses("zoo", "fp", Responses(corrupted, frame_of_subjects(names), items), ())
    assert set(_fit_at_clean_abilities("fog", fog, calibrated).not_estimable) == {*fit.not_estimable, *own}
    assert "zoo, fog: these responses do not determine" in caplog.text
