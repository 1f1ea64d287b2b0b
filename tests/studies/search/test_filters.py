"""Filters against the definition, one prompt and one image at a time."""

import numpy as np
import pytest
from scipy.special import softmax

from fca.studies.generate.filters import Filter, NoFilter, PromptFilter
from tests.studies.search.support.search_task import domain

SPACE = domain().space
LOGITS = np.random.default_rng(3).normal(0, 2, (40, len(SPACE)))


def by_hand(rule, k, logits, own):
    others = [at for at in range(len(SPACE)) if at != own]
    if rule == "per_attribute":
        differs = [
            sum(a != b for a, b in zip(SPACE.subdomains[at], SPACE.subdomains[own], strict=True)) for at in others
        ]
        others = [at for at, count in zip(others, differs, strict=True) if count == 1]
    return sum(logits[at] >= logits[own] for at in others) < (k if rule == "top_k" else 1)


@pytest.mark.parametrize(("rule", "k"), [("all", 5), ("top_k", 1), ("top_k", 3), ("per_attribute", 5)])
def test_a_rule_keeps_what_its_definition_keeps(rule, k):
    for own in range(len(SPACE)):
        kept, score = PromptFilter(rule, k).accept(LOGITS, own, domain())
        assert kept.tolist() == [by_hand(rule, k, logits, own) for logits in LOGITS]
        np.testing.assert_allclose(score, softmax(LOGITS, axis=1)[:, own], rtol=1e-12)
    assert 0 < kept.sum() < 40


def test_rules_are_nested_and_labelled():
    first, three, near = (
        PromptFilter(rule, 3).accept(LOGITS, 4, domain())[0] for rule in ("all", "top_k", "per_attribute")
    )
    assert not (first & ~three).any()
    assert not (first & ~near).any()
    assert [PromptFilter(rule, 3).label() for rule in ("all", "top_k", "per_attribute")] == [
        "all",
        "top_3",
        "per_attribute",
    ]
    assert all(isinstance(one, Filter) for one in (NoFilter(), PromptFilter("all", 5)))


def test_a_tie_and_a_broken_encoder_keep_nothing():
    tied = np.zeros((2, len(SPACE)))
    assert not PromptFilter("all", 5).accept(tied, 0, domain())[0].any()
    assert not PromptFilter("top_k", 5).accept(np.full((2, len(SPACE)), np.nan), 0, domain())[0].any()


def test_no_filter_keeps_all_and_needs_no_text():
    kept, score = NoFilter().accept(np.zeros((3, 0)), 0, domain())
    assert kept.all()
    assert np.isnan(score).all()
    assert NoFilter().texts(domain()) == []
    assert PromptFilter("all", 5).texts(domain())[0] == "A near car on a road by day"
