"""What the named models are called, and what of them enters run ids."""

import json
import subprocess
import sys

import pytest

from fca.types import Model
from tests.support.named_models import NAMED

ALIASES = {"vit_b16": "vit_base_patch16"}  # two names of one network: their runs are the same runs


def test_every_model_has_a_label_and_an_identity_of_its_own(model):
    made = [model(name) for name in NAMED if name not in ALIASES]
    scratch = [m for m in made if getattr(m, "weights", None) is None]
    assert all(isinstance(m, Model) for m in made)
    assert len({m.label() for m in made}) == len(made)
    identities = {json.dumps(m.identity(), sort_keys=True, allow_nan=False) for m in scratch}
    assert len(identities) == len(scratch)
    assert all("_target_" not in identity for identity in identities)
    assert all(m.weights_label() is None for m in scratch)
    assert all(model(short) == model(name) for short, name in ALIASES.items())


def test_the_named_points_are_called_as_they_are_typed(model):
    with_keywords = {"resnet18_cifar": "resnet18 stem=cifar", "mobilenetv1_100": "mobilenetv1_100 pad_type=same"}
    of_library = {
        "clip_convnext_base": "open_clip:convnext_base",
        "clip_rn101": "open_clip:RN101-quickgelu",
        "clip_vit_b16": "open_clip:ViT-B-16",
        "clip_vit_b32": "vit_base_patch32_clip_quickgelu_224",
        "deit_s": "deit_small_patch16_224",
        "dinov2_vit_b14": "vit_base_patch14_dinov2",
        **{f"efficientnet_lite{size}": f"tf_efficientnet_lite{size}" for size in range(3)},
        "efficientnetv2_m": "tf_efficientnetv2_m",
        "efficientnetv2_s": "tf_efficientnetv2_s",
        "mobilenetv2": "mobilenetv2_100",
        "mobilenetv3_large": "mobilenetv3_large_100",
        "mobilenetv3_small": "mobilenetv3_small_100",
        "swin_base": "swin_base_patch4_window7_224",
        "swinv2_base": "swinv2_base_window16_256",
        "vit_b16": "vit_base_patch16_224",
        "vit_b32": "vit_base_patch32_224",
        "vit_base_patch16": "vit_base_patch16_224",
    }
    functions = {"own": "fca.models.own.mean_colour", "pair": "fca.models.pair.structural_similarity"}
    for name in NAMED:
        assert model(name).label() == (with_keywords | of_library | functions).get(name, name)


@pytest.mark.wide
def test_planning_with_every_model_imports_neither_torch_nor_timm(model):
    made = [model(name) for name in NAMED]
    made = [m for m in made if getattr(m, "weights", None) is None]  # tags are known to their libraries
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
    of_functions = {"input_size": 32, "crop_pct": 1.0, "interpolation": "bilinear"}
    assert model("own").identity() == {
        "family": "own",
        "function": "fca.models.own.mean_colour",
        "source": "d6423e044d76a803a697c462f162872bcffd0782393cf63843529bc16c0bfb65",
        **of_functions,
    }
    assert model("pair").identity() == {
        "family": "pair",
        "function": "fca.models.pair.structural_similarity",
        "source": "d26ed5335ca8c160c237e4cdf48a2f0549b43d284c2e01954d31a9e182923e06",
        "images_per_class": 10,
        "seed": 0,
        **of_functions,
    }
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
