"""Parts that nothing links, and the error of a shift that little links, against the whole information matrix."""

import numpy as np
import pytest
import weak_links

from fca.studies.irt.stats import check_responses, fit_irt, held_out_fit, hide, parts_of, weakest_link
from fca.types import FcaError
from tests.studies.irt.support.planted import planted


def blocks(common=0, gap=4.0, subjects=20, items=40, seed=1):
    """Able subjects with hard items, weak ones with easy items; `common` weak ones respond to one of the hard items."""
    rng = np.random.default_rng(seed)
    able = np.arange(2 * subjects) < subjects
    ability = np.where(able, gap / 2, -gap / 2) + rng.normal(0, 0.5, 2 * subjects)
    difficulty = np.repeat([gap / 2, -gap / 2], items) + rng.normal(0, 0.7, 2 * items)
    difficulty[0] = 0.0
    p = 1 / (1 + np.exp(difficulty - ability[:, None]))
    responses = (rng.random(p.shape) < p).astype(float)
    responses[:subjects, items:] = np.nan
    responses[subjects:, :items] = np.nan
    responses[subjects : subjects + common, 0] = np.arange(common) % 2
    return responses, able


def reached_from(subject, responses):
    """Subjects that can be reached over common items, by walking."""
    known, new = {subject}, [subject]
    while new:
        items = ~np.isnan(responses[new.pop()])
        neighbours = set(np.flatnonzero((~np.isnan(responses[:, items])).any(axis=1)).tolist())
        new += neighbours - known
        known |= neighbours
    return frozenset(known)


def test_parts_are_what_can_be_reached_over_common_items():
    rng = np.random.default_rng(0)
    for share in (0.02, 0.05, 0.2):
        responses = np.where(rng.random((30, 40)) < share, 1.0, np.nan)
        responses[np.arange(30), rng.integers(0, 40, 30)] = 1.0
        part = parts_of(responses)
        found = {frozenset(np.flatnonzero(part == at).tolist()) for at in range(part.max() + 1)}
        assert found == {reached_from(subject, responses) for subject in range(30)}
        assert (np.diff(np.bincount(part)) <= 0).all()  # largest first


def test_two_blocks_without_a_common_item_are_refused_and_named():
    responses, _ = blocks()
    message = r"2 parts without a common item: 20 subjects x 40 items \(positions 0, 1, 2, \.\.\.\); 20 subjects x 40"
    with pytest.raises(FcaError, match=message):
        fit_irt(responses)
    with pytest.raises(FcaError, match="one part, linked by common items"):
        check_responses(responses)


def test_the_error_of_a_shift_is_that_of_the_whole_information_matrix():
    responses, able = blocks(common=6)
    fit = fit_irt(responses, "1pl")
    link = weakest_link(responses, fit)
    assert (link.group == able).all() or (link.group == ~able).all()

    # abilities and difficulties together, without prior; what is always right or always wrong informs nothing
    p = fit.probability()
    weight = np.where(np.isnan(responses), 0.0, p * (1 - p))
    constant = np.nanmin(responses, axis=0) == np.nanmax(responses, axis=0)
    weight[:, constant] = 0.0
    known = np.flatnonzero(weight.sum(axis=0))
    whole = np.block(
        [[np.diag(weight.sum(1)), -weight[:, known]], [-weight[:, known].T, np.diag(weight.sum(0)[known])]]
    )
    contrast = np.append(able / able.sum() - ~able / (~able).sum(), np.zeros(len(known)))
    assert link.shift_se == pytest.approx(np.sqrt(contrast @ np.linalg.pinv(whole) @ contrast), rel=1e-6)
    assert link.is_weak
    assert abs(link.gap) == pytest.approx(fit.ability[able].mean() - fit.ability[~able].mean())

    # if the abilities of all others were known: the difficulties alone, and each ability by itself
    alone = np.array([])
    for subject in range(40):
        unknown = [subject, *range(40, len(whole))]
        alone = np.append(alone, np.linalg.inv(whole[np.ix_(unknown, unknown)])[0, 0])
    assert link.balanced_se == pytest.approx(np.sqrt(39 / 40 * contrast[:40] ** 2 @ alone), rel=1e-6)

    # the prior of abilities, and that of difficulties about as wide as they came out
    prior = np.append(np.ones(40), np.full(len(known), 1 / (np.var(fit.difficulty) + np.mean(fit.difficulty_se**2))))
    posterior = contrast @ np.linalg.solve(whole + np.diag(prior), contrast)
    assert link.kept == pytest.approx(posterior / link.shift_se**2, rel=1e-6)


def test_a_link_that_the_prior_outweighs_is_weak_though_its_error_is_small():
    # 80 common responses: groups planted 4 logits apart come out 0.4 apart
    responses, able = blocks(common=20)
    rng = np.random.default_rng(0)
    responses[20:, 1:4] = rng.random((20, 3)) < 1 / (1 + np.exp(2 + np.arange(3) * 0.0))
    fit = fit_irt(responses, "1pl")
    link = weakest_link(responses, fit)
    assert link.shift_se < 0.5
    assert link.is_weak
    assert fit.ability[able].mean() - fit.ability[~able].mean() < 2


def test_the_more_responses_link_the_smaller_the_error():
    errors = [weakest_link(blocks(common=n)[0], fit_irt(blocks(common=n)[0], "1pl")).shift_se for n in (2, 6, 20)]
    assert errors[0] > errors[1] > errors[2]


def test_what_everybody_got_right_links_nothing():
    responses, able = blocks()
    responses[20:, 0] = responses[:20, 0] = 1.0  # linked, but only by an item that is always right
    assert parts_of(responses).max() == 0
    link = weakest_link(responses, fit_irt(responses, "1pl"))
    assert np.isinf(link.shift_se)
    assert (link.group == able).all() or (link.group == ~able).all()
    responses, able = blocks()
    responses[20, :40] = 0.0  # by a subject that is always wrong
    responses[20, 40:] = 0.0
    assert np.isinf(weakest_link(responses, fit_irt(responses, "1pl")).shift_se)


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_that_overlap_are_no_firm_link(seed):
    """Each responds to the 25 of 200 items nearest to its ability: what is far apart comes out close together."""
    rng = np.random.default_rng(seed)
    ability, difficulty = np.sort(rng.normal(size=40)), np.sort(rng.normal(size=200))
    near = np.argsort(np.abs(difficulty - ability[:, None]), axis=1)[:, :25]
    asked = np.zeros((40, 200), dtype=bool)
    np.put_along_axis(asked, near, True, axis=1)
    right = rng.random((40, 200)) < 1 / (1 + np.exp(difficulty - ability[:, None]))
    responses = np.where(asked, right, np.nan)[:, asked.any(axis=0)]

    fit = fit_irt(responses, "1pl")
    link = weakest_link(responses, fit)
    assert link.is_weak
    shown, true = (abs(of[link.group].mean() - of[~link.group].mean()) for of in (fit.ability, ability))
    assert shown < true / 3


@pytest.mark.parametrize(("subjects", "own", "common"), [(10, 12, 4), (20, 14, 6), (30, 14, 8), (40, 25, 12)])
def test_groups_linked_by_some_common_items_are_named_where_their_gap_is_lost(subjects, own, common):
    """Two groups 4 logits apart, each with items of its ability and some in common: about half of it is left, or less.

    The standard error is small and twice that with known difficulties at most, and the fit keeps up to 0.6 of the gap.
    """
    for seed in range(3):
        rng = np.random.default_rng(seed)
        able = np.arange(2 * subjects) < subjects
        ability = np.where(able, 2.0, -2.0) + rng.normal(0, 0.7, 2 * subjects)
        difficulty = np.concatenate([rng.normal(2, 0.7, own), rng.normal(-2, 0.7, own), rng.normal(0, 1, common)])
        responses = answered(rng, ability, difficulty)
        responses[:subjects, own : 2 * own] = np.nan
        responses[subjects:, :own] = np.nan

        fit = fit_irt(responses, "1pl")
        link = weakest_link(responses, fit)
        assert link.is_weak
        assert fit.ability[able].mean() - fit.ability[~able].mean() < 0.6 * 4


@pytest.mark.parametrize(("subjects", "responses_each", "items"), [(30, 14, 200), (60, 50, 500), (20, 30, 100)])
def test_random_designs_are_no_weak_links(subjects, responses_each, items):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        responses = answered(rng, rng.normal(size=subjects), rng.normal(size=items))
        for subject in range(subjects):
            responses[subject, rng.permutation(items)[responses_each:]] = np.nan
        responses = responses[:, ~np.isnan(responses).all(axis=0)]

        link = weakest_link(responses, fit_irt(responses, "1pl"))
        assert link is None or not link.is_weak


def answered(rng, ability, difficulty):
    """Responses of all to all items, by the 1PL."""
    p = 1 / (1 + np.exp(difficulty - ability[:, None]))
    return (rng.random(p.shape) < p).astype(float)


def test_few_random_items_each_are_few_responses_and_no_weak_link():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        ability, difficulty = rng.normal(size=30), rng.normal(size=200)
        responses = np.full((30, 200), np.nan)
        for subject in range(30):
            items = rng.choice(200, 14, replace=False)
            responses[subject, items] = rng.random(14) < 1 / (1 + np.exp(difficulty[items] - ability[subject]))
        responses = responses[:, ~np.isnan(responses).all(axis=0)]

        fit = fit_irt(responses, "1pl")
        link = weakest_link(responses, fit)
        assert link.shift_se > 0.5, "as large as that of groups with hardly a common item"
        assert not link.is_weak
        assert np.corrcoef(fit.ability, ability)[0, 1] > 0.7


def test_ten_items_that_all_respond_to_link_no_adaptive_design():
    """All respond to the same 10 of 300 items, and each to the 40 that lie nearest to its ability."""
    true = planted(60, 300)
    near = np.abs(true.difficulty - true.ability[:, None])
    asked = near <= np.sort(near, axis=1)[:, [39]]
    asked[:, ::30] = True
    adaptive = np.where(asked, true.responses, np.nan)[:, asked.any(axis=0)]
    fit = fit_irt(adaptive, "1pl")
    assert weakest_link(adaptive, fit).is_weak
    assert between_quarters(fit.ability, true.ability) < between_quarters(true.ability, true.ability) / 2

    holes = np.where(np.random.default_rng(0).random((60, 300)) < 0.8, np.nan, true.responses)
    fit = fit_irt(holes, "1pl")
    link = weakest_link(holes, fit)
    assert link is None or not link.is_weak
    assert between_quarters(fit.ability, true.ability) > 0.9 * between_quarters(true.ability, true.ability)

    assert weakest_link(true.responses, fit_irt(true.responses)) is None


def between_quarters(values, ability):
    """Mean of the ablest quarter less that of the weakest."""
    order = np.argsort(ability)
    quarter = len(order) // 4
    return values[order[-quarter:]].mean() - values[order[:quarter]].mean()


def test_hidden_responses_leave_the_others_linked():
    responses, _ = blocks(common=2)
    for seed in range(10):
        hidden = hide(responses, 0.5, seed)
        assert hidden.sum() > 700  # of 1,602
        assert parts_of(np.where(hidden, np.nan, responses)).max() == 0
    assert np.isfinite(held_out_fit(responses, "1pl", share=0.5).nll)


@pytest.mark.parametrize(
    ("kind", "make", "numbers"),
    [
        ("blocks", weak_links.blocks, (20, 12, 4, 4)),
        ("nearest", weak_links.nearest, (40, 25, 200, 10)),
        ("random", weak_links.at_random, (30, 14, 200)),
    ],
)
def test_the_table_of_weak_links_is_made_shrunk(kind, make, numbers, monkeypatch):
    monkeypatch.setattr(weak_links, "SEEDS", {"1pl": (1,)})
    monkeypatch.setattr(weak_links, "SETS", {"1pl": 3})
    line = [cell.strip() for cell in weak_links.row("1pl", kind, numbers, make).strip("|").split("|")]
    assert line[1] == kind
    assert line[-1] == ("0" if kind == "random" else "3"), "sets with a weak link"
