import json
from argparse import Namespace

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import save_file

from fca.models.timm_models import _registered
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError

declare_torchvision_ops()
import timm  # noqa: E402
from torchvision.transforms.v2.functional import normalize  # noqa: E402

from fca.models.timm_models import _geometry_and_normalisation, network  # noqa: E402

THREE = ["cat", "dog", "owl"]


def at_160(count):
    return torch.rand(count, 3, 160, 160)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """timm's hub without a network: what has been fetched lies in a cache of our own."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))

    def fetch(name):
        """As if this network had been fetched; returns the network."""
        torch.manual_seed(1)
        network = timm.create_model(name)
        folder = tmp_path / f"models--timm--{name}" / "snapshots" / "0" / "model.safetensors"
        folder.parent.mkdir(parents=True)
        save_file(network.state_dict(), folder)
        (folder.parents[2] / "refs").mkdir()
        (folder.parents[2] / "refs" / "main").write_text("0")
        return network.eval()

    return fetch


@pytest.mark.parametrize("name", ["levit_128s", "deit_tiny_distilled_patch16_224"])
def test_where_logits_are_a_mean_over_heads_they_are_their_own_features(model, name):
    classifier = model("timm", f"model.name={name}").build(THREE)
    image = torch.rand(1, 3, 224, 224)
    module = classifier.module.eval()
    with torch.inference_mode():
        assert torch.equal(classifier.head(classifier.embed(image)), module(image))


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "smaller"),
    [
        ("resnetv2_50", "channels=[32,64,128,256]"),
        ("mobilenetv4_conv_small_050", "drop_rate=0"),
        ("vgg11", "mlp_ratio=0.05"),
        ("swinv2_tiny_window8_256", "embed_dim=24"),
    ],
)
def test_pooled_features_and_head_give_the_logits_in_other_families_too(model, name, smaller):
    classifier = model("timm", f"model.name={name}", f"+model.kwargs.{smaller}").build(THREE)
    image = torch.rand(1, 3, classifier.input_size, classifier.input_size)
    module = classifier.module.eval()
    with torch.inference_mode():
        features = classifier.embed(image)
        assert torch.equal(classifier.head(features), module(image))
    assert features.shape[1] > 3


def test_the_input_is_what_timm_has_on_record_where_the_yaml_says_null(model):
    def found(name):
        made = model("timm", f"model.name={name}")
        with torch.device("meta"):  # no memory for weights
            return _geometry_and_normalisation(made, network(made, 3))

    geometry, normalise = found("vit_tiny_patch16_224.augreg_in21k")
    record = timm.get_pretrained_cfg("vit_tiny_patch16_224.augreg_in21k")
    assert geometry.key == "224-248-bicubic"
    assert (normalise.mean, normalise.std) == (record.mean, record.std)
    assert found("tf_efficientnetv2_b3.in21k_ft_in1k")[0].key == "240-266-bicubic-squash"


def test_what_the_yaml_says_overrules_the_record(model):
    given = ["model.input_size=64", "model.crop_pct=0.8", "model.interpolation=lanczos", "model.mean=[0.1,0.2,0.3]"]
    classifier = model("test_vit", *given).build(THREE)
    assert classifier.geometry.key == "64-80-lanczos"
    assert classifier.normalise.mean == (0.1, 0.2, 0.3)
    assert classifier.normalise.std == (0.5, 0.5, 0.5)


def test_normalise_is_torchvisions(model):
    images = torch.rand(2, 3, 5, 5)
    normalise = model("test_byobnet").build(THREE).normalise
    torch.testing.assert_close(normalise(images), normalize(images, normalise.mean, normalise.std))


def test_resnet18_of_width_16_keeps_32_pixels_and_has_16_channels_throughout(model):
    made = model("resnet18_cifar", "+model.kwargs.channels=[16,32,64,128]")
    assert made.label() == "resnet18 stem=cifar channels=16-32-64-128"
    network = made.build(THREE).module
    # 3x3 convolutions, batch norms of 2 weights a channel, 1x1 shortcuts where channels change, one linear layer
    stage = [4 * 9 * 16 * 16 + 8 * 16]
    for inputs, outputs in ((16, 32), (32, 64), (64, 128)):
        stage.append(9 * inputs * outputs + 3 * 9 * outputs**2 + 8 * outputs + inputs * outputs + 2 * outputs)
    assert sum(w.numel() for w in network.parameters()) == 9 * 3 * 16 + 2 * 16 + sum(stage) + 128 * 3 + 3
    assert network.layer1(network.maxpool(network.conv1(torch.rand(1, 3, 32, 32)))).shape == (1, 16, 32, 32)


def test_a_cifar_stem_without_keywords_leaves_the_rest_as_it_is(model):
    ours = model("resnet18_cifar").build(THREE).module.state_dict()
    timms = timm.create_model("resnet18", num_classes=3).state_dict()
    assert {key: v.shape for key, v in ours.items() if key != "conv1.weight"} == {
        key: v.shape for key, v in timms.items() if key != "conv1.weight"
    }
    assert ours["conv1.weight"].shape == (64, 3, 3, 3)


def test_keywords_change_the_label_and_the_identity(model):
    plain, dropped = model("test_vit"), model("test_vit", "+model.kwargs.drop_rate=0.1")
    assert dropped.label() == "test_vit drop_rate=0.1"
    assert dropped.identity() == {**plain.identity(), "kwargs": {"drop_rate": 0.1}}


def test_names_read_off_files_are_the_names_that_timm_registers():
    """Quick planning rests on this: a name that timm knows is never looked up by importing it."""
    assert set(timm.list_models()) <= _registered()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=resnett18"], r"model.name = resnett18; allowed: one of timm's \d+ names, such as resnet18"),
        (["model.name=resnet18.no_such"], r"model.name = resnet18.no_such; allowed: .*resnet18.a1_in1k"),
        (["model.name=test_vit", "model.stem=cifar10"], "model.stem = cifar10; allowed: timm, cifar"),
        (["model.name=test_vit", "model.mean=[0.5]"], r"model.mean = \[0.5\]; allowed: three numbers"),
        (["model.name=hgnet_base.no"], "model.name = hgnet_base.no; allowed: .*hgnet_base.ssld_in1k"),
        (["model.name=efficientnetv2_m", "model.weights=pretrained"], "model.weights = pretrained; allowed: no pretr"),
        (["model.name=resnet18", "model.stem=cifar", "model.weights=pretrained"], "model.stem = cifar"),
        (["model.name=resnet18", "model.weights=weights.bin"], "model.weights = weights.bin; .*this file is not there"),
        (["model.name=resnet18", "model.weights=none.pt"], "model.weights = none.pt; .* this file is not there"),
    ],
)
def test_what_cannot_be_is_refused_while_planning(model, overrides, said):
    with pytest.raises(FcaError, match=said):
        model("timm", *overrides).identity()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=test_vit", "model.stem=cifar"], "model.stem = cifar; allowed: timm, for test_vit"),
        (["model.name=test_vit", "+model.kwargs.widht=3"], "'widht': 3}; allowed: what timm's test_vit takes .*widht"),
        (
            ["model.name=inception_v3", "model.input_size=32"],
            "{'input_size': 32}; allowed: what timm's .*[Kk]ernel size",
        ),
    ],
)
def test_what_timm_refuses_is_said_in_one_line(model, overrides, said):
    with pytest.raises(FcaError, match=said) as caught:
        model("timm", *overrides).build(THREE)
    assert "\n" not in str(caught.value)


def test_pretrained_weights_enter_the_identity_by_their_resolved_tag(model):
    untagged = model("test_vit", "model.weights=pretrained")
    tagged = model("test_vit", "model.weights=pretrained", "model.name=test_vit.r160_in1k")
    assert untagged.identity() == tagged.identity()
    assert untagged.identity()["weights"] == "test_vit.r160_in1k"
    assert untagged.identity()["name"] == "test_vit"
    assert (untagged.label(), untagged.weights_label()) == ("test_vit", "r160_in1k")
    json.dumps(untagged.identity(), allow_nan=False)


def test_pretrained_weights_that_cannot_be_fetched_are_named_with_the_way_out(model, hub):
    with pytest.raises(FcaError, match=r"timm/test_vit.r160_in1k/resolve/main/model.safetensors .* model.weights=PATH"):
        model("test_vit", "model.weights=pretrained").build(THREE)


def test_pretrained_weights_answer_in_wnids(model, hub):
    original = hub("test_byobnet.r160_in1k")
    classifier = model("timm", "model.name=test_byobnet", "model.weights=pretrained").build()
    assert classifier.classes[:2] == ("n01440764", "n01443537")
    assert len(classifier.classes) == 1000
    images = at_160(2)
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images), original(images))


def test_pretrained_weights_keep_their_backbone_under_a_fresh_head(model, hub):
    original = hub("test_byobnet.r160_in1k")
    made = model("timm", "model.name=test_byobnet", "model.weights=pretrained")
    thousand = [str(number) for number in range(1000)]
    for classes in (THREE, thousand):
        torch.manual_seed(0)
        classifier = made.build(classes)
        state = classifier.module.eval().state_dict()
        kept = {key for key, value in original.state_dict().items() if torch.equal(value, state[key])}
        assert set(state) - kept == {"head.fc.weight", "head.fc.bias"}
        assert classifier.head.out_features == len(classes)


def test_pretrained_weights_need_a_class_key_for_every_logit(model, hub):
    hub("test_byobnet.r160_in1k")
    with pytest.raises(FcaError, match=r"model\.classes = 2 keys; allowed: 1000 keys, the logits"):
        model("timm", "model.name=test_byobnet", "model.weights=pretrained", "model.classes=[a,b]").build()


def test_a_clip_tower_is_an_encoder_before_or_behind_its_projection(model, hub):
    name = "vit_xsmall_patch16_clip_224.tinyclip_yfcc15m"
    original = hub(name)
    image = torch.rand(1, 3, 224, 224)
    with torch.inference_mode():
        pooled = original.forward_head(original.forward_features(image), pre_logits=True)
        for projection, expected in (("false", pooled), ("true", original(image))):
            overrides = [f"model.name={name}", "model.weights=pretrained", f"model.projection={projection}"]
            encoder = model("timm", *overrides).build()
            assert (encoder.classes, encoder.head) == ((), None)
            encoder.module.eval()
            assert torch.equal(encoder.embed(image), expected)


def test_a_projection_is_also_read_from_a_file(model, tmp_path):
    tower = timm.create_model("test_byobnet").eval()
    save_file(tower.state_dict(), tmp_path / "tower.safetensors")
    overrides = ["model.name=test_byobnet", f"model.weights={tmp_path}/tower.safetensors", "model.projection=true"]
    encoder = model("timm", *overrides).build()
    assert (encoder.classes, encoder.head) == ((), None)
    images = at_160(2)
    encoder.module.eval()
    with torch.inference_mode():
        assert torch.equal(encoder.embed(images), tower(images))


def test_a_checkpoint_of_timm_s_own_training_gives_its_averaged_weights(model, tmp_path, caplog):
    """As train.py writes it: arguments, optimiser, weights of a parallel network, and their average."""
    tower, average = (timm.create_model("test_resnet", num_classes=3).eval() for _ in range(2))
    held = {"epoch": 9, "arch": "test_resnet", "args": Namespace(lr=0.1), "optimizer": {"state": {}}, "metric": 80.1}
    held |= {"state_dict": {f"module.{key}": value for key, value in average.state_dict().items()}}
    held |= {"state_dict_ema": {f"module.{key}": value for key, value in tower.state_dict().items()}}
    path = tmp_path / "model_best.pth.tar"
    torch.save(held, path)
    made = model("timm", "model.name=test_resnet", f"model.weights={path}", f"model.classes=[{','.join(THREE)}]")
    classifier, images = made.build(), at_160(2)
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images), tower(images))
    line = "read from `state_dict_ema`, not from `state_dict`, prefix `module.` removed"
    assert caplog.messages == [f"weights model_best.pth.tar: {line}"]
