"""From `fca generate` to the paper's tables, with tiny random networks that draw, check and answer."""

import json

import pytest
import torch
from hydra import compose, initialize_config_dir
from safetensors.torch import save_file

from fca.cli import analyse
from fca.cli.application import register
from fca.cli.configure import load_model
from fca.cli.places import CONF
from fca.models.open_clip_models import _open_clip, _quiet
from fca.store import results
from fca.studies.generate.commands import generate
from fca.studies.generate.generators.diffusion import _pipeline
from tests.studies.generate.support.diffusion_pipeline import model as pipeline  # noqa: F401  a fixture
from tests.studies.generate.support.painter import NINE

CLIP = "ViT-S-32-alt"
PLAN = {
    "name": "three",
    "classes": {"n02099601": "golden retriever", "n07753592": "banana"},
    "attributes": {"size": NINE},
    "per_level": 3,
}


def test_the_seven_models_of_the_paper_are_asked():
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        supervised, zero_shot = (
            compose("run", [f"experiment={name}"], return_hydra_config=True).hydra.sweeper.params.model.split(",")
            for name in ("progressive_models", "progressive_clips")
        )
        clip = compose("run", ["experiment=progressive_clips"]).model
    assert supervised == ["resnet18", "resnet101", "vit_b16", "convnext_base"]
    assert zero_shot == ["clip_rn101", "clip_vit_b16", "clip_convnext_base"]
    assert (clip.weights, clip.classes) == ("openai", "imagenet-1k")


@pytest.mark.slow
def test_from_generate_to_the_tables(fca, tmp_path, pipeline):  # noqa: F811
    torch.manual_seed(0)
    with _quiet():
        save_file(_open_clip().create_model(CLIP).state_dict(), tmp_path / "clip.safetensors")
    network = load_model("test_resnet", input_size=32).build([str(n) for n in range(1000)]).module
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    (tmp_path / "three.yaml").write_text(json.dumps(PLAN))
    tiny_clip = [f"name={CLIP}", f"weights={tmp_path}/clip.safetensors"]
    drawing = ["generator=stable_diffusion", f"generator.model={pipeline}", "generator.steps=1", "generator.size=32"]
    checking = ["checks=clip", "model@checks.model=open_clip", *(f"checks.model.{word}" for word in tiny_clip)]
    words = [*drawing, *checking, "checks.object=0", "checks.attribute=0", "checks.duplicates=false"]
    code, out, err = fca(*words, "plan.file=three.yaml", door=generate)
    assert code == 0, err
    assert "18 drawn, 0 left" in out
    assert "checks: 0 of 18 images rejected" in out
    _pipeline.cache_clear()

    root = ["dataset.root=outputs/generated/three", "logger=none"]
    own = ["model=timm", "model.name=test_resnet", f"model.weights={tmp_path}/weights.safetensors"]
    supervised = ["experiment=progressive_models", *own, "model.classes=imagenet-1k"]
    zero_shot = ["experiment=progressive_clips", "model=open_clip", *(f"model.{word}" for word in tiny_clip)]
    for experiment in (supervised, zero_shot):
        code, out, err = fca("-m", *experiment, *root)
        assert code == 0, out + err
    rows = results(tmp_path / "outputs").query("task == 'predict'")
    assert len(rows) == 2
    assert set(rows["n_test"]) == {18}
    for name in ("hierarchy", "attribute_levels", "adaptive_replay"):
        code, out, err = fca(f"analysis={name}", door=analyse)
        assert code == 0, err
    tables = [json.loads(path.read_text())["name"] for path in (tmp_path / "outputs").glob("tables/*/table.json")]
    assert {"attribute_levels", "attribute_scores"} <= set(tables)
