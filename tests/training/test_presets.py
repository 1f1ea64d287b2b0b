"""Every recipe trains the smallest network of its family, on two classes of real scans, far above chance."""

import pandas as pd
import pytest

from fca.cli.options import keys_in, option_files
from fca.store import results

SMALLEST = {
    "resnet50": ["model=test_resnet"],
    "cifar_resnet20": ["model=cifar_resnet20"],
    "vgg16": ["model=timm", "model.name=vgg11", "+model.kwargs.mlp_ratio=0.05", "model.input_size=32"],
    "inception_v3": ["model=torchvision", "model.name=googlenet", "model.input_size=32"],
    "shufflenet_v2_x1_0": ["model=torchvision", "model.name=shufflenet_v2_x0_5", "model.input_size=32"],
    "squeezenet1_0": ["model=torchvision", "model.name=squeezenet1_0", "model.input_size=32"],
    "convnextv2_base": ["model=test_convnext2"],
    "swinv2_base": [
        *("model=timm", "model.name=swinv2_tiny_window8_256", "model.input_size=64", "+model.kwargs.window_size=4"),
        *("+model.kwargs.embed_dim=24", "+model.kwargs.depths=[1,1,1,1]", "+model.kwargs.num_heads=[1,2,4,8]"),
    ],
    "vit_base_patch16": ["model=test_vit", "+model.kwargs.patch_size=8"],
    "dinov2_vit_b14": ["model=test_vit", "+model.kwargs.patch_size=8"],
    "efficientnetv2_m": ["model=test_efficientnet"],
    "efficientnet_b0": ["model=test_efficientnet"],
    "mobilenetv3_small": ["model=timm", "model.name=mobilenetv3_small_050", "model.input_size=64"],
    "mobilevit_s": ["model=timm", "model.name=mobilevit_xxs", "model.input_size=64"],
}
RECIPES = [file for file in option_files("recipe").values() if file.parent.name == "recipe"]
OWN = [file.stem for file in RECIPES if keys_in(file).get("defaults", [None])[0] == "shared"]


def test_every_family_has_a_network_small_enough_to_try():
    assert {name.removeprefix("fca_") for name in OWN} == {*SMALLEST, "default"}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in OWN if name != "default"])
def test_a_recipe_trains_its_family_far_above_chance(recipe, fca):
    length = ["recipe.steps=600", "recipe.batch_size=32", "recipe.precision=32-true"]  # 16-mixed needs a GPU
    words = [f"recipe={recipe}", *length, *SMALLEST[recipe.removeprefix("fca_")]]
    code, out, err = fca(*words, "subset.classes=[0,1]", "logger=none")
    assert code == 0, out + err
    [row] = results("outputs", "task == 'train'").to_dict("records")
    assert pd.isna(row["flag"]), row["flag"]
    assert row["top1_low"] > 0.75, f"{row['top1']:.3f} of 72 scans, where chance is 0.5"
