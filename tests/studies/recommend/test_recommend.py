"""`fca recommend` from the command line: an answer from nothing but a folder, and refusals before any work."""

import re
import shlex

import numpy as np
import pytest
from safetensors.torch import save_file

from fca.cli import predict
from fca.cli.configure import load_model
from fca.store import Store, results
from fca.studies.recommend import screening
from fca.studies.recommend.commands import recommend
from fca.tables.predictions import predictions
from fca.training.speed import ProcessorTime
from tests.studies.recommend.support.coloured_folder import folder_of_colours

FEW = ["packages=[]", "candidates=[test_vit]", "minutes=0.5", "threads=1", "device=cpu", "logger=none"]
FEW += ["recipe.epochs=3", "recipe.min_steps=30", "machine.workers=1"]


@pytest.mark.slow
def test_a_folder_is_answered_with_a_model_the_next_commands_and_a_page(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "my colours")
    code, out, err = fca(str(folder), *FEW, door=recommend)
    assert code == 0, err
    rows = results(tmp_path / "outputs")
    assert set(rows["task"]) == {"describe", "latency", "train", "predict", "embed"}
    assert {"val", "test"} <= set(rows.loc[rows["task"] == "predict", "split"])
    assert "Use test_vit 32 px (from scratch): " in out
    assert "test images right" in out
    assert "ms an image" in out
    assert "fca export run=" in out
    page = tmp_path / "outputs" / "reports" / "recommend" / "index.html"
    assert page.is_file()
    before = len(rows)
    code, again, err = fca(str(folder), *FEW, "latency_ms=0.0001", door=recommend)
    assert code == 0, err
    assert len(results(tmp_path / "outputs")) == before
    assert "Use " not in again


def test_a_class_of_one_image_is_refused_before_any_program_is_measured(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "colours", per_class=5)
    for image in sorted((folder / "blue").iterdir())[1:]:
        image.unlink()
    code, out, err = fca(str(folder), "threads=1", "device=cpu", "logger=none", door=recommend)
    assert code == 2
    assert "images of blue in the train split of colours = 0" in err
    assert "left out" not in out
    assert set(results(tmp_path / "outputs")["task"]) == {"describe"}


@pytest.mark.slow
def test_every_probe_is_tried_whatever_is_expected_of_it(fca, tmp_path, monkeypatch):
    """A wrong prediction once kept a probe from being tried, and another was called sure for want of it."""
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    weights = tmp_path / "test_vit.safetensors"
    save_file(load_model("test_vit", input_size=32).build([*"abcdefghij"]).module.state_dict(), weights)
    monkeypatch.setattr(recommend.Search, "_is_worth_a_probe", lambda self, subject: False)
    few = [word for word in FEW if not word.startswith(("candidates", "minutes"))]
    code, out, err = fca(str(folder), *few, f"weights={{test_vit: {weights}}}", "precisions=[fp32]", door=recommend)
    assert code == 0, err
    rows = results(tmp_path / "outputs", "task == 'train'")
    assert set(rows["adaptation"]) == {"probe"}
    assert len(rows) == 2  # HOG and the file of weights; nothing is trained from scratch where there are weights
    assert "fine-tune test_vit at 32 px: minutes=20" in out
    assert rows["model"].str.startswith("test_vit").sum() == 1


@pytest.mark.slow
def test_the_same_command_again_probes_no_others(fca, tmp_path, monkeypatch):
    """The minutes of patience once began anew, so that another answer could come of the same command."""
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    monkeypatch.setattr(recommend, "seconds_of", lambda row: recommend.PATIENCE_S)
    monkeypatch.setattr(recommend.Search, "_is_worth_a_probe", lambda self, subject: False)
    few = [word for word in FEW if not word.startswith(("candidates", "packages", "minutes"))]
    for _ in range(2):
        code, out, err = fca(str(folder), *few, "packages=[efficientnet_lite0]", "sizes=0", door=recommend)
        assert code == 0, err
        assert "not probed: 4 programs over a limit, or unlikely to change the answer" in out
        assert (results(tmp_path / "outputs")["task"] == "train").sum() == 1


@pytest.mark.slow
def test_a_line_warns_of_times_that_were_measured_on_a_busy_machine(fca, tmp_path, monkeypatch):
    """Beside other work all networks once were too slow for a limit, and the answer was HOG."""
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    monkeypatch.setattr(ProcessorTime, "share_of_others_until", lambda before, after: 0.4)
    for _ in range(2):
        code, out, err = fca(str(folder), *FEW, door=recommend)
        assert code == 0, err
        assert "other processes used 40 % of the processor meanwhile, so times may be too long" in out


@pytest.mark.slow
def test_a_warning_about_the_data_is_printed_once(start, tmp_path):
    """Each of the processes that compile programs once printed it again."""
    folder_of_colours(tmp_path / "colours/train", per_class=20)
    folder_of_colours(tmp_path / "colours/test", per_class=20)
    few = [word for word in FEW if not word.startswith(("candidates", "packages", "minutes"))]
    words = [*few, "sizes=0", "depths=[cut]", "precisions=[fp32]"]
    process = start("recommend", "colours", *words, cwd=tmp_path)
    out = process.stdout.read()
    assert process.wait() == 0, out
    assert out.count("it has no validation split") == 1


@pytest.mark.slow
def test_without_onnxruntime_networks_run_in_pytorch_and_the_answer_is_fine_tuned(fca, tmp_path, monkeypatch):
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    monkeypatch.setattr(recommend, "missing_packages", lambda: ["onnxruntime"])
    few = [word for word in FEW if not word.startswith(("candidates", "packages"))]
    code, out, err = fca(str(folder), *few, "packages=[efficientnet_lite0]", "sizes=0", door=recommend)
    assert code == 0, err
    assert "onnxruntime not installed: networks run in PyTorch, in fp32" in out
    rows = results(tmp_path / "outputs", "task == 'train'")
    assert rows["adaptation"].value_counts()[["probe", "finetune"]].tolist()[0] == 3  # HOG, and a network at two depths
    assert (rows["adaptation"] == "finetune").any()
    assert "compile" not in set(results(tmp_path / "outputs")["task"])


@pytest.mark.slow
def test_of_many_images_few_say_which_programs_are_probed_on_all(fca, tmp_path, monkeypatch):
    monkeypatch.setattr(screening, "FINALISTS", 2)
    monkeypatch.setattr(recommend, "FINALISTS", 2)
    folder = folder_of_colours(tmp_path / "colours", per_class=50)
    few = [word for word in FEW if not word.startswith(("candidates", "minutes", "packages"))]
    words = [*few, "packages=[efficientnet_lite0]", "depths=[cut]", "precisions=[fp32]", "sizes=3", "screen=30"]
    code, out, err = fca(str(folder), *words, door=recommend)
    assert code == 0, err
    number = results(tmp_path / "outputs")["task"].value_counts()
    assert number["screen"] == 5  # HOG, and a network at four input sizes
    assert 1 <= number["train"] <= 2
    assert f"probed on all images: {number['train']} of 5 programs, the likeliest answers by 30 training images" in out
    assert "Use " in out

    code, _, err = fca(str(folder), *words, door=recommend)
    assert code == 0, err
    assert results(tmp_path / "outputs")["task"].value_counts().equals(number)


@pytest.mark.slow
def test_with_balanced_accuracy_the_answer_reports_that_of_the_test_images(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "colours", per_class=80)
    for i in range(30, 80):
        (folder / "blue" / f"{i}.png").unlink()
    for i in range(16):  # colours are easily told apart: some labels have to be wrong
        (folder / "red" / f"{i}.png").rename(folder / "green" / f"from red {i}.png")
    code, out, err = fca(str(folder), *FEW, "metric=balanced", door=recommend)
    assert code == 0, err
    shown = float(re.search(r"([\d.]+) % \[[\d., ]+\] of balanced accuracy on", out)[1]) / 100
    run = re.search(r"run=(\w{12})", out)[1]
    tested = results(tmp_path / "outputs", f"task == 'predict' and parent == '{run}' and split == 'test'").iloc[0]
    found = predictions(Store(tmp_path / "outputs"), tested)
    right = [(found.predicted_labels == found.labels)[found.labels == label].mean() for label in range(3)]
    assert shown == pytest.approx(np.mean(right), abs=0.0005)
    assert tested["top1_open"] != pytest.approx(np.mean(right), abs=0.0005)


@pytest.mark.slow
def test_images_that_are_left_out_do_not_make_them_many(fca, tmp_path, monkeypatch):
    monkeypatch.setattr(recommend, "FINALISTS", 0)
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    for i in range(10):
        (folder / f"loose{i}.png").write_bytes((folder / "red" / "0.png").read_bytes())
    code, out, err = fca(str(folder), *FEW, "screen=13", door=recommend)
    assert code == 0, err
    assert "10 left out" in out
    assert "screen" not in set(results(tmp_path / "outputs")["task"])  # of 60 images; of 70 it would be


@pytest.mark.slow
def test_limits_that_nothing_meets_give_no_answer_and_no_traceback(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    few = [word for word in FEW if not word.startswith("minutes")]
    code, out, err = fca(str(folder), *few, "minutes=0", "latency_ms=0.0001", door=recommend)
    assert code == 0, err
    assert "Use " not in out
    assert "no candidate within the limits has been trained" in out


@pytest.mark.slow
def test_a_candidate_whose_training_diverges_is_left_out_and_not_trained_for_longer(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    hopeless = ["recipe.lr=1e38", "recipe.optimiser=sgd", "recipe.grad_clip=0"]
    code, out, err = fca(str(folder), *FEW, *hopeless, door=recommend)
    assert code == 0, err
    trained = results(tmp_path / "outputs", "task == 'train' and adaptation == 'scratch'")
    assert trained["flag"].tolist() == ["diverged"]
    assert trained["top1"].isna().all()
    assert out.count("test_vit diverged: it is left out\n") == 1
    assert "Use test_vit" not in out


@pytest.mark.slow
def test_with_costs_the_answer_is_in_their_unit_and_leads_to_predictions_by_them(fca, tmp_path):
    folder = folder_of_colours(tmp_path / "colours", per_class=20)
    file = tmp_path / "my costs.csv"
    file.write_text("true,red,green,blue\nred,0,1,1\ngreen,1,0,1\nblue,3,3,0\n")
    few = [word for word in FEW if not word.startswith("minutes")]
    code, out, err = fca(str(folder), *few, "minutes=0.2", f"costs='{file}'", door=recommend)
    assert code == 0, err
    assert re.search(r"Use .*: costs [\d.]+ \[[\d.]+, [\d.]+\] an image on 12 test images", out)
    assert "Always answering blue would cost 0.667 an image" in out  # a third red and a third green, at 1 each
    [line] = [line for line in out.splitlines() if line.startswith("use it: ")]
    words = shlex.split(line)
    words[words.index("FOLDER")] = str(folder)
    code, predicted, err = fca(*words[4:], door=predict)
    assert code == 0, err
    assert "answers all 60 images at the least expected cost" in predicted

    page = tmp_path / "outputs" / "reports" / "recommend" / "index.html"
    before = page.read_text()
    file.write_text(file.read_text().replace("3,3", "2,2"))
    assert fca(str(folder), *few, "minutes=0.2", f"costs='{file}'", door=recommend)[0] == 0
    assert page.read_text() != before, "another table under the same name is another page"


@pytest.mark.wide
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "dataset.root = nowhere"),
        ([".", "candidates=[resnet1800]"], "candidates = resnet1800"),
        ([".", "candidates=[hog]"], "candidates = hog; allowed: networks that can be trained"),
        ([".", "candidates=[test_vit,pixels]"], "candidates = pixels; allowed: networks that can be trained"),
        ([".", "threads=999"], "threads = 999; allowed: 1 to "),
        ([".", "threads=9999"], "threads = 9999; allowed: a whole number, at least 1, at most 1,024"),
        ([".", "weights=nowhere"], "weights = nowhere; allowed: a folder of weight files"),
        ([".", "weights={resnet1800: x}"], "weights = resnet1800"),
        ([".", "minutes=-1"], "minutes = -1"),
        ([".", "confidence=0.4"], "confidence = 0.4; allowed: a finite number, above 0.5, below 1"),
        ([".", "device=tpu"], "device = tpu; allowed: auto, cpu, gpu"),
        ([".", "latency=3"], "key = latency"),
        ([".", "packages=[resnet1800]"], "packages = resnet1800"),
        ([".", "precisions=[int4]"], "precisions = int4; allowed: a list: [A, B], each fp32, int8"),
        ([".", "metric=f1"], "metric = f1; allowed: accuracy, balanced"),
        ([".", "within=101"], "within = 101"),
        ([".", "within=-1"], "within = -1"),
        ([".", "costs=nowhere.csv"], "costs = nowhere.csv; allowed: a CSV file"),
        ([".", "costs=costs.csv"], "classes of costs.csv = without 'green'; allowed: all of blue, green, red"),
        ([".", "costs=other.csv"], "class of other.csv = 'pink'; allowed: classes of the data set: blue, green, red"),
        ([".", "costs=costs.csv", "metric=balanced"], "metric = balanced; allowed: left out beside costs="),
    ],
)
def test_what_cannot_be_recommended_from_is_refused(fca, tmp_path, words, message):
    folder_of_colours(tmp_path, per_class=10)
    (tmp_path / "costs.csv").write_text("true,red,blue\nred,0,1\nblue,1,0\n")
    (tmp_path / "other.csv").write_text("true,red,pink\nred,0,1\npink,1,0\n")
    code, _, err = fca(*words, "logger=none", door=recommend)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "is_gpu_there", "message"),
    [
        (["device=gpu"], False, "device = gpu; allowed: auto or cpu: torch sees no GPU"),
        (["device=gpu", "file_mb=5"], True, "file_mb = 5.0; allowed: null: on a GPU networks run in PyTorch"),
        (
            ["device=cpu", "file_mb=5"],
            False,
            "file_mb = 5.0; allowed: null: without onnxruntime networks run in PyTorch",
        ),
    ],
)
def test_a_gpu_and_a_limit_that_nothing_can_meet_are_refused_before_any_work(
    fca, tmp_path, monkeypatch, words, is_gpu_there, message
):
    """A missing GPU was noticed only after all images were read, and file_mb in PyTorch led to "give more minutes"."""
    folder = folder_of_colours(tmp_path / "colours", per_class=10)
    monkeypatch.setattr(recommend, "missing_packages", lambda: ["onnxruntime"])
    monkeypatch.setattr("torch.cuda.is_available", lambda: is_gpu_there)
    monkeypatch.setattr("torch.mps.is_available", lambda: False)
    code, out, err = fca(str(folder), *words, "logger=none", door=recommend)
    assert code == 2
    assert message in err
    assert "images" not in out


@pytest.mark.slow
def test_the_answer_counts_test_images_that_are_copies_of_training_images(fca, tmp_path, caplog):
    folder = tmp_path / "photos"
    folder_of_colours(folder / "train", per_class=20)
    folder_of_colours(folder / "test", per_class=10)  # by the same draws: its 10 red images are in both
    code, out, err = fca(str(folder), *FEW, door=recommend)
    assert code == 0, err
    assert "copies of 10 pictures are in several given splits" in caplog.text
    assert "10 test images are copies of training or validation images" in out
