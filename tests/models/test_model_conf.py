"""What every model in conf/model promises, whoever adds one."""

import json
import subprocess
import sys

import pytest
import torch

from fca.doors.application import CONF
from fca.models.labels import PRETRAINED
from fca.models.timm_network import _input, network
from fca.nouns import Classifier, FcaError, Geometry, Model

GENERIC = {"mmpretrain", "open_clip", "run", "timm", "torchvision"}
NAMED = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - GENERIC)
WITHOUT_WEIGHTS = ("fca.models.handmade", "fca.models.own")


def says(name, *words):
    text = (CONF / "model" / f"{name}.yaml").read_text()
    return any(word in text for word in words)


ENCODERS = [name for name in NAMED if says(name, *WITHOUT_WEIGHTS)]
NETWORKS = sorted(set(NAMED) - set(ENCODERS) - {"pair"})
PUBLISHED = [name for name in NETWORKS if says(name, "weights: pretrained")]
LARGE = {  # over 20 million weights: built without memory for them, one image, no training step
    *("convnext_tiny", "convnextv2_base", "efficientnetv2_m", "inception_v3", "resnet34"),
    *("resnet50", "resnet101", "resnet152", "swinv2_base", "vgg16", "vit_base_patch16"),
}
SMALL = sorted(set(NETWORKS) - LARGE - set(PUBLISHED))
OF_THE_PAPER = {  # as timm and torchvision have them on record: side of the input, weights in millions without a head
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
}
CLASSES = ["cat", "dog", "owl"]


def built(made):
    torch.manual_seed(0)
    return made.build(CLASSES)


def millions(module, head):
    """Weights without a head's."""
    return round((sum(w.numel() for w in module.parameters()) - sum(w.numel() for w in head.parameters())) / 1e6, 1)


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_large_network_answers_at_its_own_resolution_with_as_many_logits_as_asked(model, name):
    made = model(name)
    with torch.device("meta"):
        module = network(made, 2).eval()
        size = _input(made, module)[0].size
        assert module(torch.empty(1, 3, size, size)).shape == (1, 2)
    if name in OF_THE_PAPER:
        assert (size, millions(module, module.get_classifier())) == OF_THE_PAPER[name]


@pytest.mark.parametrize("name", ["inception_v3", "resnet34"])  # the others have small relatives of their class
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
        module = network(made, 2)
    size = made.input_size or module.pretrained_cfg["input_size"][-1]
    assert module.eval()(torch.empty(1, 3, size, size, device="meta")).shape == (1, 2)


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
    if name in OF_THE_PAPER:
        assert (classifier.input_size, millions(module, classifier.head)) == OF_THE_PAPER[name]
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


@pytest.mark.parametrize("name", sorted(set(NETWORKS) - set(PUBLISHED)))
def test_a_network_from_scratch_is_no_encoder_and_no_classifier(model, name):
    with pytest.raises(FcaError, match=r"model\.weights = None; allowed: weights"):
        model(name).build()


def test_every_model_has_a_label_and_an_identity_of_its_own(model):
    made = [model(name) for name in NAMED]
    scratch = [m for m in made if getattr(m, "weights", None) != PRETRAINED]
    assert all(isinstance(m, Model) for m in made)
    assert len({m.label() for m in made}) == len(made)
    identities = {json.dumps(m.identity(), sort_keys=True, allow_nan=False) for m in scratch}
    assert len(identities) == len(scratch)
    assert all("_target_" not in identity for identity in identities)
    assert all(m.weights_label() is None for m in scratch)


def test_the_named_points_are_called_as_they_are_typed(model):
    with_keywords = {"resnet18_cifar": "resnet18 stem=cifar", "mobilenetv1_100": "mobilenetv1_100 pad_type=same"}
    of_timm = {
        "clip_vit_b32": "vit_base_patch32_clip_quickgelu_224",
        "dinov2_vit_b14": "vit_base_patch14_dinov2",
        "efficientnetv2_m": "tf_efficientnetv2_m",
        "mobilenetv3_small": "mobilenetv3_small_100",
        "swinv2_base": "swinv2_base_window16_256",
        "vit_base_patch16": "vit_base_patch16_224",
    }
    functions = {"own": "fca.models.own.mean_colour", "pair": "fca.models.pair.structural_similarity"}
    for name in NAMED:
        assert model(name).label() == (with_keywords | of_timm | functions).get(name, name)


def test_planning_with_every_model_imports_neither_torch_nor_timm(model):
    made = [model(name) for name in NAMED]
    made = [m for m in made if getattr(m, "weights", None) != PRETRAINED]
    made += [
        model("torchvision", "model.name=resnet50"),
        model("mmpretrain", "model.name=resnet18_8xb32_in1k"),
        model("mmpretrain", "model.name=resnet18_8xb32_in1k", "model.weights=pretrained"),
        model("open_clip", "model.name=ViT-B-32"),
    ]
    code = (
        "import sys\n"
        + "".join(
            f"from {type(m).__module__} import {type(m).__name__}\n({m!r}).identity(), ({m!r}).label()\n" for m in made
        )
        + "heavy = {'torch', 'timm', 'torchvision', 'pytorch_lightning', 'mmpretrain', 'mmengine', 'open_clip'}\n"
        + "loaded = heavy & set(sys.modules)\n"
        + "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_golden_identities(model):
    """These enter run ids: a change makes every stored run a stranger."""
    assert model("test_resnet").identity() == {
        "family": "timm",
        "name": "test_resnet",
        "weights": None,
        "stem": "timm",
        "kwargs": {},
        "input_size": 32,
        "crop_pct": 1.0,
        "interpolation": None,
        "mean": None,
        "std": None,
        "classes": None,
        "projection": False,
    }
    assert model("cifar_resnet20").identity() == {
        "family": "cifar_resnet",
        "depth": 20,
        "weights": None,
        "classes": None,
    }
    assert model("hog").identity() == {"family": "hog", "input_size": 32, "cell": 8, "block": 2, "orientations": 9}
    assert model("pixels").identity() == {"family": "pixels", "input_size": 16, "grey": False}
    assert model("squeezenet1_0").identity() == {
        "family": "torchvision",
        "name": "squeezenet1_0",
        "weights": None,
        "kwargs": {},
        "input_size": 227,
        "crop_pct": 0.88671875,
        "interpolation": "bicubic",
        "classes": None,
    }
    assert model("mmpretrain", "model.name=resnet18_8xb32_in1k").identity() == {
        "family": "mmpretrain",
        "name": "resnet18_8xb32_in1k",
        "weights": None,
        "kwargs": {},
        "input_size": None,
        "crop_pct": None,
        "interpolation": None,
        "mean": None,
        "std": None,
        "classes": None,
    }
    assert model("open_clip", "model.name=ViT-B-32").identity() == {
        "family": "open_clip",
        "name": "ViT-B-32",
        "weights": None,
        "templates": None,
        "names": None,
        "input_size": None,
        "crop_pct": None,
        "interpolation": None,
        "mean": None,
        "std": None,
        "classes": None,
    }
