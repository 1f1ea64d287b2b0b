"""A trained network leaves: as a file for other programs, and as answers for images without labels."""

import json
import os
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.special import softmax
from scipy.stats import beta

from fca.cli import export, predict
from fca.cli import run as run_door
from fca.cli.configure import load_model
from fca.cli.trained import Trained
from fca.models.export import export_content, logits_function
from fca.stats.abstention import Abstention, abstention
from fca.store import Store
from fca.tables.predictions import predictions
from tests.conftest import SMALL

ROOT = Path(__file__).parents[2]
PICTURE = str(ROOT / "docs" / "pictures" / "recommend.png")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """A store with one training of a few seconds, of three digits."""
    folder = tmp_path_factory.mktemp("deploy") / "outputs"
    steps = ["recipe.epochs=3", "recipe.batch_size=16", "recipe.lr=0.01", "recipe.snapshots=[0.5]"]
    words = ["subset.classes=[1,4,7]", "+model.kwargs.drop_rate=0.1", f"outputs={folder}", *SMALL, "limit=30", *steps]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        patch.setattr("sys.argv", ["fca"])
        assert run_door.main(words) == 0
    return folder


@pytest.fixture(scope="module")
def trained(outputs):
    [row] = Store(outputs).rows("task == 'train'").to_dict("records")
    return Trained.of(str(outputs), row["run_id"], "best")


@pytest.fixture(scope="module")
def tested(trained):
    """The stored predictions on test images, and those images at input size (digits: 32 pixels)."""
    [row] = trained.store.rows("task == 'predict' and snapshot == 'best'").to_dict("records")
    stored, data = predictions(trained.store, row), trained.images()
    rows = data.rows("test")[stored.images]
    return stored, [data.read(int(at)) for at in rows]


@pytest.fixture
def images(tmp_path, tested):
    """The test images as a folder without labels, in their order; and one that is none."""
    for at, pixels in enumerate(tested[1]):
        file = tmp_path / "photos" / f"box{at % 2}" / f"{at:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(file)
    (tmp_path / "photos" / "cut.jpg").write_bytes(b"\xff\xd8\xff")
    return tmp_path / "photos"


def at_input(trained, images):
    geometry = trained.model.build().geometry
    return np.stack([geometry(image)[0] for image in images])


@pytest.mark.wide
@pytest.mark.filterwarnings(r"ignore:`torch\.jit\.load` is deprecated:DeprecationWarning")
def test_a_script_gives_the_predictions_that_were_measured(fca, outputs, trained, tested, tmp_path):
    run_id = trained.row["run_id"]
    code, out, err = fca(f"run={run_id}", "format=torchscript", "out=digits.pt", f"outputs={outputs}", door=export)
    assert code == 0, err
    assert "on 64 images the same classes as the network" in out
    script = torch.jit.load(tmp_path / "digits.pt")
    with torch.inference_mode():
        logits, p = script(torch.from_numpy(at_input(trained, tested[1])))
    np.testing.assert_array_equal(logits.argmax(1), tested[0].pred)
    np.testing.assert_allclose(p, softmax(tested[0].logits, axis=1), atol=1e-5)  # float32 sums in another order
    about = json.loads((tmp_path / "digits.pt.json").read_text())
    assert about["classes"] == ["1", "4", "7"]
    assert about["test"]["top1"] == trained.row["top1"]
    assert about["geometry"] == {"resize": 32, "squash": False, "interpolation": "bilinear", "crop": 32}
    assert about["input"]["shape"] == ["images", 32, 32, 3]
    assert about["fingerprint"] == trained.row["fingerprint"]


def test_weights_come_back_by_the_words_that_the_file_gives(fca, outputs, trained, tested, tmp_path):
    run_id = trained.row["run_id"]
    assert fca(f"run={run_id}", "format=safetensors", "out=w.safetensors", f"outputs={outputs}", door=export)[0] == 0
    load = json.loads((tmp_path / "w.safetensors.json").read_text())["load"]
    code, _, err = fca(*shlex.split(load)[2:], "logger=none", "limit=30")
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    [row] = store.rows().to_dict("records")
    again = predictions(store, row)
    assert again.logit_classes == ("1", "4", "7")
    np.testing.assert_allclose(again.logits, tested[0].logits, atol=1e-6)


def test_a_file_that_answers_otherwise_does_not_stay(fca, outputs, trained, tmp_path, monkeypatch):
    def shifted(content, kind):
        return lambda images: logits_function(content, kind)(images) + 0.5

    monkeypatch.setattr("fca.models.export.logits_function", shifted)
    words = [f"run={trained.row['run_id']}", "format=torchscript", "out=digits.pt", f"outputs={outputs}"]
    code, _, err = fca(*words, door=export)
    assert code == 2
    assert "difference of the file's logits = 0.5 on 64 images" in err
    assert not list(tmp_path.glob("digits*"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["format=torchscript", "snapshot=0.7"], "snapshot = 0.7; allowed: what run {run} kept: 0.5, best"),
        (["format=tflite"], "--format = tflite; allowed: onnx, torchscript, safetensors"),
        (["out=x.pt"], "out = x.pt; allowed: a name that ends in .onnx"),
        (["frmat=onnx"], "--frmat=onnx"),
        (["out=there.onnx"], "out = there.onnx; allowed: a file that does not exist yet"),
        (["format=safetensors", "verify=nowhere"], "verify = nowhere; allowed: an existing directory"),
        (["run=0123456789ab"], "run = 0123456789ab; allowed: a training in"),
        (["run={tested}"], "this is a run of task=predict; it is of training {run}; next: run={run}"),
    ],
)
def test_what_cannot_be_exported_is_refused_before_anything_is_written(
    fca, outputs, trained, tested, tmp_path, words, message
):
    names = {"run": trained.row["run_id"], "tested": tested[0].run_id}
    (tmp_path / "there.onnx").touch()
    given = [f"run={names['run']}", *(word.format(**names) for word in words), f"outputs={outputs}"]
    code, _, err = fca(*given, door=export)
    assert code == 2
    assert message.format(**names) in err
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]


def test_a_format_whose_packages_are_missing_says_how_to_get_them(fca, outputs, trained, monkeypatch):
    monkeypatch.setattr("fca.models.export.find_spec", lambda name: None if name == "onnxscript" else name)
    code, _, err = fca(f"run={trained.row['run_id']}", f"outputs={outputs}", door=export)
    assert code == 2
    assert "onnxscript is not; next: pip install 'fca[export]'" in err


def test_weights_that_were_removed_name_what_removed_them(fca, outputs, trained, tmp_path):
    run_id = trained.row["run_id"]
    shutil.copytree(outputs, tmp_path / "outputs")
    store = Store(tmp_path / "outputs")
    store.remove_weights(run_id, store.weights(run_id), "machine.keep_weights=none")
    code, _, err = fca(f"run={run_id}", door=export)
    assert code == 2
    assert f"those of run {run_id} were removed by machine.keep_weights=none; next: train it again" in err


def test_a_folder_is_predicted_as_its_images_were_tested(fca, outputs, trained, tested, images, monkeypatch):
    half = float(np.median(softmax(tested[0].logits, axis=1).max(axis=1)))
    monkeypatch.setattr(predict, "choose", lambda *_: predict.Chosen(Abstention(half, 44, 22, 1), 1))
    words = [f"run={trained.row['run_id']}", "error=0.5", f"outputs={outputs}"]
    code, out, err = fca(str(images), *words, door=predict)
    assert code == 0, err
    frame = pd.read_csv("predictions.csv", dtype={"predicted": str, "answer": str}, keep_default_na=False)
    *read, cut = frame.to_dict("records")
    order = np.argsort([f"box{at % 2}/{at:03}" for at in range(len(tested[1]))])
    assert [one["image"] for one in read] == [f"box{at % 2}/{at:03}.png" for at in order]
    p = np.array([[float(one[f"p_{key}"]) for key in "147"] for one in read])
    np.testing.assert_allclose(p, softmax(tested[0].logits, axis=1)[order], atol=1e-5)
    assert [one["predicted"] for one in read] == ["147"[at] for at in tested[0].pred[order]]
    assert (cut["predicted"], cut["answer"], cut["abstain"]) == ("", "", True)
    assert "cut.jpg" in cut["error"]
    assert [one["answer"] for one in read] == [
        one["predicted"] if sure > half else "" for one, sure in zip(read, p.max(axis=1), strict=True)
    ]
    assert [one["abstain"] for one in read] == [one["answer"] == "" for one in read]
    assert f"answers 45 of your 90 images (50 %): highest probability above {half:.3g}" in out
    assert f"1 of {len(frame)} images cannot be read" in out


def test_without_an_error_every_image_is_answered_and_probabilities_are_printed(fca, outputs, trained, images):
    code, out, err = fca(str(images), f"run={trained.row['run_id']}", f"outputs={outputs}", door=predict)
    assert code == 0, err
    frame = pd.read_csv("predictions.csv", dtype=str, keep_default_na=False)
    read = frame[frame["error"] == ""]
    assert len(read) == len(frame) - 1
    assert (read["answer"] == read["predicted"]).all()
    assert set(read["abstain"]) == {"False"}

    first = read.iloc[0]
    order = sorted("147", key=lambda key: -float(first[f"p_{key}"]))
    named = ", ".join(f"{key} {100 * float(first[f'p_{key}']):.1f} %" for key in order[:2])
    lines = out.splitlines()
    assert lines[0] == f"answers all {len(read)} images; the most probable classes:"
    assert lines[1] == f"  {first['image']}: {named}"
    assert f"  and {len(read) - 10} more images in the file" in lines
    right = (
        f"{100 * trained.row['top1']:.1f} % [{100 * trained.row['top1_low']:.1f}, {100 * trained.row['top1_high']:.1f}]"
    )
    assert f"expect of images like those of its training: {right} of {trained.row['n_test']} test images right" in out


def test_with_costs_each_image_gets_the_answer_of_least_expected_cost(fca, outputs, trained, tested, images, tmp_path):
    """Against enumeration of the answers, and the stored logits of the test images, which are these images."""
    paid = {"1": {"1": 0, "4": 1, "7": 2}, "4": {"1": 40, "4": 0, "7": 40}, "7": {"1": 3, "4": 1.5, "7": 0}}
    order = ["7", "1", "4"]
    lines = [",".join(["true", *order])] + [",".join([j, *(str(paid[j][k]) for k in order)]) for j in "417"]
    (tmp_path / "costs.csv").write_text("\n".join(lines))
    run, store = f"run={trained.row['run_id']}", f"outputs={outputs}"
    code, out, err = fca(str(images), run, store, "costs=costs.csv", door=predict)
    assert code == 0, err

    frame = pd.read_csv("predictions.csv", dtype={"predicted": str, "answer": str}, keep_default_na=False)
    *read, cut = frame.to_dict("records")
    costs_of_all = []
    for one in read:
        p = {key: float(one[f"p_{key}"]) for key in "147"}
        expected = {k: sum(p[j] * paid[j][k] for j in "147") for k in "147"}
        assert expected[one["predicted"]] == pytest.approx(min(expected.values()), rel=1e-4)  # float32 in the file
        assert float(one["expected_cost"]) == pytest.approx(min(expected.values()), rel=1e-4)
        assert (one["answer"], one["abstain"]) == (one["predicted"], False)
        costs_of_all.append(min(expected.values()))
    assert (cut["predicted"], cut["expected_cost"]) == ("", "")
    moved = sum(one["predicted"] != max("147", key=lambda key, one=one: float(one[f"p_{key}"])) for one in read)
    assert moved > 0, "else the table asks for nothing"
    assert f"; {moved} of {len(read)} answers are not the most probable class" in out

    labels = np.array(["147"[column] for column in tested[0].true])
    by_path = {one["image"]: one["predicted"] for one in read}
    answers = [by_path[f"box{at % 2}/{at:03}.png"] for at in range(len(labels))]
    mean = np.mean([paid[true][answer] for true, answer in zip(labels, answers, strict=True)])
    line = next(line for line in out.splitlines() if line.startswith("expect of images like those"))
    assert float(re.search(r"training: ([\d.]+) \[", line)[1]) == pytest.approx(mean, rel=0.005)  # three digits
    assert f"an image on {len(labels)} test images" in line


def test_a_balanced_error_counts_every_class_alike(fca, outputs, trained, images):
    run, store = f"run={trained.row['run_id']}", f"outputs={outputs}"
    code, out, err = fca(str(images / "box0" / "000.png"), run, store, "error=0.001", "metric=balanced", door=predict)
    assert code == 0, err
    first, second, *_ = out.splitlines()
    assert "no threshold keeps the mean over classes of the error rate at most 0.1 % with 95 % confidence" in first
    assert re.search(
        r"\(the smallest class has \d+ of them\): for answers to all images, the mean over classes", second
    )
    code, out, err = fca(str(images), run, store, "error=0.9", "metric=balanced", "--force", door=predict)
    assert code == 0, err
    assert "the mean over classes of the error rate of such answers is at most 90 %, with 95 % confidence" in out


def test_answers_to_all_need_no_validation_images(fca, outputs, trained, images, monkeypatch):
    monkeypatch.setattr("fca.cli.configure._images_of", lambda *_: None)
    words = [str(images), f"run={trained.row['run_id']}", f"outputs={outputs}"]
    assert fca(*words, door=predict)[0] == 0
    code, _, err = fca(*words, "error=0.5", "out=promised.csv", door=predict)
    assert (code, "images of digits = not found" in err) == (2, True)


def test_a_file_with_predictions_is_written_over_only_with_force(fca, outputs, trained, images):
    words = [str(images / "box0" / "000.png"), f"run={trained.row['run_id']}", f"outputs={outputs}"]
    Path("predictions.csv").write_text("mine")
    code, _, err = fca(*words, door=predict)
    assert code == 2
    assert "next: write over it with --force, or give another out=FILE.csv" in err
    assert Path("predictions.csv").read_text() == "mine"
    assert fca(*words, "--force", door=predict)[0] == 0
    assert len(pd.read_csv("predictions.csv")) == 1


def test_names_of_images_cannot_command_the_terminal(fca, outputs, trained, images, tmp_path):
    (tmp_path / "odd").mkdir()
    shutil.copy(images / "box0" / "000.png", tmp_path / "odd" / "a\x1b[2J.png")
    code, out, err = fca("odd", f"run={trained.row['run_id']}", f"outputs={outputs}", door=predict)
    assert code == 0, err
    assert "  a\\x1b[2J.png: " in out


def test_the_threshold_is_that_of_the_validation_images(fca, outputs, trained):
    run_id = trained.row["run_id"]
    words = ["task=predict", "task.split=val", "model=run", f"model.run_id={run_id}", f"outputs={outputs}"]
    code, _, err = fca(*words, "logger=none", "limit=30")
    assert code == 0, err
    [row] = trained.store.rows("split == 'val'").to_dict("records")
    stored = predictions(trained.store, row)
    found = predict.choose(trained, trained.model.build(), 0.3, 0.9)
    p_max = softmax(stored.logits.astype(float), axis=1).max(axis=1)
    assert found.choice == pytest.approx(abstention(p_max, stored.right, 0.3, 0.9, candidates=3), abs=1e-6)
    assert found.candidates == 3, "epochs"


def test_epochs_among_which_the_validation_images_chose_are_counted(outputs, trained):
    longer = Trained(trained.store, {**trained.row, "epochs_run": 30}, trained.model)
    assert predict.choose(longer, trained.model.build(), 0.3, 0.95).candidates == 30
    half = Trained.of(str(outputs), trained.row["run_id"], "0.50")
    longer = Trained(half.store, {**half.row, "epochs_run": 30}, half.model)
    assert predict.choose(longer, half.model.build(), 0.3, 0.95).candidates == 1, "no image chose that snapshot"


def test_images_that_were_trained_on_choose_no_threshold(trained):
    released = Trained(trained.store, {**trained.row, "compat": "fca"}, trained.model)
    found = predict.choose(released, trained.model.build(), 0.3, 0.95)
    assert found.choice.threshold is None
    assert "compat=fca trains on the validation images too" in found.why_not


def test_where_no_threshold_will_do_it_abstains_and_says_what_would(fca, outputs, trained, images):
    words = [f"run={trained.row['run_id']}", "error=0.001", f"outputs={outputs}"]
    code, out, err = fca(str(images / "box0" / "000.png"), *words, "out=one.csv", door=predict)
    assert code == 0, err
    first, second, third, _ = out.splitlines()
    assert first.startswith(
        "answers none of your 1 image (the most probable classes are in the file): no threshold keeps"
    )
    wrong, images_of_val, bound = re.match(
        r"(\d+) of (\d+) validation images are wrong: for answers to all images, an error rate below ([\d.]+) % can be "
        r"promised at 95 % confidence; error=0.001 cannot be promised; next: error=0\.\d+, which answers all, or",
        second,
    ).groups()
    exact = beta.ppf(1 - 0.05 / 3, int(wrong) + 1, int(images_of_val) - int(wrong))
    assert float(bound) == pytest.approx(100 * exact, abs=0.05)
    assert third == "the validation images also chose the best of 3 networks; the promise takes this into account"
    [line] = pd.read_csv("one.csv", dtype=str, keep_default_na=False).to_dict("records")
    assert (line["answer"], line["abstain"]) == ("", "True")
    assert line["predicted"]


def test_images_that_went_away_are_asked_for_by_the_command_that_listed_them(fca, outputs, trained, monkeypatch):
    monkeypatch.setattr("fca.cli.configure._images_of", lambda *_: None)
    code, _, err = fca(f"run={trained.row['run_id']}", "format=torchscript", f"outputs={outputs}", door=export)
    assert code == 2
    assert "images of digits = not found; allowed: where they were, unchanged" in err
    assert "next: bring them back and repeat, which trains nothing again: fca run" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "FOLDER = none; allowed: a directory or .zip archive of images, or an image"),
        (["nowhere"], "FOLDER = nowhere; allowed: an existing directory or .zip archive, or an image"),
        (["."], "FOLDER = .; allowed: at least one image (.jpg, "),
        ([".", "error=2"], "error = 2.0; allowed: above 0 and below 1"),
        ([".", "error=few"], "--error = few; allowed: a number, such as 0.05"),
        ([".", "error=5%"], "--error = 5%; allowed: a number, such as 0.05"),
        ([".", "erorr=0.05"], "next: did you mean error=0.05?"),
        ([".", "--froce"], "next: did you mean --force?"),
        ([".", "metric=f1"], "--metric = f1; allowed: accuracy, balanced"),
        ([".", "metric=balanced"], "metric = balanced; allowed: a metric of error=, which is not given"),
        ([".", "costs=there.csv", "error=0.1"], "error = 0.1; allowed: left out beside costs="),
        ([".", "costs=there.csv", "metric=accuracy"], "metric = accuracy; allowed: left out beside costs="),
        ([PICTURE, "costs=nowhere.csv"], "costs = nowhere.csv; allowed: a CSV file"),
        ([PICTURE, "costs=there.csv"], "table in there.csv = no header"),
        ([".", "out=there.csv"], "out = there.csv; allowed: a file that does not exist yet"),
    ],
)
def test_what_cannot_be_predicted_is_refused(fca, outputs, trained, tmp_path, words, message):
    (tmp_path / "there.csv").touch()
    code, _, err = fca(*words, f"run={trained.row['run_id']}", f"outputs={outputs}", door=predict)
    assert code == 2
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]


@pytest.mark.slow
def test_the_lines_of_the_page_reproduce_the_prediction(fca, outputs, trained, tmp_path, capsys):
    page = (ROOT / "docs" / "deploy.md").read_text()
    commands, [lines] = (re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("bash", "python"))
    written, _int8, asked, *_ = commands
    run_id, store = trained.row["run_id"], f"outputs={outputs}"
    code, _, err = fca(*shlex.split(written.replace("ID", run_id))[2:], store, door=export)
    assert code == 0, err
    ramp = np.add.outer(np.arange(90), np.arange(61)).astype(np.uint8)  # neither square nor even
    (tmp_path / "photos").mkdir()
    for place in (tmp_path, tmp_path / "photos"):
        Image.fromarray(np.stack([ramp, ramp[::-1], 255 - ramp], axis=2)).save(place / "photo.png")
    exec(lines, {})
    name, sure = capsys.readouterr().out.split()
    for by in asked.splitlines():  # the run, then the file
        code, _, err = fca(*shlex.split(by.replace("ID", run_id))[2:], store, door=predict)
        assert code == 0, err
        [line] = pd.read_csv("predictions.csv", dtype=str).to_dict("records")
        Path("predictions.csv").unlink()
        assert line["predicted"] == name
        assert float(line[f"p_{name}"]) == pytest.approx(float(sure), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_mambaout", "cifar_resnet20", "shufflenet_v2_x1_0"])
def test_onnxruntime_answers_as_the_network_for_any_number_of_images(name):
    torch.manual_seed(0)
    keys = {} if name == "cifar_resnet20" else {"input_size": 64 if name.startswith("shuffle") else 32}
    classifier = load_model(name, **keys).build(["left", "right", "up"])
    content = export_content(classifier, "onnx")
    model = onnx.load_from_string(content)
    assert [one.version for one in model.opset_import if one.domain == ""] == [18]
    answers, size = logits_function(content, "onnx"), classifier.input_size
    for n in (1, 2, 5):
        images = np.random.default_rng(n).integers(0, 256, (n, size, size, 3), np.uint8)
        with torch.inference_mode():
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
            expected = classifier.module.eval()(classifier.normalise(pixels))
        np.testing.assert_allclose(answers(images), expected, atol=1e-4 * max(1, float(expected.abs().max())))


@pytest.mark.real
def test_a_probe_on_photographs_leaves_with_its_network(fca, tmp_path):
    real = Path(os.environ["FCA_REAL_DATA"])
    data = [f"dataset.root={real}/images/clothing.zip", "dataset=folder", "logger=none"]
    weights = [f"model.weights={real}/weights/mobilenetv1_025.safetensors", "model.classes=imagenet-1k"]
    assert fca("model=mobilenetv1_025", *weights, "adaptation=probe", *data)[0] == 0
    [row] = Store(tmp_path / "outputs").rows("task == 'train'").to_dict("records")
    code, out, err = fca(f"run={row['run_id']}", "format=torchscript", "out=clothing.pt", door=export)
    assert code == 0, err
    assert "on 64 images the same classes as the network" in out
    code, _, err = fca(f"run={row['run_id']}", "format=safetensors", "out=clothing.safetensors", door=export)
    assert (code, "onnx or torchscript for a Probed" in err) == (2, True)
    with zipfile.ZipFile(real / "images" / "clothing.zip") as archive:
        names = [name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg")]
        archive.extractall(tmp_path / "new", names)
    code, out, err = fca("new", f"run={row['run_id']}", "error=0.4", door=predict)
    assert code == 0, err
    frame = pd.read_csv("predictions.csv", keep_default_na=False)
    right = frame["predicted"] == frame["image"].str.split("/").str[1]
    assert right.mean() == pytest.approx(row["top1"], abs=1e-9), "the accuracy that the training measured"
    answered = ~frame["abstain"]
    assert answered.any()
    assert right[answered].mean() > right.mean(), "it abstains where it is worse"
