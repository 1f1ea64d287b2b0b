"""Masks by a segmenter: a planted one, and CLIPSeg with random weights against its own network."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from fca.data.manifest import Generated
from fca.studies.generate.drawing import generate
from fca.studies.generate.folder import Folder
from fca.studies.generate.masks import add_masks
from fca.studies.generate.segmenters import ClipSeg, Segmenter, _clipseg
from fca.types import FcaError
from tests.studies.generate.support.painter import Painter, plan

CAT, DOG = "n01/size/medium/01-5", "n02/view/hard/00-7"


@dataclass
class Bare(Painter):
    """Gives no masks."""

    def draw(self, request):
        return super().draw(request)._replace(visible=None)


@dataclass
class LeftHalf:
    """Finds cats in the left half, and no dogs."""

    asked: list = field(default_factory=list)

    def label(self):
        return "left half"

    def mask(self, image, name):
        self.asked.append(name)
        found = np.zeros(image.shape[:2], bool)
        found[:, : image.shape[1] // 2] = name == "cat"
        return found


def test_masks_become_the_data_set_s_and_what_is_not_found_has_none(tmp_path):
    folder, finder = Folder(tmp_path / "pets"), LeftHalf()
    assert isinstance(finder, Segmenter)
    generate(plan(), Bare(), folder)
    before = Generated(str(folder.root)).load().fingerprint
    assert add_masks(folder, finder, "pets") == "masks: 24 by left half, 12 without the object"
    data = Generated(str(folder.root)).load()
    at = {key: row for row, key in enumerate(data.items["image_id"])}
    assert data.mask(at[CAT]).mean() == 0.5
    assert data.mask(at[DOG]) is None
    assert data.items["mask_by"][at[CAT]] == "left half"
    assert data.fingerprint != before
    assert add_masks(folder, finder, "pets").startswith("masks: 0 by")
    assert len(finder.asked) == 24
    generate(plan(), Bare(), folder)
    assert Generated(str(folder.root)).load().fingerprint == data.fingerprint, "lists are written with the masks"


def test_a_generator_s_own_masks_are_kept(tmp_path):
    folder, finder = Folder(tmp_path / "pets"), LeftHalf()
    generate(plan(), Painter(), folder)
    assert add_masks(folder, finder, "pets").startswith("masks: 0 by")
    assert finder.asked == []


def test_a_prompt_without_a_name_is_named():
    with pytest.raises(FcaError, match=r"segmenter\.prompt = a photo"):
        ClipSeg("nowhere", None, "a photo", 0.4).check()


@pytest.mark.slow
def test_clipseg_s_mask_is_its_own_network_s_probability_above_the_threshold(tmp_path):
    import torch

    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from transformers import (
        CLIPSegConfig,
        CLIPSegForImageSegmentation,
        CLIPSegProcessor,
        CLIPTokenizer,
        ViTImageProcessor,
    )

    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    (tmp_path / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    small = {"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4}
    text = {**small, "vocab_size": len(words), "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    vision = {**small, "image_size": 64, "patch_size": 16}
    torch.manual_seed(0)
    config = CLIPSegConfig(
        text_config=text, vision_config=vision, projection_dim=16, reduce_dim=16, extract_layers=[0, 1],
        decoder_num_attention_heads=4, decoder_intermediate_size=32,
    )  # fmt: skip
    CLIPSegForImageSegmentation(config).save_pretrained(tmp_path / "seg")
    processor = CLIPSegProcessor(
        ViTImageProcessor(size={"height": 64, "width": 64}),
        CLIPTokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"), model_max_length=77),
    )
    processor.save_pretrained(tmp_path / "seg")
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    made = ClipSeg(str(tmp_path / "seg"), None, "a {name}", 0.5)
    network = CLIPSegForImageSegmentation.from_pretrained(tmp_path / "seg").eval()
    with torch.inference_mode():
        logits = network(**processor(text=["a cat"], images=[image], return_tensors="pt")).logits
    probability = torch.sigmoid(logits).numpy().reshape(64, 64)
    middle = float(np.median(probability))
    expected = probability >= middle
    found = replace(made, threshold=middle).mask(image, "cat")
    assert 0.4 < expected.mean() < 0.6
    assert (found == expected).mean() > 0.999  # the pixel at the median may round either way
    assert made.mask(image[:40], "cat").shape == (40, 64)
    _clipseg.cache_clear()
    with pytest.raises(FcaError, match=r"segmenter\.model = .*nothing-here"):
        replace(made, model=str(tmp_path / "nothing-here")).mask(image, "cat")
