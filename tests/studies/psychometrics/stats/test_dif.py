"""DIF against statsmodels, by planted items, and its false alarms where there is none."""

import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.stats.contingency_tables import StratifiedTable

from fca.studies.irt.stats import fit_irt
from fca.studies.psychometrics.stats.dif import MantelHaenszel, ets_class, logistic_dif, mantel_haenszel, strata_of


def answered(subjects=65, focal=25, items=600, shift=0.5, moved=0, by=1.2, bent=0, seed=1):
    """The first `moved` items are harder for the focal group by so many logits; the next `bent` have half the slope."""
    rng = np.random.default_rng(seed)
    group = np.arange(subjects) < focal
    ability = rng.normal(size=subjects) - shift * group
    slope, difficulty = np.exp(rng.normal(0.1, 0.3, items)), rng.normal(-0.3, 1.0, items)
    difficulty[: moved + bent] *= 0.3
    z = slope * (ability[:, None] - difficulty)
    z[:, :moved] -= by * group[:, None]
    z[:, moved : moved + bent] *= np.where(group, -1.0, 1.5)[:, None]
    return (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float), group, ability


def test_mantel_haenszel_is_that_of_statsmodels():
    responses, focal, ability = answered(items=40)
    responses[:5, 3] = np.nan
    stratum = strata_of(ability, focal)
    found = mantel_haenszel(responses, focal, stratum)
    checked = 0
    for item in np.flatnonzero(~np.isnan(found.p)):
        x = responses[:, item]
        tables = []
        for at in range(5):
            counts = [[((stratum == at) & (focal == g) & (x == value)).sum() for value in (1, 0)] for g in (0, 1)]
            if min(map(sum, counts)):
                tables.append(np.array(counts, dtype=float))
        known = StratifiedTable(tables)
        assert found.log_odds[item] == pytest.approx(known.logodds_pooled, rel=1e-9)
        assert found.log_odds_se[item] == pytest.approx(known.logodds_pooled_se, rel=1e-9)
        # statsmodels subtracts the half even where the sum is nearer to its expectation than that
        if found.statistic[item] > 0:
            assert found.statistic[item] == pytest.approx(known.test_null_odds(correction=True).statistic, rel=1e-9)
        checked += 1
    assert checked > 25


def test_regressions_are_those_of_statsmodels():
    responses, focal, ability = answered(subjects=120, items=8)
    found = logistic_dif(responses, focal, ability)
    theta = (ability - ability.mean()) / ability.std()
    design = np.column_stack([np.ones(120), theta, focal, theta * focal])
    for item in np.flatnonzero(~np.isnan(found.uniform)):
        models = [sm.GLM(responses[:, item], design[:, :k], family=sm.families.Binomial()) for k in (2, 3)]
        coefficients = [model.fit().params for model in models]
        assert found.log_odds[item] == pytest.approx(coefficients[1][2], abs=1e-4)
        for p, model, known, k in zip((found.uniform, found.non_uniform), models, coefficients, (2, 3), strict=True):
            assert p[item] == pytest.approx(model.score_test(known, exog_extra=design[:, [k]])[1], abs=1e-5)


def test_planted_items_are_found_and_have_their_size():
    responses, focal, _ = answered(subjects=400, focal=200, moved=20, bent=10)
    ability = fit_irt(responses[:, 100:]).ability  # of items without DIF
    found = mantel_haenszel(responses, focal, strata_of(ability, focal, 8))
    assert found.log_odds[:20].mean() == pytest.approx(1.2, abs=0.15)
    assert (found.p[:20] < 0.05).mean() >= 0.9
    assert found.delta[:20].mean() < -2
    regression = logistic_dif(responses, focal, ability)
    assert regression.log_odds[:20].mean() == pytest.approx(-1.2, abs=0.15)
    assert (regression.uniform[:20] < 0.05).mean() >= 0.9
    assert (regression.non_uniform[20:30] < 0.01).all()


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_without_dif_few_items_are_flagged_though_groups_differ_in_ability(shift):
    responses, focal, _ = answered(items=3000, shift=shift)
    ability = fit_irt(responses).ability
    found = mantel_haenszel(responses, focal, strata_of(ability, focal))
    known = ~np.isnan(found.p)
    assert known.mean() > 0.8
    assert (found.p[known] < 0.05).mean() < 0.04  # the continuity correction is careful with few subjects
    assert abs(np.median(found.delta[known])) < 0.25
    p = logistic_dif(responses, focal, ability)
    assert (p.uniform[~np.isnan(p.uniform)] < 0.05).mean() == pytest.approx(0.055, abs=0.01)
    assert (p.non_uniform[~np.isnan(p.non_uniform)] < 0.05).mean() == pytest.approx(0.053, abs=0.01)


def test_regressions_hold_their_level_with_34_subjects():
    # the likelihood ratio: 6.2 % uniform and 11.1 % non-uniform. 3,000 items of one fit: a point of sampling error
    responses, focal, _ = answered(subjects=34, focal=17, items=3000, shift=0.0)
    p = logistic_dif(responses, focal, fit_irt(responses).ability)
    assert (p.uniform[~np.isnan(p.uniform)] < 0.05).mean() == pytest.approx(0.055, abs=0.015)
    assert (p.non_uniform[~np.isnan(p.non_uniform)] < 0.05).mean() == pytest.approx(0.054, abs=0.015)


def test_groups_that_do_not_overlap_are_not_compared():
    responses, focal, _ = answered()
    stratum = strata_of(np.where(focal, 1.0, 2.0) + np.linspace(0, 0.5, len(focal)), focal)
    assert (stratum == -1).all()
    assert np.isnan(mantel_haenszel(responses, focal, stratum).p).all()


def test_classes_follow_size_and_significance():
    delta = np.array([0.5, -1.2, -1.2, -1.6, -3.0, np.nan])
    se, p = np.array([0.1, 0.3, 0.8, 0.5, 0.5, np.nan]), np.array([0.001, 0.001, 0.2, 0.01, 0.001, np.nan])
    found = MantelHaenszel(delta / -2.35, se / 2.35, p, p)
    assert ets_class(found) == ["A", "B", "A", "B", "C", None]
