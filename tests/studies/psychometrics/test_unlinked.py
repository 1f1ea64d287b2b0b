"""Files whose subjects share no items: every analysis shows the parts by themselves, or stops with their names."""

import numpy as np
import pandas as pd
import pytest

from fca.store import Store
from fca.studies.irt import fits, fittable
from fca.studies.irt.ability import Ability
from fca.studies.irt.figures.irt import fit_statements
from fca.studies.irt.irt import Irt
from fca.studies.psychometrics.dif import Dif
from fca.studies.psychometrics.information import Information
from fca.studies.psychometrics.item_fit import ItemFit
from fca.studies.psychometrics.severity_facet import SeverityFacet
from fca.tables.answers import clean_responses
from fca.types import FcaError
from tests.support.figure_claims import sentences_of

PARTS = ["answers, part 1 of 2", "answers, part 2 of 2"]


def written(folder, responses, items=None):
    half = len(responses) // 2
    subjects = [f"able{at}" for at in range(half)] + [f"weak{at}" for at in range(len(responses) - half)]
    names = [f"i{at}" for at in range(responses.shape[1])] if items is None else items
    path = folder / "answers.csv"
    pd.DataFrame(responses, index=pd.Index(subjects, name="subject"), columns=names).to_csv(path)
    return [str(path)]


def blocks(subjects=12, items=30):
    rng = np.random.default_rng(1)
    responses = np.full((2 * subjects, 2 * items), np.nan)
    for half, ability in enumerate((2.0, -2.0)):
        difficulty = ability + rng.normal(0, 1, items)
        own = ability + rng.normal(0, 1, (subjects, 1))
        cells = np.ix_(np.arange(subjects) + half * subjects, np.arange(items) + half * items)
        responses[cells] = rng.random((subjects, items)) < 1 / (1 + np.exp(difficulty - own))
    return responses


@pytest.fixture
def files(tmp_path):
    return written(tmp_path, blocks())


def test_parts_are_fitted_apart_and_named(files, tmp_path, caplog):
    tables = {table.name: table for table in Irt(responses=files)(Store(tmp_path / "outputs"))}
    fits = tables["irt_fits"].frame
    assert fits["dataset"].tolist() == PARTS
    assert fits["n_subjects"].tolist() == [12, 12]
    abilities = tables["irt_abilities"].frame
    groups = abilities.groupby("dataset")["subject"].agg(lambda names: set(names.str[:4]))
    assert groups.tolist() == [{"able"}, {"weak"}]
    assert "part 1: 12 subjects x 30 items (able0, able1, able2, ...)" in caplog.text
    assert "never compared" in caplog.text
    assert any("part 1 of 2: shares no item" in why for why in tables["irt_fits"].parameters["left_out"])
    for part in PARTS:
        sentences = sentences_of(fit_statements, fits[fits["dataset"] == part])
        assert sentences
        assert all(sentence.startswith(f"{part}: ") for sentence in sentences)


@pytest.mark.parametrize("analysis", [ItemFit(replicates=2), Information(), Ability(), Dif(focal=["*1*"])])
def test_other_analyses_keep_parts_apart(analysis, files, tmp_path):
    tables = type(analysis)(**{**vars(analysis), "responses": files})(Store(tmp_path / "outputs"))
    for table in tables:
        assert set(table.frame["dataset"]) <= set(PARTS), table.name
    assert set(tables[0].frame["dataset"]) == set(PARTS)


def test_scores_without_a_bank_say_once_that_there_are_parts(files, tmp_path, caplog):
    Ability(responses=files)(Store(tmp_path / "outputs"))
    assert caplog.text.count("never compared") == 1


def test_a_saved_bank_of_parts_scores_on_each_scale_by_its_name(files, tmp_path):
    store = Store(tmp_path / "outputs")
    bank = next(table for table in Irt(responses=files)(store) if table.name == "irt_items")
    both = blocks()
    both[0, 30:] = np.arange(30) % 2  # a subject that responds to items of both scales
    [table] = Ability(responses=written(tmp_path, both), bank=store.save(bank).name)(store)
    assert sorted(set(table.frame["dataset"])) == [f"answers, scale of {part}" for part in PARTS]
    assert (table.frame["subject"] == "able0").sum() == 2


@pytest.mark.wide
def test_steps_of_severity_are_learned_within_parts(tmp_path):
    rng = np.random.default_rng(0)
    items = [f"{image}{shift}" for image in range(20) for shift in ("", "@corruption/fog/3")]
    responses = np.full((12, 40), np.nan)
    responses[:6, :20] = rng.random((6, 20)) < 0.6
    responses[6:, 20:] = rng.random((6, 20)) < 0.6
    files = written(tmp_path, responses, items)
    steps = next(iter(SeverityFacet(responses=files)(Store(tmp_path / "outputs")))).frame
    assert steps["dataset"].tolist() == PARTS
    # clean images to the ones, fog of other images to the others: no step can be learned
    responses[:6, 1::2], responses[6:, ::2] = np.nan, np.nan
    with pytest.raises(FcaError, match="corrupted images with responses"):
        SeverityFacet(responses=written(tmp_path, responses, items))(Store(tmp_path / "outputs"))


def test_parts_too_small_to_fit_are_left_out_by_name(tmp_path, caplog):
    responses = blocks()
    responses[-1] = np.nan
    files = written(tmp_path, np.column_stack([responses, np.where(np.arange(24) == 23, 1.0, np.nan)]))
    tables = {table.name: table for table in Irt(responses=files)(Store(tmp_path / "outputs"))}
    assert tables["irt_fits"].frame["dataset"].tolist() == ["answers, part 1 of 3", "answers, part 2 of 3"]
    assert "left out: answers, part 3 of 3: subjects = 1; allowed: 2 or more" in caplog.text


def test_few_responses_are_said_on_the_page_and_the_terminal(tmp_path, caplog):
    four = np.array([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=float)
    files = written(tmp_path, four)
    tables = {table.name: table for table in Irt(responses=files, model="1pl")(Store(tmp_path / "outputs"))}
    fits = tables["irt_fits"]
    assert fits.frame["not_estimable"].tolist() == [("spread of difficulty",)]
    sentence = "answers: these responses do not determine the spread of difficulty"
    assert any(line.startswith(sentence) for line in sentences_of(fit_statements, fits.frame))
    assert sentence in caplog.text
    assert fits.parameters["not_estimable"] == {"answers clean": ["spread of difficulty"]}
    assert tables["irt_items"].frame["difficulty_se"].min() > 0.7


def test_a_weak_link_is_said_with_its_error(tmp_path):
    responses = blocks(20, 40)
    responses[20:23, 0] = [1, 0, 1]
    files = written(tmp_path, responses)
    fits = next(table for table in Irt(responses=files)(Store(tmp_path / "outputs")) if table.name == "irt_fits").frame
    assert fits["shift_se"].iloc[0] > 0.5
    [line] = [line for line in sentences_of(fit_statements, fits) if "linked by 3 responses" in line]
    assert line.startswith("answers: 20 subjects (")


@pytest.fixture
def linked_by_one(tmp_path):
    """Two blocks of four subjects that a ninth one, with all items, links."""
    rng = np.random.default_rng(0)
    right = (rng.random((9, 60)) < np.linspace(0.3, 0.8, 9)[:, None]).astype(float)
    right[:4, 30:] = np.nan
    right[4:8, :30] = np.nan
    subjects = [*(f"a{at}" for at in range(4)), *(f"b{at}" for at in range(4)), "c"]
    path = tmp_path / "zoo.csv"
    pd.DataFrame(right, index=pd.Index(subjects, name="subject"), columns=[f"i{at}" for at in range(60)]).to_csv(path)
    return str(path)


@pytest.mark.wide
@pytest.mark.parametrize("model", ["2pl", pytest.param("auto", marks=pytest.mark.slow)])
def test_holding_out_the_subject_that_links_the_others_is_said_and_stops_nothing(
    linked_by_one, model, tmp_path, caplog
):
    found = Irt(responses=[linked_by_one], hold_out="subjects", model=model)(Store(tmp_path / "outputs"))
    fits = next(table for table in found if table.name == "irt_fits").frame
    assert np.isfinite(fits["held_out_nll"]).all()
    [line] = [line for line in caplog.messages if "no common item links the other subjects" in line]
    assert line.startswith("zoo: ")
    assert "c" in line.split(" where ")[1].split(" are held out")[0].split(", ")
    assert line.endswith("and 1 of these networks not at all")  # of the fold with c, one of block a


def test_networks_of_which_nothing_can_be_predicted_are_counted(tmp_path, caplog):
    """A hub responds to all, four blocks of five subjects to items of their own: only one block has items to go by."""
    rng = np.random.default_rng(0)
    right = (rng.random((21, 40)) < np.linspace(0.3, 0.8, 21)[:, None]).astype(float)
    for block in range(4):
        mine = np.arange(40) // 10 == block
        right[1 + 5 * block : 6 + 5 * block, ~mine] = np.nan
    names = pd.Index(["hub", *(f"net{at}" for at in range(20))], name="subject")
    path = tmp_path / "star.csv"
    pd.DataFrame(right, index=names, columns=[f"i{at}" for at in range(40)]).to_csv(path)

    [star] = clean_responses(Store(tmp_path / "outputs"), None, [str(path)])
    held = fits.held_out(star, "1pl", hold_out="subjects")
    without = [network for network in held.unlinked if held.number[network] == 0]
    assert without
    assert 0 in held.unlinked
    [line] = [line for line in caplog.messages if "no common item links" in line]
    assert line.endswith(f"and {len(without)} of these networks not at all")


def test_groups_without_a_common_item_leave_their_data_set_out_and_no_other(linked_by_one, tmp_path, caplog):
    store = Store(tmp_path / "outputs")
    whole = np.random.default_rng(1).random((8, 60)) < np.linspace(0.3, 0.8, 8)[:, None]
    names = [f"{group}{at}" for group in "ab" for at in range(4)]
    path = tmp_path / "whole.csv"
    items = [f"i{at}" for at in range(60)]
    pd.DataFrame(whole.astype(float), index=pd.Index(names, name="subject"), columns=items).to_csv(path)

    groups = {"focal": ["a*"], "reference": ["b*"]}
    summary = Dif(responses=[linked_by_one, str(path)], **groups)(store)[0]
    assert summary.frame["dataset"].tolist() == ["whole"]
    assert "left out: zoo: subjects on one scale = 2 parts" in caplog.text
    assert "2 parts" in summary.parameters["left_out"][0]
    with pytest.raises(FcaError, match="subjects on one scale = 2 parts"):
        Dif(responses=[linked_by_one], **groups)(store)


def test_a_stored_data_set_without_a_part_to_fit_is_left_out_and_no_other(files, tmp_path, monkeypatch, caplog):
    store = Store(tmp_path / "outputs")
    (tmp_path / "small").mkdir()
    [too_small] = clean_responses(store, None, written(tmp_path / "small", blocks(subjects=1, items=4)))
    [large] = clean_responses(store, None, files)
    # a fingerprint marks the data sets of stored runs
    stored = [too_small._replace(dataset="tiny", fingerprint="tiny"), large._replace(fingerprint="large")]
    monkeypatch.setattr(fittable, "clean_responses", lambda *selection: stored)

    assert [part.dataset for part in fittable.clean_with_subjects(store, None)] == PARTS
    assert "left out: " in caplog.text
    assert "tiny, part 1 of 2" in caplog.text
