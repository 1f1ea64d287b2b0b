"""The paper's own setting with tiny random networks: Stable Diffusion draws, CLIP filters, a network classifies."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.cli.configure import load_model
from fca.models.open_clip_models import _open_clip, _quiet
from fca.store import Store
from fca.studies.generate.generators.diffusion import _pipeline
from tests.studies.generate.support.diffusion_pipeline import model as pipeline  # noqa: F401  a fixture
from tests.support.public_trees import write

pytestmark = pytest.mark.slow
CLIP = "ViT-S-32-alt"
VALIDATION = ["n02085620/ILSVRC2012_val_00000001.JPEG", "n01440764/ILSVRC2012_val_00000293.JPEG"]  # Chihuahua, tench


@pytest.fixture
def smaller(tmp_path, pipeline):  # noqa: F811
    """The overrides that put tiny networks and two images in the place of the experiment's."""
    torch.manual_seed(0)
    with _quiet():
        save_file(_open_clip().create_model(CLIP).state_dict(), tmp_path / "clip.safetensors")
    network = load_model("test_resnet", input_size=32).build([str(n) for n in range(1000)]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    write(tmp_path / "imagenet", [f"val/{path}" for path in VALIDATION])
    yield [
        *("experiment=failure_search", "logger=none", f"dataset.root={tmp_path}/imagenet", "dataset.images={val: 2}"),
        *(f"generator.model={pipeline}", "generator.steps=1", "generator.size=64", "task.stored_px=32"),
        *(
            f"encoder.name={CLIP}",
            f"encoder.weights={tmp_path}/clip.safetensors",
            "model=timm",
            "model.name=test_resnet",
        ),
        *(f"model.weights={tmp_path}/weights.safetensors", "model.classes=imagenet-1k", "task.clean_accuracy=0.4"),
        *("task.images=[2]", "task.max_draws=6", "task.max_subdomains=3", "task.starts=1"),
    ]
    _pipeline.cache_clear()


def test_a_filter_that_accepts_nothing_is_named_and_all_images_are_kept(fca, tmp_path, smaller):
    code, out, err = fca(*smaller)
    assert (code, "filter = 0 of 18 images accepted" in err) == (2, True), out + err  # of 1,032 prompts none by chance
    assert len(list(tmp_path.glob("outputs/runs/*/images/*/*.png"))) == 18


def test_the_paper_s_setting_runs_whole_with_a_milder_filter(fca, tmp_path, smaller):
    code, out, err = fca(*smaller, "filter.rule=top_k", "filter.k=600", "task.features=words")
    assert code == 0, out + err
    store = Store(tmp_path / "outputs")
    row = store.rows("task == 'search'").iloc[0]
    assert (row["generator"], row["n_visited"], row["target"]) == ("tiny-diffusion", 3, "dog")
    assert row["filter"] == f"top_600, open_clip:{CLIP} clip.safetensors"
    assert row["policy"] == "bo starts=1 features=words"
    assert row["clean_accuracy"] == 0.5  # a random network finds no dog: right for the tench
    score, kept = store.array(row["run_id"], "image_score"), store.array(row["run_id"], "image_accepted")
    assert ((score > 0) & (score < 1)).all()
    assert kept.sum() == row["n_accepted"]
    assert np.load(store.folder(row["run_id"]) / "gallery.npy").shape[1:] == (64, 64, 3)
