"""The real package with random weights: small towers, CLIP's own tokeniser."""

import itertools
import logging
from dataclasses import replace

import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize

from fca.models import class_keys
from fca.models.open_clip_models import _open_clip, display_names
from fca.stats.protocols import masked_top1
from fca.store import Store
from fca.tables.predictions import predictions
from fca.tasks.predict import with_class_keys
from fca.types import FcaError, ImageData
from tests.support.open_clip_towers import NAME, write_towers

pytestmark = pytest.mark.slow  # builds towers of many weights

KEYS = ["cat", "polar_bear", "n02012849", "n03126707"]  # the last two are ImageNet's cranes
IMAGES = torch.rand(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
TEMPLATES = "model.templates=['a photo of a {}.','a drawing of the {}']"


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A model with random weights as OpenCLIP builds it, and the file of its weights."""
    path = tmp_path_factory.mktemp("clip") / "clip.safetensors"
    return write_towers(path), path


@pytest.fixture
def asked(model, clip):
    """The model in that file, with overrides."""

    def make(*overrides):
        return model("open_clip", f"model.name={NAME}", f"model.weights={clip[1]}", *overrides)

    return make


def test_zero_shot_logits_are_those_of_open_clips_own_towers(asked, clip):
    network, _ = clip
    classifier = asked(TEMPLATES).naming(KEYS).build()
    module = classifier.module.eval()
    bird, machine = display_names(KEYS, {})[2:]
    tokens = _open_clip().get_tokenizer(NAME)
    with torch.inference_mode():
        texts = []
        for name in ("cat", "polar bear", bird, machine):
            said = network.encode_text(tokens([f"a photo of a {name}.", f"a drawing of the {name}"]))
            texts.append(normalize(normalize(said, dim=-1).mean(0), dim=0))
        image = normalize(network.encode_image(classifier.normalise(IMAGES)), dim=-1)
        expected = network.logit_scale.exp() * image @ torch.stack(texts).T
        found = module(classifier.normalise(IMAGES))
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)  # float32, 256 terms, scale 14
        assert torch.equal(classifier.head(classifier.embed(classifier.normalise(IMAGES))), found)
    assert classifier.classes == tuple(KEYS)


def test_without_class_keys_the_image_tower_is_an_encoder(asked, clip):
    encoder = asked().build()
    assert (encoder.head, encoder.classes) == (None, ())
    encoder.module.eval()
    with torch.inference_mode():
        assert torch.equal(encoder.embed(IMAGES), clip[0].encode_image(IMAGES))


def test_training_takes_the_image_tower_and_a_fresh_linear_head(asked, clip):
    torch.manual_seed(0)
    classifier = asked().build(["left", "right"])
    theirs = {f"visual.{key}": value for key, value in clip[0].visual.state_dict().items()}
    state = classifier.module.state_dict()
    assert set(state) - set(theirs) == {"head.weight", "head.bias"}
    assert all(torch.equal(state[key], value) for key, value in theirs.items())
    classifier.module.train()(IMAGES).square().sum().backward()
    assert all(w.grad is not None and w.grad.isfinite().all() for w in classifier.module.parameters())


def test_a_trained_tower_answers_with_its_own_head_and_not_with_prompts(asked, model, tmp_path):
    trained = asked().build(["left", "right"])
    save_file(trained.module.state_dict(), tmp_path / "best.safetensors")
    given = [f"model.name={NAME}", f"model.weights={tmp_path}/best.safetensors", "model.classes=[left,right]"]
    made = model("open_clip", *given)
    again = made.naming(KEYS).build()
    with torch.inference_mode():
        assert torch.equal(again.module.eval()(IMAGES), trained.module.eval()(IMAGES))
    assert again.classes == ("left", "right")
    fresh = made.build(["up", "down", "same"])
    assert fresh.head.out_features == 3


def test_from_scratch_it_trains_and_nothing_else(model):
    made = model("open_clip", f"model.name={NAME}")
    assert made.build(["left", "right"]).module(IMAGES).shape == (2, 2)
    for asks in (made, made.naming(KEYS)):
        with pytest.raises(FcaError, match=r"model\.weights = None; allowed: weights"):
            asks.build()


def test_an_identity_says_names_templates_and_weights_only_where_they_matter(asked, clip):
    encoder, zero_shot = asked(TEMPLATES).identity(), asked(TEMPLATES).naming(KEYS[:2]).identity()
    assert encoder == asked().identity()
    assert zero_shot["templates"] == ["a photo of a {}.", "a drawing of the {}"]
    assert zero_shot["names"] == ["cat", "polar bear"]
    assert zero_shot["classes"] == KEYS[:2]
    assert zero_shot["weights"] == encoder["weights"]
    renamed = asked(TEMPLATES, "+model.names.cat=kitten").naming(KEYS[:2]).identity()
    assert renamed["names"] == ["kitten", "polar bear"]


def test_a_tag_enters_the_identity_by_its_name(model):
    made = model("open_clip", "model.name=ViT-B-32-quickgelu", "model.weights=openai").naming(["cat"])
    assert made.identity()["weights"] == made.weights_label() == "openai"


def test_display_names_come_from_the_key_from_wordnet_or_from_the_user():
    assert display_names(["t-shirt", "big__dog"], {}) == ("t shirt", "big dog")
    assert display_names(["n02834778"], {"n02834778": "tandem"}) == ("tandem",)
    bird, machine = display_names(["n02012849", "n03126707"], {})
    assert bird.startswith("crane, large long-necked wading bird")
    assert machine.startswith("crane, lifts and moves heavy objects")
    with pytest.raises(FcaError, match="different names in prompts; a_b, a-b share a b"):
        display_names(["a_b", "a-b"], {})


def test_all_of_imagenet_has_names_of_its_own():
    assert len(set(display_names(class_keys("imagenet-1k"), {}))) == 1000


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["model.name=ViT-B-33"], r"model.name = ViT-B-33; allowed: one of OpenCLIP's \d+ names, such as ViT-B-32"),
        (["model.name=ViT-B-32", "model.weights=openai"], "model.name = ViT-B-32; allowed: ViT-B-32-quickgelu"),
        (["model.name=ViT-B-32", "model.weights=none"], "model.weights = none; allowed: openai, .*laion2b_s34b_b79k"),
        (["model.name=ViT-B-32", "model.weights=none.pt"], "model.weights = none.pt; .*this file is not there"),
        (
            ["model.name=ViT-B-32", "model.templates=[a photo]"],
            r"model.templates = \['a photo'\]; allowed: .* one \{\}",
        ),
    ],
)
def test_what_cannot_be_is_refused_while_planning(model, overrides, said):
    with pytest.raises(FcaError, match=said):
        model("open_clip", *overrides).identity()


def test_weights_of_another_model_are_refused(model, clip):
    with pytest.raises(FcaError, match=r"clip.safetensors; allowed: weights of OpenCLIP's ViT-S-16-alt"):
        model("open_clip", "model.name=ViT-S-16-alt", f"model.weights={clip[1]}").build()


def test_weights_that_cannot_be_fetched_are_named_with_the_way_out(model, monkeypatch):
    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(_open_clip().factory, "download_pretrained", no_network)
    said = (
        r"model.weights = openai; .*huggingface.co/timm/vit_base_patch32_clip_224.openai/resolve.* model.weights=PATH"
    )
    with pytest.raises(FcaError, match=said):
        model("open_clip", "model.name=ViT-B-32-quickgelu", "model.weights=openai").build()


def test_it_leaves_the_root_logger_as_it_was(model):
    before = list(logging.getLogger().handlers)
    model("open_clip", f"model.name={NAME}").build(["left", "right"])
    assert logging.getLogger().handlers == before


@pytest.mark.parametrize("wrap", [dict, lambda state: {"model": {f"module.{key}": v for key, v in state.items()}}])
def test_files_are_known_by_their_content(model, clip, tmp_path, wrap):
    path = tmp_path / "published.bin"
    (save_file if wrap is dict else torch.save)(wrap(clip[0].state_dict()), path)
    encoder = model("open_clip", f"model.name={NAME}", f"model.weights={path}").build()
    image = torch.rand(1, 3, encoder.geometry.size, encoder.geometry.size)
    with torch.inference_mode():
        assert torch.equal(encoder.module.eval()(image), clip[0].eval().visual(image))


def test_a_page_in_place_of_weights_is_named(model, tmp_path):
    (tmp_path / "open_clip_pytorch_model.bin").write_text("<!DOCTYPE html>")
    made = model("open_clip", f"model.name={NAME}", f"model.weights={tmp_path}/open_clip_pytorch_model.bin")
    with pytest.raises(FcaError, match="this is an HTML or XML page"):
        made.identity()


def test_a_set_with_levels_of_some_imagenet_classes_is_asked_all_of_them(asked, tmp_path):
    keys = ("n02012849", "n03126707")  # two cranes
    items = pd.DataFrame({"image_id": ["a", "b"], "label": keys, "split": "test"})
    plain = ImageData("cranes", items, keys, "cranes", read=lambda _: None)
    levels = replace(plain, items=items.assign(level=["easy", "hard"]))
    model, about = with_class_keys(asked(), levels)
    assert (list(model.classes), about) == (list(class_keys("imagenet-1k")), {"zero_shot_classes": "imagenet-1k"})
    assert model.identity() != asked().naming(keys).identity()
    few = replace(levels, items=levels.items.replace(dict.fromkeys(keys, "crane")), classes=("crane",))
    for data, model in ((plain, asked()), (few, asked()), (levels, asked("model.classes=[n02012849,n03126707]"))):
        found, about = with_class_keys(model, data)
        assert list(found.classes) == list(data.classes)
        assert about == ({} if model.classes is None else {"zero_shot_classes": "given"})


def test_clip_on_a_generated_set_chooses_among_the_classes_that_a_network_of_imagenet_does(fca, clip, tmp_path):
    (tmp_path / "drawn" / "images").mkdir(parents=True)
    lines = []
    for number, (key, level) in enumerate(itertools.product(("n02012849", "n03126707"), ("easy", "medium", "hard"))):
        path = f"images/{number}.png"
        Image.new("RGB", (32, 32), (40 * number, 90, 30)).save(tmp_path / "drawn" / path)
        about = {"image_id": str(number), "path": path, "split": "test", "label": key, "level": level}
        lines.append({**about, "attribute": "size", "triplet": key, "state": "drawn"})
    pd.DataFrame(lines).to_csv(tmp_path / "drawn" / "manifest.csv", index=False)
    words = ["dataset=generated", f"dataset.root={tmp_path}/drawn", "task=predict", "logger=none", "model=open_clip"]
    code, out, err = fca(*words, f"model.name={NAME}", f"model.weights={clip[1]}")
    assert code == 0, out + err
    store = Store(tmp_path / "outputs")
    [row] = store.rows("task == 'predict'").to_dict("records")
    assert (row["zero_shot_classes"], row["ncl"], row["n_test"]) == ("imagenet-1k", 2, 6)
    assert store.array(row["run_id"], "logits").shape == (6, 1000)
    found = predictions(store, row)
    two = found.columns[[0, 1]]  # the classes of the images, from the same logits
    assert masked_top1(found.logits, two, found.true) == pytest.approx(
        (found.logits[:, two].argmax(1) == found.labels).mean()
    )
