"""An exported ONNX file answers as it was judged: in fp32 as the network, in int8 at a loss that is measured first."""

import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch
from PIL import Image

from fca.cli import export, predict
from fca.cli import run as run_door
from fca.cli.export_int8 import allowed_loss, in_int8, loss_between, loss_on
from fca.cli.trained import Exported, Trained
from fca.models.export import export_content
from fca.models.onnx_file import OnnxFile
from fca.models.stored import StoredRun
from fca.stats.comparison import paired_interval
from fca.store import Store, results
from fca.types import FcaError
from tests.conftest import SMALL

STEPS = ["recipe.epochs=3", "recipe.batch_size=16", "recipe.lr=0.01", "limit=60", "dataset.val.share=0.3"]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A store with one training of a few seconds, of three digits."""
    folder = tmp_path_factory.mktemp("onnx") / "outputs"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        patch.setattr("sys.argv", ["fca"])
        assert run_door.main(["subset.classes=[1,4,7]", f"outputs={folder}", *SMALL, *STEPS]) == 0
    return folder


@pytest.fixture(scope="module")
def trained(outputs):
    [row] = Store(outputs).rows("task == 'train'").to_dict("records")
    return Trained.of(str(outputs), row["run_id"], "best")


@pytest.fixture(scope="module")
def net(outputs, trained, tmp_path_factory):
    """The file in fp32."""
    path = tmp_path_factory.mktemp("files") / "net.onnx"
    assert export.main([f"run={trained.row['run_id']}", f"outputs={outputs}", f"out={path}"]) == 0
    return path


@pytest.fixture
def photos(trained, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    data = trained.images()
    for at in data.rows("test")[:12]:
        Image.fromarray(data.read(int(at))).save(folder / f"{at:04}.png")
    return folder


def predicted(fca, *words):
    """The table that `fca predict` wrote, in the folder of the fixture `fca`."""
    assert predict.main([*map(str, words), "--force"]) == 0
    return pd.read_csv("predictions.csv")


def probabilities(frame):
    return frame[[name for name in frame if name.startswith("p_")]].to_numpy()


@pytest.mark.wide
def test_a_file_answers_as_its_training_and_as_onnxruntime_by_hand(fca, outputs, trained, net, photos):
    by_run = predicted(fca, photos, f"run={trained.row['run_id']}", f"outputs={outputs}")
    by_file = predicted(fca, photos, f"file={net}")
    assert by_file["predicted"].tolist() == by_run["predicted"].tolist()
    np.testing.assert_allclose(probabilities(by_file), probabilities(by_run), atol=1e-5)

    about = json.loads((net.parent / "net.onnx.json").read_text())
    side = about["geometry"]["crop"]
    images = [Image.open(path).convert("RGB").resize((side, side)) for path in sorted(photos.iterdir())]
    session = onnxruntime.InferenceSession(net.read_bytes())
    by_hand = session.run(["probabilities"], {"images": np.stack([np.array(image) for image in images])})[0]
    np.testing.assert_allclose(probabilities(by_file), by_hand, atol=1e-5)  # digits are stored at input size


def test_the_file_is_a_model_of_its_own_for_runs(fca, outputs, net):
    words = [*SMALL, "model=onnx", f"model.file={net}", f"outputs={outputs}", "subset.classes=[1,4,7]", *STEPS[-2:]]
    for task in (["task=predict"], ["task=latency", "task.rounds=2"]):
        code, _, errors = fca(*task, *words)
        assert code in (0, None), errors
    rows = results(outputs, "weights == 'net.onnx'")
    by_training = results(outputs, "task == 'train'")["top1"].item()
    assert rows["top1_open"].dropna().unique() == pytest.approx([by_training])
    assert rows["file_mb"].dropna().item() == pytest.approx(net.stat().st_size / 1e6)


def test_the_threshold_is_that_of_the_files_own_answers(fca, outputs, trained, net, photos, capsys):
    predicted(fca, photos, f"file={net}", "error=0.3", f"outputs={outputs}")
    by_file = capsys.readouterr().out
    predicted(fca, photos, f"run={trained.row['run_id']}", "error=0.3", f"outputs={outputs}")
    assert capsys.readouterr().out == by_file

    assert predict.main([str(photos), f"file={net}", "error=0.3", "outputs=elsewhere", "--force"]) == 2
    assert "elsewhere" in capsys.readouterr().err


@pytest.mark.slow
def test_int8_is_judged_on_validation_images_and_shown_on_test_images(fca, outputs, trained, tmp_path, photos, capsys):
    path = tmp_path / "small.onnx"
    words = [f"run={trained.row['run_id']}", f"outputs={outputs}", f"out={path}", "precision=int8", "max_loss=0.2"]
    assert export.main(words) == 0
    printed = capsys.readouterr().out
    about = json.loads(path.with_name("small.onnx.json").read_text())
    assert about["precision"] == "int8"
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in onnx.load(path).graph.node}

    data = trained.images()
    for split in ("val", "test"):
        rows = data.rows(split, trained.row["classes"])
        session = onnxruntime.InferenceSession(path.read_bytes())
        pixels = np.stack([trained.model.build().geometry(data.read(int(at)))[0] for at in rows])
        answers = session.run(["logits"], {"images": pixels})[0].argmax(axis=1)
        keys = [about["classes"][at] for at in answers]
        right = np.mean([key == data.classes[data.labels[at]] for key, at in zip(keys, rows, strict=True)])
        found = about["loss_to_int8"][split]
        assert (found["images"], found["right"]) == (len(rows), round(right * len(rows)))
        assert f"against the network on {len(rows)} images" in printed
    assert about["file_test"]["top1"] == pytest.approx(right)

    frame = predicted(fca, photos, f"file={path}")
    assert len(frame) == 12
    assert f"expect of images like those of its training: {100 * right:.1f} %" in capsys.readouterr().out
    assert OnnxFile(str(path)).label() == "test_resnet int8"


def ruined(classifier):
    """One channel of the first layer is so large that 8 bits leave nothing of the others; no later layer reads it."""
    module = classifier.module
    with torch.no_grad():
        module.bn1.bias[0] = 1e6
        for reader in (module.layer1[0].conv1, module.layer2[0].conv1, module.layer2[0].downsample[-2]):
            reader.weight[:, 0] = 0
    return classifier


@pytest.mark.slow
def test_int8_that_ruins_a_network_is_refused_and_leaves_nothing(outputs, trained, tmp_path, monkeypatch, capsys):
    usual = StoredRun.build
    monkeypatch.setattr(StoredRun, "build", lambda self, classes=None: ruined(usual(self, classes)))
    path = tmp_path / "ruined.onnx"
    words = [f"run={trained.row['run_id']}", f"outputs={outputs}", f"out={path}"]
    assert export.main([*words, "precision=int8"]) == 2
    error = capsys.readouterr().err
    assert "at most max_loss=0.01 on validation images (-" in error
    assert "points [" in error
    assert list(tmp_path.iterdir()) == []
    assert export.main([*words, "precision=int8", "max_loss=0.99"]) == 0  # as was asked for


def test_the_loss_is_the_paired_difference():
    rng = np.random.default_rng(0)
    network, file = rng.random(200) < 0.9, rng.random(200) < 0.8
    loss = loss_between(network, file)
    cells = [(network & file).sum(), (network & ~file).sum(), (~network & file).sum(), (~network & ~file).sum()]
    assert loss.value == pytest.approx(network.mean() - file.mean())
    assert (loss.low, loss.high) == paired_interval(*map(int, cells))


def test_without_validation_images_int8_is_refused(trained):
    with pytest.raises(FcaError, match="held out validation images"):
        allowed_loss(None, 0.01, trained)


@pytest.mark.wide
def test_a_program_in_int8_is_near_the_network(trained):
    classifier = trained.model.build()
    loss = loss_on("test", trained, classifier, in_int8(trained, classifier, export_content(classifier, "onnx")))
    assert abs(loss.value) < 0.1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["precision=int8", "max_loss=1"], "max_loss = 1.0; allowed: at least 0 and below 1"),
        (["precision=int8", "max_loss=-0.1"], "max_loss = -0.1"),
        (["precision=int8", "max_loss=nan"], "max_loss = nan"),
        (["precision=int8", "format=torchscript"], "precision = int8; allowed: fp32 for format=torchscript"),
        (["precision=int4"], "precision = int4"),
    ],
)
def test_what_cannot_be_exported_is_refused(outputs, trained, tmp_path, capsys, words, message):
    run = [f"run={trained.row['run_id']}", f"outputs={outputs}"]
    where = [f"out={tmp_path / 'net.onnx'}"] if "torchscript" not in words[-1] else [f"out={tmp_path / 'net.pt'}"]
    assert export.main([*run, *where, *words]) == 2
    error = capsys.readouterr().err
    assert message in error.replace("--", "")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda about: None, "net.onnx.json is not there"),
        (lambda about: "{", "is not JSON"),
        (lambda about: json.dumps(about)[:200], "is not JSON"),
        (lambda about: "[]", "fca export wrote"),
        (lambda about: json.dumps({**about, "sha256": "0" * 64}), "describes another file"),
        (lambda about: json.dumps({**about, "classes": []}), "classes are texts"),
        (lambda about: json.dumps({**about, "classes": ["a", "b"]}), "logits: ['tensor(float)', 2]"),
        (
            lambda about: json.dumps({**about, "geometry": {"resize": 32}}),
            "impossible values for its images or classes: 'crop'",
        ),
        (lambda about: json.dumps({**about, "geometry": {**about["geometry"], "crop": 0}}), "crop=0"),
        (
            lambda about: json.dumps({**about, "geometry": {**about["geometry"], "interpolation": "x"}}),
            "interpolation = x",
        ),
        (lambda about: json.dumps({**about, "geometry": {**about["geometry"], "crop": 8}}), "'tensor(uint8)', 8, 8, 3"),
        (lambda about: json.dumps({**about, "white": "bright"}), "impossible values"),
    ],
)
def test_a_json_that_is_none_of_the_file_is_refused_in_one_line(fca, net, photos, tmp_path, spoil, message, capsys):
    copy = tmp_path / "net.onnx"
    copy.write_bytes(net.read_bytes())
    content = spoil(json.loads(net.with_name("net.onnx.json").read_text()))
    if content is not None:
        copy.with_name("net.onnx.json").write_text(content)
    assert predict.main([str(photos), f"file={copy}", "--force"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_files_that_are_no_programs_of_their_own_are_refused(fca, net, photos, tmp_path, capsys):
    about = net.with_name("net.onnx.json").read_text()
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(10_000_000))
    model = onnx.load(net)
    constant = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    constant.ClearField("raw_data")
    constant.data_location = onnx.TensorProto.EXTERNAL
    constant.external_data.add(key="location", value=str(secret))
    for name, content, message in (
        ("text", b"hello", "cannot be read as one"),
        ("empty", b"", "fca export wrote"),
        ("outside", model.SerializeToString(), "are in further files"),
    ):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(content)
        path.with_name(f"{path.name}.json").write_text(about)
        assert predict.main([str(photos), f"file={path}", "--force"]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


def test_a_file_and_a_run_exclude_each_other(net, photos, capsys):
    assert predict.main([str(photos), f"file={net}", "run=0123456789ab", "--force"]) == 2
    assert "nothing beside file=" in capsys.readouterr().err
    assert predict.main([str(photos), "file=nowhere.onnx", "--force"]) == 2
    assert capsys.readouterr().err.startswith("error: file = nowhere.onnx; allowed: an ONNX file that is there")


def test_a_file_is_not_trained_and_gives_no_features(net):
    model = OnnxFile(str(net))
    with pytest.raises(FcaError, match="not trained"):
        model.build(["a", "b"])
    with pytest.raises(FcaError, match="gives logits"):
        model.build().embed(torch.zeros(1, 3, 32, 32))
    assert Exported.of(str(net), "outputs").tested()["n_test"] > 0


def test_a_probe_on_a_training_stays_usable_when_its_store_is_moved(fca, outputs, trained, tmp_path):
    """Its description names the store as it was typed, `outputs=here`."""
    shutil.copytree(outputs, tmp_path / "here")
    words = [*SMALL, *STEPS[-2:], "subset.classes=[1,4,7]", "outputs=here", "adaptation=probe"]
    code, _, errors = fca("task=train", "model=run", f"model.run_id={trained.row['run_id']}", *words)
    assert code in (0, None), errors
    [row] = results(tmp_path / "here", "task == 'train' and adaptation == 'probe'").to_dict("records")
    pixels = np.zeros((1, 3, 32, 32), np.float32)

    def logits(store):
        classifier = StoredRun(str(store), row["run_id"], "best").build()
        return classifier.module.eval()(classifier.normalise(torch.from_numpy(pixels))).detach().numpy()

    before = logits(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    np.testing.assert_array_equal(logits(tmp_path / "there"), before)
