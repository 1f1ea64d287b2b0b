"""The plan that ships for ImageNet: its classes, its words, its bands."""

import re
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir

from fca.cli.application import register
from fca.cli.configure import component
from fca.cli.places import CONF
from fca.torchvision_ops import declare_torchvision_ops


@pytest.fixture(scope="module")
def plan():
    register("generate")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return component(compose("generate", ["plan=imagenet100", "generator=stable_diffusion"]), "plan").resolved()


@pytest.fixture(scope="module")
def imagenet():
    """Each of the 1,000 keys -> the words of its synset; timm's files, without importing it."""
    folder = Path(find_spec("timm").origin).parent / "data" / "_info"
    words = dict(line.split("\t") for line in (folder / "imagenet_synset_to_lemma.txt").read_text().splitlines())
    return {key: words[key].lower().split(", ") for key in (folder / "imagenet_synsets.txt").read_text().split()}


def test_the_plan_has_the_shape_of_the_paper(plan):
    assert len(plan.classes) == 100
    assert sorted(plan.attributes) == [
        "color", "light", "occlusion", "position", "quality", "rotation", "size", "style", "texture", "view",
    ]  # fmt: skip
    assert len(plan) == 36_000
    plan.check_words()


def test_the_keys_are_imagenets_and_the_names_are_words_of_their_synsets(plan, imagenet):
    assert len(imagenet) == 1_000
    for key, name in plan.classes.items():
        assert name.lower() in imagenet[key] or (key, name) == ("n02782093", "hot-air balloon")
    assert len({name.lower() for name in plan.classes.values()}) == 100


def test_no_other_class_of_imagenet_is_called_the_same(plan, imagenet):
    for key, name in plan.classes.items():
        assert [other for other, words in imagenet.items() if name.lower() in words and other != key] == []


def test_every_prompt_names_its_class_and_no_two_are_the_same(plan):
    nine = {(a, n): text for a, texts in plan.attributes.items() for n, text in enumerate(texts, 1)}
    assert len(nine) == 90
    assert len(set(nine.values())) == 90
    assert all(text.count("{name}") == 1 for text in nine.values())
    prompts = {(r.label, r.attribute, r.sublevel): r.prompt for r in replace(plan, per_level=3).requests()}
    assert len(set(prompts.values())) == len(prompts) == 9_000
    assert not any(re.search(r"[{}]", prompt) for prompt in prompts.values())


@pytest.mark.slow
def test_no_prompt_is_longer_than_clip_reads(plan):
    declare_torchvision_ops()
    from open_clip.tokenizer import SimpleTokenizer

    encode = SimpleTokenizer().encode
    prompts = {request.prompt for request in replace(plan, per_level=3).requests()}
    assert max(len(encode(prompt)) for prompt in prompts) <= 75  # 77 with start and end


@pytest.mark.parametrize(
    ("attribute", "bands"),
    [
        ("occlusion", ((0, 10), (30, 50), (70, 90))),
        ("size", ((50, 70), (10, 20), (1, 3))),
        ("rotation", ((0, 20), (45, 90), (135, 180))),
    ],
)
def test_numbers_lie_in_their_bands_and_grow_harder(plan, attribute, bands):
    numbers = [int(re.search(r"(\d+) (percent|degrees)", text)[1]) for text in plan.attributes[attribute]]
    assert all(np.sign(after - before) == np.sign(numbers[-1] - numbers[0]) for before, after in pairwise(numbers))
    for (low, high), three in zip(bands, np.reshape(numbers, (3, 3)), strict=True):
        assert low <= three.min() <= three.max() <= high
