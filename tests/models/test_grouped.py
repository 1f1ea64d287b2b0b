"""A network seen as one of groups: the same predictions as the grouped protocol makes of its stored logits."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.stats.protocols import grouped_top1
from fca.subset import read_superclasses
from fca.types import FcaError

KEYS = ["a", "b", "c", "d", "e"]
GROUPS = {"a": "upper", "b": "lower", "c": "upper", "e": "lower"}  # d belongs to none


@pytest.fixture(scope="module")
def made(model, tmp_path_factory):
    """The network with random weights of five classes, and the same in groups."""
    folder = tmp_path_factory.mktemp("grouped")
    base = model("test_resnet", "model.input_size=32")
    torch.manual_seed(0)
    weights = base.build(KEYS).module.state_dict()
    weights = {
        key: value + 0.05 * torch.randn_like(value) if value.ndim > 1 else value for key, value in weights.items()
    }
    save_file(weights, folder / "weights.safetensors")
    (folder / "groups.csv").write_text("class,group\n" + "".join(f"{key},{of}\n" for key, of in GROUPS.items()))
    words = ["model.base.input_size=32", f"model.base.weights={folder / 'weights.safetensors'}"]
    words += [f"model.base.classes=[{','.join(KEYS)}]", f"model.groups={folder / 'groups.csv'}"]
    return model("grouped", "model@model.base=test_resnet", *words)


@pytest.fixture(scope="module")
def logits(made):
    """Of the base and of the groups, for the same images."""
    images = torch.randn(24, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    built = made.build()
    with torch.inference_mode():
        both = made.base.build().module.eval()(images).double().numpy(), built.module.eval()(images).double().numpy()
        assert torch.allclose(built.head(built.embed(images)), built.module(images))
    return both


def test_a_group_has_the_sum_of_the_probabilities_of_its_classes(made, logits):
    of_classes, of_groups = logits
    p = np.exp(of_classes) / np.exp(of_classes).sum(axis=1, keepdims=True)
    assert made.build().classes == ("lower", "upper")
    summed = np.stack([p[:, 1] + p[:, 4], p[:, 0] + p[:, 2]], axis=1)
    assert np.exp(of_groups) == pytest.approx(summed, rel=1e-5)  # float32 logits


def test_it_is_right_as_often_as_the_grouped_protocol(made, logits):
    of_classes, of_groups = logits
    true = np.arange(24) % 5
    code = read_superclasses(made.groups).codes(KEYS)
    expected, n = grouped_top1(of_classes, code, true)
    there = code[true] >= 0
    assert (of_groups.argmax(axis=1) == code[true])[there].mean() == expected
    assert 0 < expected < 1
    assert n == 19  # d is shown in 5 of 24


def test_the_layers_of_the_base_are_within_its_module(made):
    built = made.build()
    built.module.eval()
    [first] = [layer for name, layer in built.module.named_modules() if name.endswith("layer1.0.conv1")]
    seen = []
    first.register_forward_hook(lambda *_: seen.append(True))
    built.head(built.embed(torch.zeros(1, 3, 32, 32)))
    assert seen == [True]


def test_another_grouping_of_one_network_is_another_model(made, model):
    other = model("grouped", "model@model.base=test_resnet", "model.groups=imagenet_dog").groups
    assert read_superclasses(other).of != read_superclasses(made.groups).of
    assert made.identity()["groups"] == GROUPS
    assert made.identity()["base"] == made.base.identity()
    assert made.label().startswith("test_resnet")
    assert made.label().endswith("groups")


def test_groups_are_not_trained(made):
    with pytest.raises(FcaError, match=r"groups are not trained; next: train the base itself: model=test_resnet"):
        made.build(["upper", "lower"])


def test_groups_of_classes_that_the_network_does_not_know_are_refused(made):
    with pytest.raises(FcaError, match=r"imagenet_dog; allowed: groups of the 5 classes that test_resnet knows"):
        type(made)(made.base, "imagenet_dog", ["class", "group"]).build()
