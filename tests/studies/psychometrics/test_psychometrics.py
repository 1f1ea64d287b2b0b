"""Item fit, DIF, dimensions, information and severity as a facet, over stored answers and files of responses."""

import numpy as np
import pytest
from scipy.special import expit

from fca.store import Store
from fca.studies.irt.stats import fit_irt
from fca.studies.irt.stats.information import total_information
from fca.studies.psychometrics.dif import Dif
from fca.studies.psychometrics.dimensionality import Dimensionality
from fca.studies.psychometrics.information import Information
from fca.studies.psychometrics.item_fit import ItemFit
from fca.studies.psychometrics.severity_facet import SeverityFacet
from fca.studies.psychometrics.stats.dif import logistic_dif
from fca.studies.psychometrics.stats.item_fit import mean_squares
from fca.tables.responses import Responses, frame_of_items, frame_of_subjects, write_responses
from fca.types import FcaError
from tests.support.lab import Lab


def written(folder, correct, subjects=None, items=None, labels=None):
    """A file of responses, and what an analysis is told of it."""
    subjects = subjects or [f"net{at}" for at in range(len(correct))]
    items = items or [f"{at}.png" for at in range(correct.shape[1])]
    write_responses(Responses(correct, frame_of_subjects(subjects), frame_of_items(items, labels)), folder / "zoo.npz")
    return {"responses": [str(folder / "zoo.npz")]}


def store(folder):
    return Store(folder / "outputs")


def rasch(subjects, items, seed=0, z=0.0):
    rng = np.random.default_rng(seed)
    z = z + rng.normal(size=(subjects, 1)) - rng.normal(-0.3, 1, items)
    return (rng.random((subjects, items)) < 1 / (1 + np.exp(-z))).astype(float)


def test_lines_of_item_fit_are_the_statistics_of_the_fit(tmp_path):
    correct = rasch(40, 120)
    given = written(tmp_path, correct, labels=[f"class{at % 4}" for at in range(120)])
    items, shown, persons, dependence, pairs = ItemFit(**given, replicates=3)(store(tmp_path))
    known, subjects = mean_squares(correct, fit_irt(correct))
    assert items.frame["infit"].to_numpy() == pytest.approx(known.infit)
    assert items.frame["infit_z"].isna().to_numpy().tolist() == np.isnan(known.infit_sd).tolist()
    assert items.frame["s_x2_p"].notna().any(), "60 to 300 items"
    assert sorted(persons.frame["outfit"]) == pytest.approx(sorted(subjects.outfit))
    assert len(shown.frame) == 120
    line = dependence.frame.iloc[0]
    assert line["q3_sd"] == pytest.approx(1 / np.sqrt(40), abs=0.03)
    assert line["q3_within_low"] < 0.01
    assert len(pairs.frame) == 20
    assert pairs.frame["z"].is_monotonic_decreasing


def test_items_that_cannot_be_judged_have_empty_cells(tmp_path):
    items, _, _, dependence, pairs = ItemFit(**written(tmp_path, rasch(4, 30)), model="1pl", replicates=2)(
        store(tmp_path)
    )
    assert items.frame[["infit_z", "outfit_z", "s_x2"]].isna().all(axis=None)
    assert dependence.frame[["misfit_infit", "q3_mean", "pairs_beyond"]].isna().all(axis=None)
    assert pairs.frame.empty


def test_a_class_that_transformers_find_hard_has_dif(tmp_path):
    rng = np.random.default_rng(1)
    focal, hard = np.arange(80) < 30, np.arange(300) < 20
    correct = rasch(80, 300, z=-2.0 * np.outer(focal, hard))
    names = [f"vit_{at}" if group else f"resnet{at}" for at, group in enumerate(focal)]
    order = rng.permutation(80)
    given = written(tmp_path, correct[order], [names[at] for at in order])
    summary, items, shown = Dif(**given)(store(tmp_path))
    line = summary.frame.iloc[0]
    assert line["n_focal"] == 30
    assert set(line["focal"]) == set(names[:30])
    planted, other = items.frame[:20], items.frame[20:]
    assert (planted["ets_class"] == "C").sum() >= 10
    assert (other["ets_class"] == "C").sum() <= 10
    assert planted["log_odds"].median() == pytest.approx(-2, abs=0.5)
    assert (items.frame["p_holm"].dropna() >= items.frame["p_bh"].dropna()).all()
    assert (items.frame["p_bh"].dropna() >= items.frame["p"].dropna()).all()
    assert line["class_c"] == (items.frame["ets_class"] == "C").sum()
    assert len(shown.frame) == line["n_tested"]
    named = Dif(**given, focal=["resnet*"], reference=["vit*"])(store(tmp_path))[1].frame
    assert named["delta"].to_numpy() == pytest.approx(-items.frame["delta"].to_numpy(), nan_ok=True)


def test_snapshots_count_once_and_the_ablest_stands_for_its_model(tmp_path):
    correct = np.vstack([rasch(12, 60), rasch(12, 60, seed=1, z=3.0)])
    names = [f"{kind}{at}/{snapshot}" for snapshot in ("0.1", "best") for kind in ("vit", "net") for at in range(6)]
    line = Dif(**written(tmp_path, correct, names))(store(tmp_path))[0].frame.iloc[0]
    assert (line["n_focal"], line["n_reference"]) == (6, 6)
    assert set(line["focal"]) == {f"vit{at}" for at in range(6)}


def test_groups_out_of_reach_are_empty_and_groups_that_lack_are_named(tmp_path):
    correct = np.vstack([rasch(6, 200, z=-3.0), rasch(6, 200, seed=1, z=3.0)])
    correct[0, 0], correct[6, 1] = 1.0, 0.0
    names = [f"vit{at}" for at in range(6)] + [f"net{at}" for at in range(6)]
    summary, items, _ = Dif(**written(tmp_path, correct, names))(store(tmp_path))
    assert summary.frame["n_tested"].tolist() == [0]
    assert items.frame[["delta", "p_uniform", "log_odds"]].isna().all(axis=None)
    assert np.isnan(logistic_dif(correct, np.arange(12) < 6, np.arange(12.0)).uniform).all()
    with pytest.raises(FcaError, match=r"analysis.focal = mlp\*; allowed: two models or more in each group"):
        Dif(**written(tmp_path, correct, names), focal=["mlp*"])(store(tmp_path))


@pytest.mark.slow
def test_dimensions_are_chosen_by_gains_that_are_significant(tmp_path):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(60, 2))[:, np.arange(400) % 2] + rng.normal(size=400)
    two = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)
    for correct, planted in ((rasch(40, 400), 1), (two, 2)):
        frame = Dimensionality(**written(tmp_path, correct))(store(tmp_path))[0].frame
        assert frame["dimensions"].tolist() == [1, 2, 3] * 2
        assert frame.loc[frame["chosen"], "dimensions"].tolist() == [planted] * 2


def test_information_stands_on_the_curve_of_the_fit(tmp_path):
    correct = rasch(20, 100)
    curve, line = Information(**written(tmp_path, correct), model="1pl")(store(tmp_path))
    fit = fit_irt(correct, "1pl")
    subjects = curve.frame[curve.frame["kind"] == "subject"]
    assert subjects["information"].to_numpy() == pytest.approx(total_information(fit.bank, fit.ability))
    found = line.frame.iloc[0]
    assert 0.8 < found["marginal"] < 1
    assert found["empirical"] == pytest.approx(found["marginal"], abs=0.05)
    assert found["items_90"] < found["items_95"] < found["items_99"]


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """Difficulty grows by half a logit a severity."""
    lab = Lab(Store(tmp_path_factory.mktemp("shifted") / "outputs"))
    lab.corrupted({f"net{at}": at / 3 - 1 for at in range(8)}, severities=(1, 2, 3))
    return lab


@pytest.mark.slow
def test_planted_steps_of_severity_are_found(shifted):
    steps, effects, networks = SeverityFacet()(shifted.store)
    assert steps.frame["corruption"].tolist() == ["fog", "snow"]
    assert ((steps.frame["step_low"] < 0.5) & (steps.frame["step_high"] > 0.5)).all()
    assert (steps.frame["linear"] > 0.9).all()
    assert effects.frame["severity"].tolist() == [1, 2, 3] * 2
    assert networks.frame["model"].tolist() == [f"net{at}" for at in range(8)] * 2
    assert networks.frame["step"].mean() == pytest.approx(0.5, abs=0.1)  # of 16 fits of few images each
    assert (effects.frame["line"] == effects.frame["severity"] * steps.frame["step"].repeat(3).to_numpy()).all()


def test_networks_that_do_not_lose_alike_are_told_apart(tmp_path):
    severity = np.tile(np.arange(4), 100)
    z = np.random.default_rng(0).normal(size=100).repeat(4) + 1.5
    steps = np.array([0.0] * 4 + [1.0] * 4)
    correct = (np.random.default_rng(1).random((8, 400)) < expit(z - steps[:, None] * severity)).astype(float)
    correct[3] = 1.0  # of a network that is always right no step is known
    items = [f"{at // 4}.png" + f"@corruption/fog/{at % 4}" * (at % 4 > 0) for at in range(400)]
    networks = SeverityFacet(**written(tmp_path, correct, items=items))(store(tmp_path))[2].frame
    found = networks["step"].to_numpy()
    assert np.isnan(found).tolist() == [at == 3 for at in range(8)]
    assert np.nanmax(found[:4]) < 0.5 < found[4:].min()  # a standard error of .1 each
    assert networks["top1"].tolist() == correct[:, severity == 0].mean(axis=1).tolist()


def test_files_name_their_corruption_and_need_no_clean_images(tmp_path):
    correct = rasch(10, 90, z=-0.8 * np.repeat([1, 3, 5], 30))
    items = [f"{at % 30}.png@corruption/fog/{(1, 3, 5)[at // 30]}" for at in range(90)]
    steps, effects, _ = SeverityFacet(**written(tmp_path, correct, items=items))(store(tmp_path))
    line = steps.frame.iloc[0]
    assert line["step_low"] < 0.8 < line["step_high"]
    assert effects.frame["severity"].tolist() == [3, 5]
    assert effects.frame["line"].to_numpy() == pytest.approx(line["step"] * np.array([2, 4]))
    with pytest.raises(FcaError, match="corrupted images with responses = none among the 0 stored rows"):
        SeverityFacet(**written(tmp_path, rasch(4, 20)))(store(tmp_path))
