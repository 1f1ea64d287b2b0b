"""The paper's own loop with tiny random networks: Stable Diffusion draws, CLIP filters, a network classifies."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fca.generation.diffusion import _pipeline
from fca.store import Store
from fca.torchvision_ops import declare_torchvision_ops
from tests.generation.test_diffusion import model as pipeline  # noqa: F401  a fixture

declare_torchvision_ops()
import open_clip  # noqa: E402

from fca.models.open_clip_models import _quiet  # noqa: E402

pytestmark = pytest.mark.slow
CLIP = "ViT-S-32-alt"


@pytest.mark.parametrize("rule", ["all", "top_k"])
def test_stable_diffusion_with_a_clip_filter_runs_the_same_loop(fca, tmp_path, pipeline, rule):  # noqa: F811
    torch.manual_seed(0)
    with _quiet():
        save_file(open_clip.create_model(CLIP).state_dict(), tmp_path / "clip.safetensors")
    words = (
        "task=search domain=dog generator=stable_diffusion generator.steps=1 generator.size=64 filter=clip logger=none"
    )
    words += f" generator.model={pipeline} model@encoder=open_clip encoder.name={CLIP} filter.rule={rule} filter.k=600"
    words += f" encoder.weights={tmp_path}/clip.safetensors task.stored_px=32 task.images=[2] task.max_draws=6"
    words += " task.max_subdomains=3 task.policy=bo task.features=words task.starts=1 model=timm model.name=test_resnet"
    words += " model.weights=WEIGHTS model.classes=imagenet-1k"
    from fca.cli.configure import load_model

    network = load_model("test_resnet", input_size=32).build([str(n) for n in range(1000)]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    words = words.replace("WEIGHTS", str(tmp_path / "weights.safetensors")).split()
    try:
        code, out, err = fca(*words)
    finally:
        _pipeline.cache_clear()
    store = Store(tmp_path / "outputs")
    if rule == "all":  # of 1,032 prompts none is found by chance
        assert (code, "filter = 0 of 18 images accepted" in err) == (2, True), out + err
        assert len(list(tmp_path.glob("outputs/runs/*/images/*/*.png"))) == 18
        return
    assert code == 0, out + err
    row = store.rows("task == 'search'").iloc[0]
    assert (row["generator"], row["n_visited"], row["target"]) == ("tiny-diffusion", 3, "dog")
    assert row["filter"] == f"top_600, open_clip:{CLIP} clip.safetensors"
    assert row["policy"] == "bo starts=1 features=words"
    score, kept = store.array(row["run_id"], "image_score"), store.array(row["run_id"], "image_accepted")
    assert ((score > 0) & (score < 1)).all()
    assert kept.sum() == row["n_accepted"]
    assert np.load(store.folder(row["run_id"]) / "gallery.npy").shape[1:] == (64, 64, 3)
