"""Evaluation domains: which logits are the target's, and what counts as recognised."""

from dataclasses import replace

import figure4
import numpy as np
import pytest

from fca.subset import read_superclasses
from fca.types import FcaError

IMAGENET = list(read_superclasses("imagenet_dog").of)  # the 1,000 wnids in the order of their logits


@pytest.fixture(scope="module")
def dog():
    return figure4.dog()


def test_dogs_are_classes_151_to_268_and_the_guess_adds_the_timber_wolf(dog):
    assert dog.columns(IMAGENET).tolist() == list(range(151, 269))
    assert replace(dog, target="dog119").columns(IMAGENET).tolist() == list(range(151, 270))
    assert IMAGENET[269] == "n02114367"
    assert replace(dog, target="n02114367").columns(IMAGENET).tolist() == [269]
    with pytest.raises(FcaError, match=r"domain\.target = dog; allowed: classes of the model, some but not all: cat"):
        dog.columns(["cat", "car"])


def test_half_asks_for_half_of_the_probability_and_largest_for_more_than_any_other_class(dog):
    logits = np.log([[0.3, 0.3, 0.4], [0.2, 0.2, 0.6], [0.25, 0.2, 0.55], [0.1, 0.35, 0.55]])
    right, p = dog.judged(logits, np.array([0, 1]))
    assert p == pytest.approx([0.6, 0.4, 0.45, 0.45])
    assert right.tolist() == [True, False, False, False]
    right, _ = replace(dog, decision="largest").judged(np.log([[0.4, 0.3, 0.3], [0.3, 0.4, 0.3]]), np.array([0]))
    assert right.tolist() == [True, False]


def test_the_prompt_of_a_subdomain_is_the_paper_s(dog):
    assert len(dog.prompts) == len(set(dog.prompts)) == 1032
    assert dog.prompts[0] == "A front view of a white dog at the beach, during the day, it is sunny."


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("A {colour} dog", "attribute in domain.prompt = colour; allowed: subject, weather, location"),
        ("A {color} dog", "attributes that domain.prompt lacks: weather, location, time, viewpoint"),
    ],
)
def test_a_prompt_must_name_each_attribute_and_no_other(dog, prompt, message):
    with pytest.raises(FcaError, match=message):
        replace(dog, prompt=prompt).check()
