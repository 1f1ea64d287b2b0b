import io
import os
import pickle
import tarfile
import zipfile
from argparse import Namespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fca.identity import file_sha256
from fca.models import class_keys
from fca.models.cifar_resnet import CifarResNet
from fca.models.networks import with_weights
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
    save_file({f"{key}_old": value for key, value in module.state_dict().items() if "linear" not in key}, path)
    with pytest.raises(FcaError, match=r"35 missing: conv1.weight, .* 42 unexpected: bn1.bias_old"):
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


def saved(state, path, form):
    """A file as safetensors, today's torch or torch before 1.6 writes it."""
    if form == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=form == "zip")
    return path


def answers_as(module, path):
    classifier = CifarResNet(8, str(path), TEN).build()
    with torch.inference_mode():
        return torch.equal(classifier.module.eval()(images()), module(images()))


@pytest.mark.parametrize("name", ["a.th", "a.tar", "a.bin", "a.ckpt", "a.pth.tar", "a", "a.safetensors", "a.html"])
@pytest.mark.parametrize("form", ["safetensors", "zip", "legacy"])
def test_a_file_is_known_by_its_content_and_not_by_its_name(trained, tmp_path, name, form):
    assert answers_as(trained[0], saved(trained[0].state_dict(), tmp_path / name, form))


@pytest.mark.parametrize(
    ("wrapper", "prefix", "line"),
    [
        ("state_dict", "module.", "read from `state_dict`, prefix `module.` removed"),
        ("model", "", "read from `model`"),
        ("model_ema", "_orig_mod.module.", "read from `model_ema`, prefix `_orig_mod.module.` removed"),
        ("state_dict", "model.", "read from `state_dict`, prefix `model.` removed"),
        ("teacher", "module.backbone.", "read from `teacher`, prefix `module.backbone.` removed"),
        ("ema.state_dict", "encoder.", "read from `ema.state_dict`, prefix `encoder.` removed"),
        ("", "module._orig_mod.", "prefix `module._orig_mod.` removed"),
    ],
)
def test_wrappers_and_prefixes_of_published_files_are_removed_with_a_line(
    trained, tmp_path, caplog, wrapper, prefix, line
):
    """resnet20-12fca82f.th, as akamaster published it: `state_dict`, `module.`, written by torch before 1.6."""
    held = {f"{prefix}{key}": value for key, value in trained[0].state_dict().items()}
    for key in reversed(wrapper.split(".") if wrapper else []):
        held = {key: held, "epoch": 3, "best_prec1": 91.7, "optimizer": {"state": {0: {"step": torch.ones(1)}}}}
    path = saved(held, tmp_path / f"{wrapper}-{prefix}12fca82f.th", "legacy")
    assert answers_as(trained[0], path)
    assert caplog.messages == [f"weights {path.name}: {line}"]
    assert answers_as(trained[0], path)
    assert len(caplog.messages) == 1  # once a process


def test_averaged_weights_come_first_as_in_timm(trained, tmp_path, caplog):
    state = trained[0].state_dict()
    worse = {key: value + 1 for key, value in state.items()}
    path = saved({"model": worse, "state_dict_ema": state, "args": Namespace(lr=0.1)}, tmp_path / "both.ckpt", "zip")
    assert answers_as(trained[0], path)
    assert caplog.messages == ["weights both.ckpt: read from `state_dict_ema`, not from `model`"]
    other = {"conv1.weight": torch.ones(1)}  # of another network
    path = saved({"model": state, "state_dict_ema": other}, tmp_path / "other.ckpt", "zip")
    assert answers_as(trained[0], path)
    assert caplog.messages[1:] == ["weights other.ckpt: read from `model`, not from `state_dict_ema`"]


def averaged(state, count=5):
    """As torch's AveragedModel writes it."""
    return {"n_averaged": torch.tensor(count), **{f"module.{key}": value for key, value in state.items()}}


@pytest.mark.wide
@pytest.mark.parametrize("name", ["model_ema", "state_dict_ema", "ema", "ema_model", "swa_state_dict", "params_ema"])
@pytest.mark.parametrize("other", ["model", "state_dict", "params", None])
def test_averaged_weights_that_count_their_updates_come_first(trained, tmp_path, caplog, name, other):
    """torchvision's references/classification/train.py stores `model` and `model_ema` so."""
    state = trained[0].state_dict()
    worse = {key: value + 1 for key, value in state.items()}
    held = {name: averaged(state), **({other: worse} if other else {}), "optimizer": {"state": {}}, "epoch": 3}
    path = saved(held, tmp_path / "last.pth", "zip")
    assert answers_as(trained[0], path)
    passed_over = f", not from `{other}`" if other else ""
    line = f"read from `{name}`{passed_over}, prefix `module.` removed, not used: n_averaged"
    assert caplog.messages == [f"weights last.pth: {line}"]


def test_mmengine_stores_the_average_as_the_state_dict(trained, tmp_path):
    """Its EMAHook swaps both before it writes them."""
    state = trained[0].state_dict()
    worse = {f"module.{key}": value + 1 for key, value in state.items()}
    held = {"meta": {"mmengine_version": "0.10"}, "state_dict": state, "ema_state_dict": worse}
    assert answers_as(trained[0], saved(held, tmp_path / "mm.pth", "zip"))
    del held["meta"]
    path = saved({**held, "state_dict": {key: value - 1 for key, value in state.items()}}, tmp_path / "o.pth", "zip")
    assert not answers_as(trained[0], path)


@pytest.mark.parametrize("prefix", ["net.", "module.net.", "_orig_mod.model.", "lit_model.backbone.", "student."])
def test_any_common_prefix_is_removed_and_what_lies_beside_it_is_named(trained, tmp_path, caplog, prefix):
    """A LightningModule keeps its criterion beside its network."""
    state = {f"{prefix}{key}": value for key, value in trained[0].state_dict().items()}
    beside = {"criterion.weight": torch.ones(10), "val_acc.tp": torch.ones(1)}
    path = saved({"state_dict": {**state, **beside}, "epoch": 3}, tmp_path / f"{prefix}ckpt", "zip")
    assert answers_as(trained[0], path)
    [line] = caplog.messages
    assert line.endswith(f"prefix `{prefix}` removed, not used: criterion.weight, val_acc.tp")


def test_a_criterion_may_lie_among_the_tensors_of_the_network_and_nothing_else(trained, tmp_path):
    state = trained[0].state_dict()
    path = saved(
        {**state, "criterion.weight": torch.ones(10), "layer1.total_ops": torch.ones(1)}, tmp_path / "c", "zip"
    )
    assert answers_as(trained[0], path)
    path = saved({**state, "layer4.0.conv1.weight": torch.ones(1)}, tmp_path / "d", "zip")
    with pytest.raises(FcaError, match=r"1 unexpected: layer4.0.conv1.weight"):
        CifarResNet(8, str(path), TEN).build()


def test_two_networks_that_fit_equally_are_not_chosen_between(trained, tmp_path):
    state = trained[0].state_dict()
    both = {f"student.{key}": value for key, value in state.items()}
    both |= {f"teacher.{key}": value + 1 for key, value in state.items()}
    path = saved({"state_dict": both}, tmp_path / "two.ckpt", "zip")
    with pytest.raises(FcaError, match=r"this file has several: state_dict.student, state_dict.teacher; next: save"):
        CifarResNet(8, str(path), TEN).build()
    same = {key.replace("student", "teacher"): value for key, value in both.items() if key.startswith("student")}
    assert answers_as(trained[0], saved({"state_dict": {**both, **same}}, tmp_path / "same.ckpt", "zip"))
    ema = {key.replace("student", "ema"): value for key, value in both.items() if key.startswith("student")}
    worse = {key: value + 1 for key, value in both.items() if key.startswith("student")}
    assert answers_as(trained[0], saved({"state_dict": {**worse, **ema}}, tmp_path / "ema.ckpt", "zip"))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("key", ["conv1.weight", "linear.bias", "layer1.0.bn1.running_var"])
def test_weights_that_are_no_numbers_are_refused_by_their_tensor(trained, tmp_path, key, value):
    if key.endswith("running_var") and value == -torch.inf:
        pytest.skip("minus infinity in a buffer may be a mask; the logits are checked too")
    state = {name: of.clone() for name, of in trained[0].state_dict().items()}
    state[key].flatten()[0] = value
    path = saved(state, tmp_path / "broken.pt", "zip")
    with pytest.raises(FcaError, match=rf"broken.pt; allowed: finite numbers; .* are 1 of 44 tensors: {key}; next"):
        CifarResNet(8, str(path), TEN).build()


def test_a_file_whose_averages_were_passed_over_has_another_identity_now(trained, tmp_path):
    state = trained[0].state_dict()
    plain = {"model": state, "model_ema": {key: value + 1 for key, value in state.items()}}
    counted = {"model": state, "model_ema": averaged(state)}
    renamed = {"model": state, "ema_model": state}
    read = {}
    for name, held in {"plain": plain, "counted": counted, "renamed": renamed, "bare": state}.items():
        for form in ("zip", "legacy"):
            path = saved(held, tmp_path / f"{name}-{form}.pt", form)
            read[name, form] = CifarResNet(8, str(path), TEN).identity().get("weights_read")
    assert {name for (name, _), how in read.items() if how == "averaged first"} == {"counted", "renamed"}
    assert len({(name, how) for (name, _), how in read.items()}) == 4, "both forms of a file agree"


def test_a_prefix_of_the_network_itself_stays(tmp_path, caplog):
    make = lambda logits: nn.ModuleDict({"encoder": nn.Linear(2, 2), "model": nn.Linear(2, logits)})  # noqa: E731
    path = saved(make(3).state_dict(), tmp_path / "own.pt", "zip")
    module, _ = with_weights(make, ("model",), str(path), THREE, None)
    assert torch.equal(module["encoder"].weight, torch.load(path)["encoder.weight"])
    assert caplog.messages == []


def test_names_made_to_have_many_readings_are_read_in_time(tmp_path):
    """20 prefixes in any order on each of five keys would be billions of readings."""
    prefixes = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.")
    keys = [f"{prefix * 20}{at}" for at, prefix in enumerate(prefixes)]
    path = saved({key: torch.ones(1) for key in keys}, tmp_path / "many.pt", "zip")
    with pytest.raises(FcaError, match="5 unexpected"):
        CifarResNet(8, str(path), TEN).build(TEN)


def archive(**members):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as pack:
        for name, content in members.items():
            pack.writestr(name.replace("__", "/"), content)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        (b"", "an empty file"),
        (b"\n<!DOCTYPE html><title>Sign in</title>", "an HTML or XML page"),
        (b"\xef\xbb\xbf<?xml version='1.0'?><Error>NoSuchKey</Error>", "an HTML or XML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:12\n", r"a git-lfs pointer.*git lfs pull"),
        (b"no weights at all", "nothing known: it begins with b'no weights at al'"),
        (b"PK\x03\x04 half an archive", "a cut or damaged archive"),
        (
            archive(cat__1="", cat__2="", dog__1="", dog__2=""),
            r"a zip archive of other things \(cat/1, cat/2, dog/1, \.\.\.",
        ),
        (archive(**{"net__data.pkl": "", "net__constants.pkl": ""}), "a TorchScript program, which holds code"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"\x1f\x8b\x08", "a gzip archive"),
        (b"conv1.pt".ljust(257, b"\0") + b"ustar\x0000", "a tar archive"),
        ((10**6).to_bytes(8, "little") + b'{"conv1.weight"', "a cut safetensors file"),
        (b'{"epoch": 3}', "a JSON text"),
    ],
)
@pytest.mark.parametrize("name", ["odd.safetensors", "odd"])
def test_a_file_that_is_something_else_is_named_before_anything_starts(tmp_path, content, looks, name):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FcaError, match=rf"{name}; allowed: a file that holds a state dict, .*; this is {looks}"):
        CifarResNet(8, str(tmp_path / name), TEN).identity()


@pytest.mark.parametrize("form", ["safetensors", "zip", "legacy"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_cut_file_is_one_error(trained, tmp_path, form, share):
    path = saved(trained[0].state_dict(), tmp_path / "cut.th", form)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(FcaError, match=r"cut.th; allowed: a file that holds a state dict.*; next: fetch"):
        CifarResNet(8, str(path), TEN).build()


class Hostile:
    """A pickle that makes a file when it is read by the plain pickle module."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


@pytest.mark.parametrize("name", ["evil.pt", "evil.safetensors", "evil"])
@pytest.mark.parametrize("write", ["zip", "legacy", "pickle 0", "pickle 2", "pickle 5", "wrapped", "named tar"])
def test_no_file_of_weights_runs_code(tmp_path, name, write):
    path, made = tmp_path / name, tmp_path / "made"
    held = {"state_dict": {"conv1.weight": torch.ones(1)}, "model": Hostile(made)}
    if write.startswith("pickle"):
        path.write_bytes(pickle.dumps({"model": Hostile(made)}, protocol=int(write[-1])))
    elif write == "named tar":
        with tarfile.open(path, "w") as pack:
            member = tarfile.TarInfo("pickle")
            member.size = len(content := pickle.dumps(Hostile(made), protocol=2))
            pack.addfile(member, io.BytesIO(content))
    else:
        saved({"ema": held} if write == "wrapped" else held, path, "legacy" if write == "legacy" else "zip")
    for model in (CifarResNet(8, str(path), TEN), CifarResNet(8, str(path), None)):
        with pytest.raises(FcaError, match=rf"model.weights = .*{name}; allowed: a file that holds a state dict"):
            model.build()
    assert not made.exists()


def test_a_pickled_network_is_refused_with_the_way_to_its_state_dict(tmp_path):
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pt")
    line = r"whole.pt; .* this one holds code: .* torch.nn.modules.linear.Linear .*next: ask for its state dict"
    with pytest.raises(FcaError, match=line):
        CifarResNet(8, str(tmp_path / "whole.pt"), TEN).build()
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(FcaError, match=r"list.pt; .*; this one holds a list; next: write it with"):
        CifarResNet(8, str(tmp_path / "list.pt"), TEN).build()
    torch.save({"params": {"w": [1]}, "epoch": 3}, tmp_path / "dict.pt")
    with pytest.raises(FcaError, match=r"dict.pt; .*; this one holds a dict of params, epoch; next: write it with"):
        CifarResNet(8, str(tmp_path / "dict.pt"), TEN).build()


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        (lambda weight: (weight * 10).to(torch.int8), "int8"),  # of a quantised network, whose scales are elsewhere
        (lambda weight: weight.to(torch.complex64), "complex64"),
        (lambda weight: weight.to_sparse(), "sparse_coo"),
        (lambda weight: weight.to("meta"), "meta"),
        (lambda weight: torch.quantize_per_tensor(weight, 0.01, 0, torch.qint8), "qint8"),
    ],
)
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # which files of earlier versions of torch hold
def test_weights_that_torch_would_change_or_could_not_copy_are_refused(tmp_path, changed, kind):
    state = CifarResNet(8, None, None).build(TEN).module.state_dict()
    torch.save({**state, "linear.weight": changed(state["linear.weight"])}, tmp_path / "odd.pt")
    numbers = rf"odd.pt; allowed: floating-point numbers; of other kinds are 1 of \d+ tensors: linear.weight \({kind}\)"
    with pytest.raises(FcaError, match=numbers):
        CifarResNet(8, str(tmp_path / "odd.pt"), TEN).build()


def test_half_precision_is_read(tmp_path):
    network = CifarResNet(8, None, None).build(TEN).module
    state = {name: value.half() if value.is_floating_point() else value for name, value in network.state_dict().items()}
    torch.save(state, tmp_path / "half.pt")
    read = CifarResNet(8, str(tmp_path / "half.pt"), TEN).build().module.linear.weight
    assert torch.equal(read, network.linear.weight.half().float())


def test_weights_of_another_network_are_not_called_weights_without_a_head(tmp_path):
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 10))
    torch.save(other.state_dict(), tmp_path / "other.pt")
    with pytest.raises(FcaError, match=r"other.pt; allowed: the \d+ keys of this network; \d+ missing: conv1.weight"):
        CifarResNet(8, str(tmp_path / "other.pt"), TEN).build()


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
