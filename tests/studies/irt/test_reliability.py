"""A fit of its own for every corruption and severity, and whether its abilities order models as accuracy does."""

import numpy as np
import pytest

from fca.stats.correlation import kendall
from fca.store import Store
from fca.studies.irt.figures.irt import fit_statements
from fca.studies.irt.fittable import shifted_responses
from fca.studies.irt.irt import Irt, Reliability
from fca.studies.irt.stats import fit_irt
from fca.tables.answers import at_severity
from tests.support.figure_claims import sentences_of
from tests.support.lab import Lab


def by_name(tables):
    return {table.name: table.frame for table in tables}


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    lab = Lab(Store(tmp_path_factory.mktemp("read") / "outputs"))
    lab.corrupted({f"net{k}": k - 1.5 for k in range(5)}, severities=(1, 3))
    return lab


@pytest.mark.slow
def test_every_severity_has_a_fit_of_its_own(read):
    [table] = Reliability()(read.store)
    frame = table.frame
    assert list(zip(frame["corruption"], frame["severity"], strict=True)) == [
        ("clean", 0), ("fog", 1), ("fog", 3), ("snow", 1), ("snow", 3)
    ]  # fmt: skip
    assert (frame["n_items"] == 48).all()
    fog = at_severity(next(iter(shifted_responses(read.store, None)))[1], 3)
    fit = fit_irt(fog.responses.correct, "2pl")
    known = kendall(fit.ability, fog.responses.accuracy, fog.responses.subjects["model"].tolist())
    assert tuple(frame.loc[2, ["tau", "tau_low", "tau_high"]]) == tuple(known)
    assert set(table.runs) == set(read.store.rows()["run_id"])


def test_one_parameter_orders_models_exactly_as_accuracy_does(read):
    [table] = Reliability(model="1pl")(read.store)
    assert table.frame["tau"].tolist() == pytest.approx([1.0] * 5, abs=1e-12)
    assert set(table.frame["irt_model"]) == {"1pl"}


def test_a_snapshot_that_answers_one_class_is_named(tmp_path):
    lab = Lab(Store(tmp_path / "outputs"))
    rng = np.random.default_rng(0)
    for number in range(4):
        lab.answered(f"net{number}", rng.random(len(lab.true)) < 0.4 + 0.1 * number)
    lab.answered("stuck", lab.true == 2)
    [table] = Reliability()(lab.store)
    assert table.frame["one_class"].tolist() == [("stuck",)]
    sentences = sentences_of(fit_statements, by_name(Irt()(lab.store))["irt_fits"])
    assert any("1 subject answers one class nearly always (stuck)" in sentence for sentence in sentences)


def test_without_labels_nobody_is_judged(tmp_path):
    rng = np.random.default_rng(1)
    lines = [f"net{n}," + ",".join(str(int(cell)) for cell in rng.random(30) < 0.3 + 0.1 * n) for n in range(5)]
    (tmp_path / "answers.csv").write_text("subject," + ",".join(f"i{n}" for n in range(30)) + "\n" + "\n".join(lines))
    tables = by_name(Irt(model="1pl", responses=[str(tmp_path / "answers.csv")])(Store(tmp_path / "outputs")))
    assert tables["irt_fits"]["one_class"].isna().all()
    sentences = sentences_of(fit_statements, tables["irt_fits"])
    assert sentences
    assert not any("one class" in sentence for sentence in sentences)
