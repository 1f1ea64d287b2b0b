import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fca.identity import file_sha256
from fca.models import class_keys
from fca.models.cifar_resnet import CifarResNet
from fca.types import FcaError

TEN = [f"class {number}" for number in range(10)]
THREE = ["cat", "dog", "owl"]


def images():
    return torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def trained(tmp_path):
    """A network of ten classes and the file of its weights."""
    torch.manual_seed(3)
    module = CifarResNet(8, None, None).build(TEN).module.eval()
    path = tmp_path / "trained.safetensors"
    save_file(module.state_dict(), path)
    return module, path


def test_weights_from_a_file_answer_as_the_network_that_wrote_it(trained):
    module, path = trained
    classifier = CifarResNet(8, str(path), TEN).build()
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images()), module(images()))
    assert classifier.classes == tuple(TEN)


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"state_dict": state, "epoch": 3}])
def test_a_pt_file_holds_a_state_dict_with_or_without_a_wrapper(trained, tmp_path, wrap):
    module, _ = trained
    torch.save(wrap(module.state_dict()), tmp_path / "trained.pt")
    classifier = CifarResNet(8, str(tmp_path / "trained.pt"), TEN).build()
    with torch.inference_mode():
        assert torch.equal(classifier.module.eval()(images()), module(images()))


@pytest.mark.parametrize("classes", [THREE, TEN])
def test_classes_to_train_get_a_fresh_head_over_the_same_backbone(trained, classes):
    module, path = trained
    built = CifarResNet(8, str(path), TEN).build(classes)
    state = built.module.state_dict()
    kept = {key for key, value in module.state_dict().items() if torch.equal(value, state[key])}
    assert set(state) - kept == {"linear.weight", "linear.bias"}
    assert built.classes == tuple(classes)


def test_without_class_keys_weights_are_an_encoder(trained):
    module, path = trained
    encoder = CifarResNet(8, str(path), None).build()
    encoder.module.eval()
    with torch.inference_mode():
        assert torch.equal(encoder.embed(images()), module.embed(images()))
    assert (encoder.head, encoder.classes) == (None, ())


def test_an_identity_has_the_content_of_the_weights_and_not_their_path(trained, tmp_path):
    _, path = trained
    elsewhere = tmp_path / "other" / "name.safetensors"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(path.read_bytes())
    first, second = CifarResNet(8, str(path), TEN), CifarResNet(8, str(elsewhere), TEN)
    assert first.identity() == second.identity()
    assert first.identity()["weights"] == file_sha256(path)
    assert first.identity()["classes"] == TEN
    assert (first.weights_label(), second.weights_label()) == ("trained.safetensors", "name.safetensors")


def test_classes_mean_nothing_without_weights():
    assert CifarResNet(8, None, TEN).identity() == CifarResNet(8, None, None).identity()
    assert CifarResNet(8, None, TEN).weights_label() is None


def test_weights_of_another_network_are_refused_key_by_key(trained):
    module, path = trained
    with pytest.raises(FcaError, match=r"30 missing: layer1.1.conv1.weight, .*, \.\.\.; next") as caught:
        CifarResNet(14, str(path), TEN).build()
    assert "unexpected" not in str(caught.value)
    save_file({f"module.{key}": value for key, value in module.state_dict().items() if "linear" not in key}, path)
    with pytest.raises(FcaError, match=r"35 missing: conv1.weight, .* 42 unexpected: module.bn1.bias"):
        CifarResNet(8, str(path), None).build()
    state = {**module.state_dict(), "conv1.weight": torch.zeros(16, 1, 3, 3)}
    save_file(state, path)
    with pytest.raises(FcaError, match=r"1 misshaped: conv1.weight: .*\[16, 1, 3, 3\].*\[16, 3, 3, 3\]"):
        CifarResNet(8, str(path), TEN).build()


def test_files_from_before_batch_norms_counted_their_batches_are_read(trained):
    """torch itself passes over it: a count that no prediction needs."""
    module, path = trained
    save_file({key: value for key, value in module.state_dict().items() if "num_batches" not in key}, path)
    with torch.inference_mode():
        assert torch.equal(CifarResNet(8, str(path), TEN).build().module.eval()(images()), module(images()))


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (TEN[:3], r"model.classes = 3 keys; allowed: 10 keys, the logits in .*trained.safetensors"),
        (["cat", "cat"], r"model.classes = \['cat'\]; allowed: different class keys"),
        ([True, "yes"], r"model.classes = \[True\]; allowed: different class keys"),
        ([], r"model.classes = \[\]; allowed: different class keys"),
        ("imagenet", "model.classes = imagenet; allowed: a list of class keys, or one of imagenet-1k"),
    ],
)
def test_class_keys_that_cannot_be_those_of_the_logits_are_refused(trained, classes, said):
    with pytest.raises(FcaError, match=said):
        CifarResNet(8, str(trained[1]), classes).build()


def test_weights_without_a_head_cannot_answer(trained, tmp_path):
    module, _ = trained
    path = tmp_path / "headless.safetensors"
    save_file({key: value for key, value in module.state_dict().items() if "linear" not in key}, path)
    with pytest.raises(FcaError, match=r"headless.safetensors; allowed: weights with a head \(linear\)"):
        CifarResNet(8, str(path), TEN).build()
    assert CifarResNet(8, str(path), TEN).build(THREE).classes == tuple(THREE)


@pytest.mark.parametrize("content", [b"", b"no weights at all", b"PK\x03\x04 half an archive"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_file_that_is_something_else_is_named(tmp_path, content, suffix):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(
        FcaError, match=f"broken{suffix}; allowed: a .safetensors, .pt or .pth file that holds a state dict"
    ):
        CifarResNet(8, str(path), TEN).build()


def test_a_pt_file_runs_no_code(tmp_path):
    torch.save({"weight": np.random.default_rng}, tmp_path / "evil.pt")
    with pytest.raises(FcaError, match=r"evil.pt; .* would run numpy.random.default_rng .*evil.safetensors"):
        CifarResNet(8, str(tmp_path / "evil.pt"), TEN).build()
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(FcaError, match=r"list.pt; allowed: .*state dict; next: write it with"):
        CifarResNet(8, str(tmp_path / "list.pt"), TEN).build()


@pytest.mark.parametrize("depth", [2, 18, 21])
def test_a_depth_must_be_6_n_plus_2(depth):
    with pytest.raises(FcaError, match=f"model.depth = {depth}; allowed: 6 n"):
        CifarResNet(depth, None, None).identity()


def test_the_layers_of_depth_20_are_those_of_the_paper():
    """arXiv:1512.03385, table 6: 0.27 million weights at depth 20, 0.85 at 56, 1.7 at 110."""
    millions = [
        sum(w.numel() for w in CifarResNet(depth, None, None).build(TEN).module.parameters()) / 1e6
        for depth in (20, 32, 44, 56, 110)
    ]
    assert [round(value, 2) for value in millions] == [0.27, 0.46, 0.66, 0.85, 1.73]


def test_shortcuts_have_no_weights_and_halve_by_skipping_pixels():
    network = CifarResNet(8, None, None).build(TEN).module.eval()
    block = network.layer2[0]
    for weight in block.parameters():
        torch.nn.init.zeros_(weight)
    x = torch.rand(1, 16, 8, 8)
    y = block(x)
    assert y.shape == (1, 32, 4, 4)
    assert torch.equal(y[:, 8:24], x[:, :, ::2, ::2])
    assert not y[:, :8].any()
    assert not y[:, 24:].any()


def test_wnids_are_timms_and_in_order():
    keys = class_keys("imagenet-1k")
    assert (keys[0], keys[134], keys[517], keys[999]) == ("n01440764", "n02012849", "n03126707", "n15075141")  # cranes
    assert len(set(keys)) == 1000


def test_the_file_keeps_what_was_saved(trained):
    module, path = trained
    assert load_file(path).keys() == module.state_dict().keys()
