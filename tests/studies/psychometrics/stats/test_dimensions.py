"""Held-out responses find the planted number of dimensions; the fit is a mode; snapshots stay on one side."""

import numpy as np
import pytest

from fca.studies.irt.stats import fit_irt
from fca.studies.psychometrics.stats.dimensions import fit_dimensions, held_out_dimensions
from fca.types import FcaError


def answered(subjects, items, dimensions, seed=1):
    """Items load on one of the dimensions each, as on two kinds of objects."""
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(subjects, dimensions))
    loading = np.exp(rng.normal(0, 0.4, (items, 1))) * (np.arange(items)[:, None] % dimensions == np.arange(dimensions))
    z = ability @ loading.T + rng.normal(0.5, 1.2, items)
    return (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float), ability


def losses(responses, network=None, **options):
    network = np.arange(len(responses)) if network is None else network
    found = {(one.hold_out, one.dimensions): one.loss for one in held_out_dimensions(responses, network, **options)}
    return {key: float(np.nanmean(loss)) for key, loss in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("planted", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_planted_number_of_dimensions_predicts_best(planted, seed):
    found = losses(answered(50, 600, planted, seed)[0])
    for hold_out in ("cells", "subjects"):
        assert min((1, 2, 3), key=lambda d, h=hold_out: found[h, d]) == planted


def test_planted_axes_are_spanned():
    responses, ability = answered(60, 800, 2)
    found = fit_dimensions(responses, 2).ability
    design = np.column_stack([found, np.ones(60)])
    for axis in ability.T:
        residual = axis - design @ np.linalg.lstsq(design, axis, rcond=None)[0]
        assert 1 - residual.var() / axis.var() > 0.95


def test_one_dimension_orders_subjects_as_the_2pl():
    responses = answered(30, 500, 1)[0]
    found = fit_dimensions(responses, 1).ability[:, 0]
    assert np.corrcoef(found, fit_irt(responses).ability)[0, 1] > 0.999


def test_snapshots_of_one_network_never_stand_on_both_sides():
    """Copies of a network would predict each other, and many dimensions would win."""
    responses = np.repeat(answered(12, 300, 1)[0], 3, axis=0)
    network = np.repeat(np.arange(12), 3)
    apart, mixed = losses(responses, network, max_dimensions=1), losses(responses, max_dimensions=1)
    assert apart["cells", 1] > mixed["cells", 1] + 0.01
    hidden = [one.loss for one in held_out_dimensions(responses, network, max_dimensions=1)]
    assert all(np.isfinite(loss).all() for loss in hidden)


def test_two_networks_are_held_out_by_cells_alone():
    responses = answered(4, 60, 1)[0]
    assert {key for key, _ in losses(responses, np.array([0, 0, 1, 1]), max_dimensions=1)} == {"cells"}
    with pytest.raises(FcaError, match="dimensions = 4; allowed: 1 to 3"):
        fit_dimensions(responses, 4)
