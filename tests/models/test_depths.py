"""`model.depth`: a network before its widening layer, and the features of every depth from one pass."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.models import timm_models
from fca.models.depths import EveryDepth, columns_of_depth, has_widening
from fca.models.export import compare_logits, export_content, logits_function
from fca.models.networks import restored
from fca.models.timm_models import NOT_WIDENED, _networks_with_widening, _registered
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError

declare_torchvision_ops()
import timm  # noqa: E402

from fca.models.timm_models import _timm  # noqa: E402

THREE = ["cat", "dog", "owl"]


@pytest.fixture
def weights(tmp_path):
    """A whole network in a file, whose batch norms have seen images, so that none of them is the identity."""
    torch.manual_seed(0)
    network = timm.create_model("test_efficientnet", num_classes=1000)
    with torch.no_grad():
        network.train()(torch.rand(8, 3, 64, 64))
    save_file(network.state_dict(), tmp_path / "whole.safetensors")
    return f"model.weights={tmp_path}/whole.safetensors", network.eval()


def images(count=3):
    return torch.rand(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def by_hand(network, pictures):
    """Means over the feature map of the last stage, and over the widened one."""
    maps = network.blocks(network.bn1(network.conv_stem(pictures)))
    return maps.mean((2, 3)), network.bn2(network.conv_head(maps)).mean((2, 3))


def test_a_cut_network_gives_the_mean_over_its_last_stage(model, weights):
    word, network = weights
    encoder = model("test_efficientnet", word, "model.depth=cut", "model.input_size=64").build()
    assert (encoder.classes, encoder.head) == ((), None)
    module = encoder.module.eval()
    with torch.inference_mode():
        features, expected = encoder.embed(images()), by_hand(network, images())[0]
        given = module(images())
    assert features.shape == (3, 64)
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)  # float32, a mean over 4 numbers
    assert torch.equal(given, features)


def test_a_cut_network_of_a_package_s_weights_has_320_features(model):
    made = model("efficientnet_lite0", "model.weights=package", "model.depth=cut", "model.input_size=64")
    whole = model("efficientnet_lite0", "model.weights=package", "model.input_size=64").build()
    encoder = made.build()
    encoder.module.eval(), whole.module.eval()
    with torch.inference_mode():
        features, (expected, _) = encoder.embed(images()), by_hand(whole.module, images())
    assert (encoder.classes, features.shape) == ((), (3, 320))
    torch.testing.assert_close(features, expected, rtol=1e-5, atol=1e-6)


def test_every_depth_is_both_side_by_side_from_one_pass(model, weights):
    word, _ = weights
    cut, whole, both = (
        model("test_efficientnet", word, "model.input_size=64", f"model.depth={depth}", "model.classes=null").build()
        for depth in ("cut", "whole", "all")
    )
    passes = []
    both.module.network.blocks.register_forward_hook(lambda *_: passes.append(1))
    for one in (cut, whole, both):
        one.module.eval()
    with torch.inference_mode():
        features = both.embed(images())
        assert torch.equal(features, torch.cat([cut.embed(images()), whole.embed(images())], dim=1))
        assert torch.equal(features[:, columns_of_depth(both, "cut")], cut.embed(images()))
        assert torch.equal(features[:, columns_of_depth(both, "whole")], whole.embed(images()))
    assert len(passes) == 1
    assert (both.classes, both.head, features.shape) == ((), None, (3, 64 + 256))


def test_a_cut_network_trains_keeps_its_backbone_and_is_restored(model, weights, tmp_path):
    word, network = weights
    made = model("test_efficientnet", word, "model.depth=cut", "model.input_size=64")
    classifier = made.build(THREE)
    assert classifier.head.in_features == 64
    assert torch.equal(classifier.module.conv_stem.weight, network.conv_stem.weight)
    assert not any(name.startswith(("conv_head", "bn2")) for name in classifier.module.state_dict())

    module = classifier.module.train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(module(images()), torch.tensor([0, 1, 2]))
        optimiser.zero_grad()
        loss.backward()
        assert all(weight.grad is not None for weight in module.parameters())
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]

    with torch.inference_mode():
        logits = module.eval()(images())
        assert torch.equal(logits, classifier.head(classifier.embed(images())))
    save_file(module.state_dict(), tmp_path / "trained.safetensors")
    again = restored(made, tmp_path / "trained.safetensors", THREE, None)
    with torch.inference_mode():
        assert torch.equal(again.module.eval()(images()), logits)


@pytest.mark.slow
def test_a_cut_network_in_a_file_gives_the_same_logits(model, weights):
    pytest.importorskip("onnxruntime")
    word, _ = weights
    classifier = model("test_efficientnet", word, "model.depth=cut", "model.input_size=64").build(THREE)
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    found = logits_function(export_content(classifier, "onnx"), "onnx")(pixels)
    with torch.inference_mode():
        unit = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255
        expected = classifier.module.eval()(classifier.normalise(unit)).numpy()
    assert compare_logits(expected, found).largest < 1e-3  # raises where a class differs


def test_depth_enters_label_and_identity_only_where_it_is_not_whole(model):
    whole, cut = model("test_efficientnet"), model("test_efficientnet", "model.depth=cut")
    assert "depth" not in whole.identity()
    assert cut.identity() == {**whole.identity(), "depth": "cut"}
    assert (whole.label(), cut.label()) == ("test_efficientnet", "test_efficientnet depth=cut")
    every = model("efficientnet_lite0", "model.weights=package", "model.depth=all", "model.input_size=160")
    assert (every.label(), every.identity()["depth"]) == ("tf_efficientnet_lite0 depth=all", "all")
    stem = model("resnet18_cifar", "+model.kwargs.drop_rate=0.1").label()
    assert stem == "resnet18 stem=cifar drop_rate=0.1", "as before there were depths"


def test_classes_of_logits_that_a_cut_network_does_not_have_are_not_given_to_it(model, weights):
    word, _ = weights
    assert model("test_efficientnet", word, "model.depth=cut", "model.classes=imagenet-1k").build().classes == ()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=resnet18", "model.depth=cut"], "model.depth = cut; allowed: whole for resnet18: no 1x1 layer"),
        (["model.name=mobilenetv3_small_100", "model.depth=all"], "whole for mobilenetv3_small_100: no 1x1 layer"),
        (["model.name=mobilenetv1_100", "model.depth=cut"], "whole for mobilenetv1_100: no 1x1 layer"),
        (["model.name=test_efficientnet", "model.depth=half"], "model.depth = half; allowed: whole, cut, all"),
        (["model.name=test_efficientnet", "model.depth=all"], "model.depth = all; allowed: whole or cut to train"),
        (
            ["model.name=test_efficientnet", "model.depth=cut", "model.projection=true"],
            "model.projection = True; allowed: false with model.depth=cut",
        ),
    ],
)
def test_a_depth_that_a_network_does_not_have_is_refused_while_planning(model, overrides, said):
    with pytest.raises(FcaError, match=said) as caught:
        model("timm", *overrides).identity()
    assert "\n" not in str(caught.value)


def test_every_depth_at_once_is_not_trained(model, weights):
    word, _ = weights
    with pytest.raises(FcaError, match=r"model\.depth = all; allowed: whole or cut to train.*; next: set"):
        model("test_efficientnet", word, "model.depth=all").build(THREE)


def test_a_network_that_turns_out_without_the_layer_is_refused_when_it_is_built(model, monkeypatch):
    """As if a later timm built it in another way."""
    monkeypatch.setattr(timm_models, "_networks_with_widening", lambda: frozenset({"mobilenetv1_025"}))
    made = model("mobilenetv1_025", "model.depth=cut")
    with pytest.raises(FcaError, match=r"model\.depth = cut; allowed: whole for mobilenetv1_025: no 1x1 layer"):
        made.build(THREE)


def test_columns_are_those_of_a_network_with_every_depth(model, weights):
    word, _ = weights
    both = model("test_efficientnet", word, "model.depth=all").build()
    assert columns_of_depth(both, "whole") == slice(64, 320)
    with pytest.raises(FcaError, match="depth = all; allowed: cut, whole"):
        columns_of_depth(both, "all")
    cut = model("test_efficientnet", word, "model.depth=cut").build()
    with pytest.raises(FcaError, match=r"next: build the model with model\.depth=all"):
        columns_of_depth(cut, "cut")


def test_depths_are_known_without_building(model):
    assert model("efficientnet_lite0").depths() == ("cut", "whole")
    assert model("mobilenetv2").depths() == ("cut", "whole")
    assert model("mobilenetv3_small").depths() == model("resnet18").depths() == ("whole",)


@pytest.mark.slow
def test_the_networks_that_can_be_cut_are_those_that_timm_builds_with_the_layer():
    """Read off the text of timm's file while planning; here off the networks themselves."""
    assert _networks_with_widening() | NOT_WIDENED <= _registered()
    for name in sorted(_networks_with_widening() | NOT_WIDENED):
        with torch.device("meta"):
            network = _timm().create_model(name)
            widened = has_widening(network)
            assert widened == (name not in NOT_WIDENED), name
            if widened:
                assert (
                    EveryDepth(network).widths["cut"] < EveryDepth(network).widths["whole"]
                    or name == "mobilenetv1_100h"
                )
