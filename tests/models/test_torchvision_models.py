import hashlib
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fca.models.networks import fit_weights
from fca.models.torchvision_models import _registered
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError

declare_torchvision_ops()
import torchvision.models as tv  # noqa: E402

from fca.models.torchvision_models import _geometry_and_normalisation, record_of, tidy  # noqa: E402

TWO = ["left", "right"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """torch's hub without a network: `fetch(name, network)` puts weights where torch would have put them."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.hub, "download_url_to_file", no_network)

    def fetch(name, network):
        file = tmp_path / "checkpoints" / tv.get_model_weights(name).DEFAULT.url.rpartition("/")[2]
        file.parent.mkdir(exist_ok=True)
        torch.save(network.state_dict(), file)
        return network.eval()

    return fetch


def no_network(*_, **__):
    raise OSError("Name or service not known")


def test_the_names_read_off_files_are_the_names_that_torchvision_lists():
    assert _registered() == set(tv.list_models(module=tv))


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", ["alexnet", "mnasnet0_5", "regnet_x_400mf", "densenet121", "googlenet", "mobilenet_v2"]
)
def test_a_head_of_two_is_fitted_to_every_family_and_logits_are_head_of_features(model, name):
    classifier = model("torchvision", f"model.name={name}", "model.input_size=64").build(TWO)
    module = classifier.module.eval()
    images = classifier.normalise(torch.rand(1, 3, 64, 64))
    with torch.inference_mode():
        assert torch.equal(classifier.head(classifier.embed(images)), module(images))
    assert isinstance(classifier.head, nn.Linear)
    assert classifier.head.out_features == 2


def test_networks_with_auxiliary_heads_train_on_plain_logits(model):
    module = model("torchvision", "model.name=googlenet").build(TWO).module
    logits = module.train()(torch.rand(2, 3, 64, 64))
    assert logits.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("resnet18", "224-256-bilinear"),
        ("resnet50", "224-232-bilinear"),
        ("resnet50.IMAGENET1K_V1", "224-256-bilinear"),
        ("efficientnet_b1", "240-255-bilinear"),
        ("swin_t", "224-232-bicubic"),
        ("maxvit_t", "224-224-bicubic"),
    ],
)
def test_the_input_is_that_of_the_weights_own_transforms(model, name, key):
    geometry, _ = _geometry_and_normalisation(model("torchvision", f"model.name={name}"), record_of(name))
    assert geometry.key == key


def test_what_the_yaml_says_overrules_the_record(model):
    given = ["model.input_size=64", "model.crop_pct=0.8", "model.interpolation=lanczos"]
    assert model("torchvision", "model.name=mobilenet_v2", *given).build(TWO).geometry.key == "64-80-lanczos"


def test_every_record_is_met_to_the_pixel():
    """The share that is kept is a rounded quotient; the side it stands for is not rounded with it."""
    from fca.models import resize_crop

    for name in tv.list_models(module=tv):
        for record in tv.get_model_weights(name):
            preset = record.transforms()
            crop, side = preset.crop_size[0], preset.resize_size[0]
            assert resize_crop(crop, side, None, None, "bilinear").key == f"{crop}-{side}-bilinear"


def test_published_weights_answer_as_torchvision_does_in_wnids(model, hub):
    torch.manual_seed(0)
    original = hub("shufflenet_v2_x0_5", tv.shufflenet_v2_x0_5())
    made = model("torchvision", "model.name=shufflenet_v2_x0_5", "model.weights=pretrained")
    classifier = made.build()
    assert (classifier.classes[0], len(classifier.classes)) == ("n01440764", 1000)
    images = torch.rand(2, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images), original(images))
    assert (made.label(), made.weights_label()) == ("shufflenet_v2_x0_5", "IMAGENET1K_V1")
    assert made.identity()["weights"] == "shufflenet_v2_x0_5.IMAGENET1K_V1"
    json.dumps(made.identity(), allow_nan=False)


def test_published_weights_keep_their_backbone_under_a_fresh_head(model, hub):
    original = hub("shufflenet_v2_x0_5", tv.shufflenet_v2_x0_5())
    built = model("torchvision", "model.name=shufflenet_v2_x0_5", "model.weights=pretrained").build(TWO)
    state = built.module.state_dict()
    kept = {key for key, value in original.state_dict().items() if torch.equal(value, state[key])}
    assert set(state) - kept == {"fc.weight", "fc.bias"}


def test_published_weights_of_inception_leave_their_auxiliary_head_behind(model, hub):
    original = hub("googlenet", tv.googlenet(aux_logits=True, transform_input=True, init_weights=False))
    classifier = model("torchvision", "model.name=googlenet", "model.weights=pretrained", "model.input_size=64").build()
    images = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images), original(images))


def test_keys_of_old_densenet_files_are_read():
    network = tv.DenseNet(growth_rate=4, block_config=(2, 2), num_init_features=8, num_classes=3)
    old = {
        key.replace("norm1", "norm.1")
        .replace("norm2", "norm.2")
        .replace("conv1.", "conv.1.")
        .replace("conv2.", "conv.2.")
        if "denselayer" in key
        else key: value
        for key, value in network.state_dict().items()
    }
    found = tidy(old)
    assert found.keys() == network.state_dict().keys() != old.keys()
    assert all(torch.equal(found[key], value) for key, value in network.state_dict().items())


def test_keys_of_old_vision_transformer_files_are_read():
    """torchvision renames them on loading: the two layers of a block were once called linear_1 and linear_2."""
    network = tv.VisionTransformer(32, 16, 1, 1, 8, 16, num_classes=3)
    old = {
        key.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): torch.rand_like(value)
        for key, value in network.state_dict().items()
    }
    assert sum("linear_" in key for key in old) == 4
    fit_weights(network, old, (), "old.pth")
    name = "encoder.layers.encoder_layer_0.mlp"
    assert torch.equal(network.get_submodule(name)[3].weight, old[f"{name}.linear_2.weight"])


def test_a_network_that_asks_for_the_version_of_its_file_is_read_from_one_that_has_none(model, tmp_path):
    trained = model("torchvision", "model.name=mnasnet0_5").build(TWO).module.eval()
    save_file(trained.state_dict(), tmp_path / "best.safetensors")
    given = ["model.name=mnasnet0_5", f"model.weights={tmp_path}/best.safetensors", "model.classes=[left,right]"]
    images = torch.rand(1, 3, 64, 64)
    with torch.inference_mode():
        again = model("torchvision", *given, "model.input_size=64").build().module.eval()
        assert torch.equal(again(images), trained(images))


def test_squeezenets_features_are_its_logits_or_the_mean_of_its_last_map(model, tmp_path):
    network = tv.squeezenet1_0().eval()
    save_file(network.state_dict(), tmp_path / "a.safetensors")
    images = torch.rand(1, 3, 64, 64)
    given = [f"model.weights={tmp_path}/a.safetensors", "model.input_size=64"]
    classifier, encoder = (
        model("squeezenet1_0", *given).build(),
        model("squeezenet1_0", *given, "model.classes=null").build(),
    )
    classifier.module.eval()
    encoder.module.eval()
    with torch.inference_mode():
        assert torch.equal(classifier.embed(images), network(images))
        torch.testing.assert_close(encoder.embed(images), network.features(images).mean((2, 3)))
    assert (encoder.head, encoder.classes) == (None, ())


def test_weights_that_cannot_be_fetched_are_named_with_the_way_out(model, hub):
    said = (
        r"resnet18-f37072fd.pth; .*https://download.pytorch.org/models/resnet18-f37072fd.pth here .* model.weights=PATH"
    )
    with pytest.raises(FcaError, match=said):
        model("torchvision", "model.name=resnet18", "model.weights=pretrained").build(TWO)


def test_fetched_weights_must_be_what_their_name_says(tmp_path, monkeypatch):
    from fca.models.checkpoints import fetched

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    content = tmp_path / "net-00000000.pth"
    content.write_bytes(b"weights")
    with pytest.raises(FcaError, match=r"net-00000000.pth; allowed: weights that can be fetched .*invalid hash value"):
        fetched(content.as_uri())
    good = tmp_path / f"net-{hashlib.sha256(b'weights').hexdigest()[:8]}.pth"
    good.write_bytes(b"weights")
    assert fetched(good.as_uri()).read_bytes() == b"weights"
    good.unlink()
    assert fetched(good.as_uri()).read_bytes() == b"weights", "fetched twice"


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=resnett18"], r"model.name = resnett18; allowed: one of torchvision's 80 names, such as resnet18"),
        (
            ["model.name=resnet18.V9"],
            r"model.name = resnet18.V9; allowed: resnet18.IMAGENET1K_V1; next: correct the tag",
        ),
        (["model.name=resnet18", "model.weights=none.pth"], "model.weights = none.pth; .* this file is not there"),
    ],
)
def test_what_cannot_be_is_refused_while_planning(model, overrides, said):
    with pytest.raises(FcaError, match=said):
        model("torchvision", *overrides).identity()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=resnet18", "+model.kwargs.widht=3"], "'widht': 3}; allowed: what torchvision's resnet18 takes"),
        (["model.name=squeezenet1_1", "model.input_size=8"], "'input_size': 8}; allowed: .*too small"),
        (["model.name=resnet18", "+model.kwargs.num_classes=7"], "allowed: .*num_classes is set by fca"),
        (["model.name=googlenet", "+model.kwargs.aux_logits=true"], "allowed: .*aux_logits is set by fca"),
        (["model.name=resnet18", "+model.kwargs.weights=DEFAULT"], "allowed: .*weights is set by fca"),
    ],
)
def test_what_torchvision_refuses_is_said_in_one_line(model, overrides, said):
    with pytest.raises(FcaError, match=said) as caught:
        model("torchvision", *overrides).build(TWO)
    assert "\n" not in str(caught.value)
