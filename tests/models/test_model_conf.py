"""What every model in conf/model promises, whoever adds one."""

import pytest
import torch

from fca.cli.places import CONF
from fca.models import timm_models as timm_network
from fca.models import torchvision_models as torchvision_network
from fca.models.networks import logit_layers
from fca.models.torchvision_models import TorchvisionModel
from fca.types import Classifier, FcaError, Geometry
from tests.support.named_models import NAMED

WITHOUT_WEIGHTS = ("fca.models.handmade", "fca.models.own", "fca.models.pair")


def says(name, *words):
    text = (CONF / "model" / f"{name}.yaml").read_text()
    return any(word in text for word in words)


ENCODERS = [name for name in NAMED if says(name, *WITHOUT_WEIGHTS) and name != "pair"]
ZERO_SHOT = [name for name in NAMED if says(name, "defaults: [open_clip")]
NETWORKS = sorted(set(NAMED) - set(ENCODERS) - set(ZERO_SHOT) - {"pair"})
PUBLISHED = [name for name in NETWORKS if says(name, "weights: pretrained")]
LARGE = {  # over 20 million weights: built without memory for them, one image, no training step
    *("alexnet", "convnext_base", "convnext_tiny", "convnextv2_base", "deit_s", "efficientnetv2_m", "efficientnetv2_s"),
    *("inception_v3", "resnet34", "resnet50", "resnet101", "resnet152", "swin_base", "swinv2_base"),
    *("vgg16", "vgg19", "vit_b16", "vit_b32", "vit_base_patch16"),
}
SMALL = [  # those of millions of weights take seconds each
    name if name.startswith("test_") else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(set(NETWORKS) - LARGE - set(PUBLISHED))
]
OF_THE_PAPERS = {  # as timm and torchvision have them on record: side of the input, weights in millions without a head
    "resnet18": (224, 11.2),
    "resnet34": (224, 21.3),
    "resnet50": (224, 23.5),
    "resnet101": (224, 42.5),
    "resnet152": (224, 58.1),
    "vgg16": (224, 134.3),
    "convnextv2_base": (224, 87.7),
    "inception_v3": (299, 21.8),
    "efficientnetv2_m": (384, 52.9),
    "shufflenet_v2_x1_0": (224, 1.3),
    "mobilenetv3_small": (224, 1.5),
    "vit_base_patch16": (224, 85.8),
    "swinv2_base": (256, 86.9),
    "mobilevit_s": (256, 4.9),
    "vit_b16": (224, 85.8),
    "vit_b32": (224, 87.5),
    "swin_base": (224, 86.7),
    "convnext_base": (224, 87.6),
    "convnext_tiny": (224, 27.8),
    "efficientnetv2_s": (300, 20.2),
    "mobilenetv2": (224, 2.2),
    "mobilenetv3_large": (224, 4.2),
    "alexnet": (224, 57.0),
    "vgg19": (224, 139.6),
    "densenet121": (224, 7.0),
}
CLASSES = ["cat", "dog", "owl"]


def built(made):
    torch.manual_seed(0)
    return made.build(CLASSES)


def millions(module, head):
    """Weights without a head's."""
    return round((sum(w.numel() for w in module.parameters()) - sum(w.numel() for w in head.parameters())) / 1e6, 1)


def of_library(made):
    """What makes the network, and its own resolution once it is made; timm's or torchvision's."""
    if isinstance(made, TorchvisionModel):
        record = torchvision_network.record_of(made.name)
        return (
            torchvision_network.network,
            lambda _: torchvision_network._geometry_and_normalisation(made, record)[0].size,
        )
    return timm_network.network, lambda module: timm_network._geometry_and_normalisation(made, module)[0].size


@pytest.mark.parametrize("name", sorted(LARGE))
@pytest.mark.slow
def test_a_large_network_answers_at_its_own_resolution_with_as_many_logits_as_asked(model, name):
    made = model(name)
    network, size_of = of_library(made)
    with torch.device("meta"):
        module = network(made, 2).eval()
        size = size_of(module)
        assert module(torch.empty(1, 3, size, size)).shape == (1, 2)
    if name in OF_THE_PAPERS:
        (head,) = logit_layers(lambda logits: network(made, logits))
        assert (size, millions(module, module.get_submodule(head))) == OF_THE_PAPERS[name]


@pytest.mark.parametrize(
    "name", ["alexnet", "inception_v3", "resnet34"]
)  # the others have small relatives of their class
@pytest.mark.slow
def test_a_large_network_is_head_of_embed_on_small_images(model, name):
    classifier = model(name, "model.input_size=96").build(CLASSES)
    image = torch.rand(1, 3, 96, 96)
    with torch.inference_mode():
        logits, features = classifier.module.eval()(image), classifier.embed(image)
        assert torch.equal(logits, classifier.head(features))
    assert features.shape[1] > len(CLASSES)
    assert logits.isfinite().all()


@pytest.mark.parametrize("name", PUBLISHED)
def test_an_encoder_with_published_weights_takes_images_of_its_size(model, name):
    made = model(name)
    with torch.device("meta"):  # no memory for weights, no weights to fetch
        module = timm_network.network(made, 2)
    size = made.input_size or module.pretrained_cfg["input_size"][-1]
    assert module.eval()(torch.empty(1, 3, size, size, device="meta")).shape == (1, 2)


@pytest.mark.wide
@pytest.mark.parametrize("name", ZERO_SHOT)
def test_what_a_zero_shot_model_is_asked_is_part_of_what_it_is(model, name):
    asked = model(name).naming(["n02012849", "polar_bear"])  # raises for a tag that OpenCLIP does not have
    assert asked.identity()["templates"] == ["a photo of a {}."]
    assert asked.identity()["names"] == ["crane", "polar bear"]
    other = model(name, "model.templates=['a drawing of a {}.']").naming(["n02012849", "polar_bear"])
    assert other.identity() != asked.identity()


@pytest.mark.wide
@pytest.mark.parametrize("name", SMALL)
def test_a_fresh_head_trains_its_logits_are_head_of_embed_and_the_seed_gives_its_first_weights(model, name):
    classifier = built(model(name))
    assert isinstance(classifier, Classifier)
    assert isinstance(classifier.geometry, Geometry)
    assert classifier.classes == tuple(CLASSES)
    images = classifier.normalise(torch.rand(2, 3, classifier.input_size, classifier.input_size))
    module = classifier.module
    assert module.training
    with torch.inference_mode():
        logits, features = module.eval()(images), classifier.embed(images)
        assert logits.shape == (2, 3)
        assert features.ndim == 2
        assert torch.equal(logits, classifier.head(features)), "or two passes differ"
    if name in OF_THE_PAPERS:
        assert (classifier.input_size, millions(module, classifier.head)) == OF_THE_PAPERS[name]
    first = {key: value.clone() for key, value in module.state_dict().items()}
    module.train()(images).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in module.parameters())
    again = built(model(name)).module.state_dict()
    assert all(torch.equal(value, again[key]) for key, value in first.items()), "the seed does not give the weights"


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_without_weights_gives_features_and_no_logits(model, name):
    encoder = model(name).build()
    assert (encoder.head, encoder.classes) == (None, ())
    size = encoder.input_size
    assert encoder.embed(encoder.normalise(torch.rand(2, 3, size, size))).shape[0] == 2
    with pytest.raises(FcaError, match=f"model = {model(name).label()}; allowed: a network"):
        model(name).build(CLASSES)


@pytest.mark.wide
@pytest.mark.parametrize("name", sorted(set(NETWORKS) - set(PUBLISHED)))
def test_a_network_from_scratch_is_no_encoder_and_no_classifier(model, name):
    with pytest.raises(FcaError, match=r"model\.weights = None; allowed: weights"):
        model(name).build()
