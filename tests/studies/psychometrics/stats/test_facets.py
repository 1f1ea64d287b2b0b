"""Planted effects of severity are found, within intervals that count networks."""

import numpy as np
import pytest
from scipy.optimize import minimize

from fca.studies.psychometrics.stats.facets import fit_facets
from fca.types import FcaError


def answered(networks=20, images=200, slopes=(0.5, 0.2), own=0.15, snapshots=1, seed=0):
    """Clean images and two corruptions at severities 1 to 3; networks differ in their slopes by `own`."""
    rng = np.random.default_rng(seed)
    conditions = [(0, 0), *((kind, severity) for kind in (0, 1) for severity in (1, 2, 3))]
    design = np.zeros((len(conditions), 2))
    for at, (kind, severity) in enumerate(conditions):
        design[at, kind] = severity
    network = np.repeat(np.arange(networks), snapshots)
    of_network = np.array(slopes) + own * rng.normal(size=(networks, 2))
    easiness = rng.normal(0.5, 1, images)
    ability = rng.normal(size=(len(network), 1, 1))
    z = ability + easiness - (of_network[network] @ design.T)[:, :, None]
    responses = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float).reshape(len(network), -1)
    return responses, np.tile(np.arange(images), len(conditions)), np.repeat(design, images, axis=0), network


def test_the_mode_is_that_of_a_general_optimiser():
    responses, image, design, network = answered(networks=6, images=15)
    responses[0, :20] = np.nan
    found = fit_facets(responses, image, design, network)
    centre = found.difficulty.sum() / (15 + (spread := _spread(found, responses)) ** 2 / 25)

    def depth(x):
        ability, effect, b = np.split(x, [6, 8])
        z = ability[:, None] - b[image] - design @ effect
        height = np.where(responses == 1, z, 0) - np.logaddexp(0, z)
        prior = (ability**2).sum() / 2 + ((b - centre) ** 2).sum() / (2 * spread**2)
        return prior - height[~np.isnan(responses)].sum()

    start = np.concatenate([found.ability, found.effect, found.difficulty])
    best = minimize(depth, np.zeros(23), method="BFGS", options={"gtol": 1e-7})
    assert depth(start) == pytest.approx(best.fun, abs=0.01)  # the spread is that of the difficulties, about
    assert found.effect == pytest.approx(best.x[6:8], abs=0.02)


def _spread(found, responses):
    """Close to the learned one: what the difficulties themselves spread, with their uncertainty."""
    return float(np.sqrt(np.var(found.difficulty) + 0.15))


@pytest.mark.slow
def test_planted_slopes_lie_in_their_intervals_as_often_as_they_should():
    """Networks have slopes of their own; the interval is of the mean over networks like these."""
    inside = []
    for seed in range(60):
        found = fit_facets(*answered(networks=12, images=60, seed=seed))
        inside += ((found.low < [0.5, 0.2]) & (found.high > [0.5, 0.2])).tolist()
    assert 0.88 <= np.mean(inside) <= 0.99  # .95; 120 intervals: ± 2 standard errors of .02


def test_snapshots_do_not_narrow_intervals():
    alone = fit_facets(*answered(networks=10, own=0.3))
    several = fit_facets(*answered(networks=10, own=0.3, snapshots=4))
    assert ((several.high - several.low) > 0.6 * (alone.high - alone.low)).all()


def test_images_shown_under_one_condition_only_are_enough():
    responses, image, design, network = answered(images=420, own=0.0)
    condition = np.arange(len(image)) // 420
    shown = condition == image % 7
    found = fit_facets(responses[:, shown], image[shown], design[shown], network)
    assert found.effect == pytest.approx([0.5, 0.2], abs=0.25)
    assert (found.low > 0).any()


def test_one_network_has_no_interval_and_an_idle_effect_is_named():
    responses, image, design, network = answered(networks=1, snapshots=3)
    assert np.isnan(fit_facets(responses, image, design, network).low).all()
    with pytest.raises(FcaError, match="items with an effect = none for effect 1"):
        fit_facets(responses, image, design * [1, 0], network)
