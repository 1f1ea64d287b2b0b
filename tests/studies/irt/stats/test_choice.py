"""Hidden answers: who predicts them, how well, and that the choice of a model follows."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from fca.studies.irt.stats import MODELS, choose_model, fit_irt, held_out_fit, hide
from fca.types import FcaError
from tests.studies.irt.support.planted import planted


@pytest.mark.parametrize("model", MODELS)
def test_every_model_predicts_hidden_answers_better_than_margins(model):
    held = held_out_fit(planted(60, 500).responses, model)
    assert held.nll < held.baseline_nll
    assert held.accuracy > 0.7
    assert 2500 < held.cells < 3500


def test_scores_are_those_of_scikit_learn():
    responses = planted(40, 200).responses
    held, hidden = held_out_fit(responses, seed=3), hide(responses, 0.1, seed=3)
    p, right = fit_irt(np.where(hidden, np.nan, responses)).probability()[hidden], responses[hidden]
    assert held.nll == pytest.approx(log_loss(right, p), rel=1e-9)
    assert held.auc == pytest.approx(roc_auc_score(right, p), rel=1e-9)
    assert held.accuracy == np.mean((p > 0.5) == right)


@pytest.mark.slow
def test_the_model_that_made_the_answers_wins():
    held = choose_model(planted(80, 300).responses).candidates
    assert held[0].model == "2pl"
    assert held == sorted(held, key=lambda one: one.nll)
    assert len({one.cells for one in held}) == 1
    assert (
        choose_model(planted(200, 200, infeasible=0.3, ability_mean=1.0, ability_sd=2.0).responses).model == "3pl-upper"
    )


def test_hidden_cells_depend_on_the_seed_alone_and_leave_everyone_something():
    responses = np.where(np.eye(6, 8) == 1, 1.0, np.nan)
    responses[:, -1] = [1, 0, 1, 0, 1, 0]
    responses[0] = [1, 1, 0, 1, 0, 1, 0, 1]
    for seed in range(20):
        hidden = hide(responses, 0.5, seed)
        assert (hidden == hide(responses, 0.5, seed)).all()
        left = ~np.isnan(np.where(hidden, np.nan, responses))
        assert left.any(axis=1).all()
        assert left.any(axis=0)[~np.isnan(responses).all(axis=0)].all()
        assert not np.isnan(responses[hidden]).any()


def test_a_share_that_hides_all_or_nothing_is_told():
    responses = planted(5, 10).responses
    with pytest.raises(FcaError, match=r"share = 1\.0; allowed: between 0 and 1"):
        held_out_fit(responses, share=1.0)
    with pytest.raises(FcaError, match="answers that can be hidden = 0 of 50"):
        held_out_fit(responses, share=1e-6)
