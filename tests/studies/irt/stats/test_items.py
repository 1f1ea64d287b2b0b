"""Items at fixed abilities: each climbs to the mode that scipy finds from the same place, whatever the others do."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize

from fca.studies.irt.stats.items import best_of_grid, climb, heights
from fca.studies.irt.stats.likelihood import Cells, fill, first_state, prepare
from fca.studies.irt.stats.solve import HEIGHT_MARGIN, find_best_mode
from tests.studies.irt.support.planted import planted, with_holes

RESPONSES = with_holes(planted(30, 40, infeasible=0.3, ability_mean=1.0, ability_sd=1.5).responses, 0.1, seed=1)


def height_of(data, state, item):
    cells = Cells.empty(data, state.model, matrices=False)
    fill(cells, data, replace(state, item=item))
    return heights(replace(state, item=item), cells)


@pytest.mark.parametrize("model", ["2pl", "3pl", "3pl-upper", "4pl"])
def test_no_item_can_rise_near_where_its_climb_ended(model):
    data = prepare(RESPONSES)
    state = first_state(data, model)
    item, reached = climb(data, state)
    assert (reached >= height_of(data, state, state.item) - 1e-9).all()
    for at in range(0, len(data.count), 8):
        part = data.part(np.array([at]))

        def down(values, part=part):
            return -height_of(part, state, values[:, None])[0]

        best = scipy.optimize.minimize(down, item[:, at], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-9})
        assert -best.fun == pytest.approx(reached[at], abs=1e-6)  # steps below 1e-4, so heights to their square


@pytest.mark.parametrize("model", ["3pl-upper", "4pl"])
def test_the_point_of_the_grid_is_where_brute_force_finds_the_highest(model):
    data = prepare(RESPONSES)
    state = first_state(data, model)
    item = best_of_grid(data, state)
    found = height_of(data, state, item)
    for other in np.unique(item, axis=1).T:  # no point that another item chose is higher
        assert (found >= height_of(data, state, np.repeat(other[:, None], len(found), axis=1)) - 1e-9).all()


@pytest.mark.parametrize("model", ["3pl", "3pl-upper"])
def test_items_at_fixed_abilities_end_at_their_best_mode(model):
    """For no item does a climb from the highest point of the grid end higher."""
    data = prepare(RESPONSES)
    mode = find_best_mode(data, first_state(data, model), fixed_ability=True)
    assert mode.converged
    elsewhere = climb(data, replace(mode.state, item=best_of_grid(data, mode.state)))[1]
    assert (elsewhere <= height_of(data, mode.state, mode.state.item) + 2 * HEIGHT_MARGIN).all()
