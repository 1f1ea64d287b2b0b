"""What every model in conf/model promises, whoever adds one."""

import json
import subprocess
import sys

import pytest
import torch

from fca.doors.application import CONF
from fca.models.timm_net import PRETRAINED, TimmModel
from fca.models.timm_network import network
from fca.nouns import Classifier, FcaError, Geometry, Model

NAMED = sorted({path.stem for path in (CONF / "model").glob("*.yaml")} - {"timm", "run"})
ENCODERS = [name for name in NAMED if "fca.models.handmade" in (CONF / "model" / f"{name}.yaml").read_text()]
NETWORKS = sorted(set(NAMED) - set(ENCODERS))
CLASSES = ["cat", "dog", "owl"]
LARGE = 2e6  # weights; larger networks are laid out but not filled


def built(made):
    torch.manual_seed(0)
    return made.build(CLASSES)


def laid_out(made):
    """A timm network without memory for its weights."""
    with torch.device("meta"):
        return network(made, len(CLASSES))


def is_large(made):
    return isinstance(made, TimmModel) and sum(weight.numel() for weight in laid_out(made).parameters()) > LARGE


@pytest.mark.parametrize("name", NETWORKS)
def test_a_fresh_head_trains_and_its_logits_are_head_of_embed(model, name):
    made = model(name)
    if is_large(made):
        size = made.input_size or laid_out(made).pretrained_cfg["input_size"][-1]
        assert laid_out(made).eval()(torch.empty(2, 3, size, size, device="meta")).shape == (2, 3)
        return
    classifier = built(made)
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
        assert torch.equal(logits, module(images)), "two passes differ"
        assert torch.equal(logits, classifier.head(features))
    module.train()(images).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in module.parameters())


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_seed_gives_the_same_first_weights(model, name):
    made = model(name)
    if not is_large(made):
        first, second = (built(made).module.state_dict() for _ in range(2))
        assert all(torch.equal(value, second[key]) for key, value in first.items())


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_without_weights_gives_features_and_no_logits(model, name):
    encoder = model(name).build()
    assert (encoder.head, encoder.classes) == (None, ())
    size = encoder.input_size
    assert encoder.embed(encoder.normalise(torch.rand(2, 3, size, size))).shape[0] == 2
    with pytest.raises(FcaError, match=f"model = {name}"):
        model(name).build(CLASSES)


@pytest.mark.parametrize(
    "name", [name for name in NETWORKS if "pretrained" not in (CONF / "model" / f"{name}.yaml").read_text()]
)
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
    tagged = {"clip_vit_b32": "vit_base_patch32_clip_quickgelu_224", "dinov2_vit_b14": "vit_base_patch14_dinov2"}
    for name in NAMED:
        assert model(name).label() == (with_keywords | tagged).get(name, name)


def test_planning_with_every_model_imports_neither_torch_nor_timm(model):
    made = [model(name) for name in NAMED]
    made = [m for m in made if getattr(m, "weights", None) != PRETRAINED]
    code = (
        "import sys\n"
        + "".join(
            f"from {type(m).__module__} import {type(m).__name__}\n({m!r}).identity(), ({m!r}).label()\n" for m in made
        )
        + "loaded = {'torch', 'timm', 'torchvision', 'pytorch_lightning'} & set(sys.modules)\n"
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
        "family": "squeezenet1_0",
        "weights": None,
        "classes": None,
        "input_size": 227,
        "crop_pct": 0.88671875,
        "interpolation": "bicubic",
    }
