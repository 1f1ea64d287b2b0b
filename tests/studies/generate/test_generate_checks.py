"""Checks of generated images against planted errors, and against CLIP asked text by text."""

import json
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.manifest import Generated
from fca.studies.generate.checks import Checks, duplicates
from fca.studies.generate.drawing import generate
from fca.studies.generate.folder import Folder, checked
from fca.types import FcaError, Model
from tests.studies.generate.support.painter import Painter, plan
from tests.studies.generate.support.small_geometry import Small

COLOURS = {"n01": (200, 40, 40), "n02": (40, 40, 200)}
KEYS = [request.key for request in plan().requests()]
CAT, OTHER = "n01/size/medium/01-5", "n02/view/hard/00-7"


@dataclass(frozen=True)
class ByColour(Model):
    """A classifier that knows red from blue: logits are how near an image's mean is to each colour."""

    learns = False

    known: tuple = ("n02", "n03", "n01")
    looked: list = field(default_factory=list)

    def label(self):
        return "by_colour"

    def weights_label(self):
        return None

    def build(self, classes=None):
        import torch

        from fca.types import Classifier

        looked = self.looked
        palette = torch.tensor([COLOURS.get(key, (0, 255, 0)) for key in self.known]) / 255

        class Near(torch.nn.Module):
            def forward(self, images):
                looked.append(len(images))
                return -100 * (images.mean(dim=(2, 3))[:, None] - palette).square().sum(dim=2)

        return Classifier(Near(), self.known, Small(), lambda images: images, Near(), torch.nn.Identity())


@pytest.fixture
def folder(tmp_path):
    """A set of textured pictures in the colour of their class; two are in the other's."""
    made = Folder(tmp_path / "pets")
    generate(plan(), Painter(), made)
    rng = np.random.default_rng(0)
    for key in KEYS:
        wrong = key in (CAT, OTHER)
        colour = COLOURS["n02" if key.startswith("n01") == wrong else "n01"]
        cells = Image.fromarray(rng.integers(-35, 36, (6, 6)).astype(np.float32)).resize((64, 64))
        put(made, key, np.clip(np.array(colour) + np.asarray(cells)[:, :, None], 0, 255))
    return made


def put(folder, key, pixels):
    Image.fromarray(np.asarray(pixels, np.uint8)).save(folder.root / "images" / f"{key}.png")
    (folder.root / "masks" / f"{key}.png").unlink(missing_ok=True)
    Image.new("L", (64, 64), 255).save(folder.root / "masks" / f"{key}.png")


def picture(folder, key):
    return np.array(Image.open(folder.root / "images" / f"{key}.png"))


def checks(**changed):
    return Checks(**{"model": ByColour(), "object": 0.5, "attribute": None, "duplicates": False, **changed})


def listed(folder):
    return pd.read_csv(folder.root / "manifest.csv").set_index("image_id")


def ids(folder):
    return set(Generated(str(folder.root)).load().items["image_id"])


def test_images_of_another_class_are_rejected_and_kept_on_the_lists_with_their_reason(folder):
    said = checks().examine(plan(), folder)
    assert said == ("checks: 2 of 24 images rejected (2 no sign of its class); easy 0 of 8, medium 1 of 8, hard 1 of 8")
    table = listed(folder)
    assert set(table.index[table["rejected"].notna()]) == {CAT, OTHER}
    assert table.loc[CAT, "rejected"].startswith("object 0.000 < 0.5")
    assert (table.loc[[CAT, OTHER], "state"] == "drawn").all()
    assert table["accepted"].sum() == 22
    assert (folder.root / "images" / f"{CAT}.png").exists(), "nothing is deleted"
    assert ids(folder) == set(KEYS) - {CAT, OTHER}
    page = (folder.root / "review.html").read_text()
    assert page.count("object 0.000 \\u003c 0.5") == 2


def test_a_person_s_word_goes_before_the_checks(folder):
    checks().examine(plan(), folder)
    (folder.root / "struck.txt").write_text(f"+{CAT}\nn01/view/easy/00-1\n")
    expected = (set(KEYS) | {CAT}) - {OTHER, "n01/view/easy/00-1"}
    assert ids(folder) == expected
    checks().examine(plan(), folder)
    table = listed(folder)
    assert set(table.index[table["accepted"]]) == expected
    (folder.root / "struck.txt").write_text("+n09/view\n")
    with pytest.raises(FcaError, match=r"struck.txt = n09/view"):
        Generated(str(folder.root)).load()


def test_an_image_is_looked_at_once_and_another_limit_decides_anew(folder):
    model = ByColour()
    checks(model=model).examine(plan(), folder)
    assert sum(model.looked) == 24
    lines = len(folder.journal.lines())
    checks(model=model).examine(plan(), folder)
    assert (sum(model.looked), len(folder.journal.lines())) == (24, lines)
    assert "0 of 24 images rejected" in checks(model=model, object=None).examine(plan(), folder)
    assert sum(model.looked) == 24
    assert ids(folder) == set(KEYS)


def test_an_image_that_is_drawn_again_is_looked_at_again(folder):
    model = ByColour()
    checks(model=model).examine(plan(), folder)
    (folder.root / "images" / f"{CAT}.png").unlink()
    assert generate(plan(), Painter(), folder).drawn == 1
    scores, rejected = checked(folder.journal.lines())
    assert (CAT in scores, set(rejected)) == (False, {OTHER})
    assert listed(folder).loc[CAT, "accepted"]
    put(folder, CAT, np.full((64, 64, 3), COLOURS["n01"]))
    checks(model=model).examine(plan(), folder)
    assert sum(model.looked) == 25
    assert set(checked(folder.journal.lines())[1]) == {OTHER}


def test_a_copy_is_rejected_but_not_the_like_of_its_own_triplet(folder):
    first, copy, twin, same = "n01/size/easy/00-1", "n01/view/hard/01-8", "n01/size/medium/00-4", "n01/size/hard/00-7"
    image = picture(folder, first)
    put(folder, copy, Image.fromarray(image).resize((48, 48), Image.Resampling.BICUBIC))
    put(folder, twin, np.clip(image * 0.9, 0, 255))  # darker, as a harder level of light may be
    put(folder, same, image)
    lines = [line for line in folder.journal.lines() if line["kind"] == "image"]
    assert duplicates(folder, lines) == {copy: first, same: first}
    assert duplicates(folder, []) == {}
    said = checks(duplicates=True).examine(plan(), folder)
    assert "4 of 24 images rejected (2 no sign of its class, 2 same picture)" in said
    assert listed(folder).loc[copy, "rejected"] == f"same picture as {first}"


def test_a_model_that_does_not_fit_is_named(folder):
    with pytest.raises(FcaError, match=r"class for checks.model = n01; allowed: .*n03"):
        checks(model=ByColour(known=("n02", "n03"))).examine(plan(), folder)
    with pytest.raises(FcaError, match=r"checks.attribute = 0.1; allowed: null with by_colour"):
        checks(attribute=0.1).check()


@pytest.mark.slow
def test_scores_are_clip_s_own_text_by_text(folder, tmp_path):
    """Two templates, nine prompts a class and attribute; reference: open_clip's own encoders and one softmax each."""
    import torch
    from safetensors.torch import save_file

    from fca.models.open_clip_models import OpenClip
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    import open_clip

    torch.manual_seed(0)
    clip, name = open_clip.create_model("ViT-S-32-alt").eval(), "ViT-S-32-alt"
    save_file(clip.state_dict(), tmp_path / "clip.safetensors")
    templates = ["a photo of a {}.", "one {}"]
    model = OpenClip(name, str(tmp_path / "clip.safetensors"), templates, None, None, None, None, None, None, None)
    made = Checks(model, 0.0, 0.0, False)
    made.check()
    assert "0 of 24" in made.examine(plan(), folder)
    scores, _ = checked(folder.journal.lines())
    tokenizer = open_clip.get_tokenizer(name)
    network = model.naming(["n01", "n02"]).build()

    def logits(image, texts):
        with torch.inference_mode():
            pixels = network.normalise(torch.tensor(network.geometry(image)[0]).permute(2, 0, 1)[None] / 255)
            a, b = clip.encode_image(pixels, normalize=True), clip.encode_text(tokenizer(texts), normalize=True)
            return (clip.logit_scale.exp() * a @ b.T)[0].numpy()

    for key in (CAT, OTHER, KEYS[0]):
        image, (label, attribute, level, _) = picture(folder, key), key.split("/")
        by_class = [np.mean([logits(image, [t.replace("{}", one)])[0] for t in templates]) for one in ("cat", "dog")]
        nine = logits(image, [plan().prompt(label, attribute, number) for number in range(1, 10)])
        own = ["n01", "n02"].index(label)
        third = ["easy", "medium", "hard"].index(level)
        # six decimals are kept; float32 logits of about 14 are right to 1e-5
        assert scores[key]["object"] == pytest.approx(np.exp(by_class[own]) / np.exp(by_class).sum(), abs=1e-4)
        expected = np.exp(nine)[3 * third : 3 * third + 3].sum() / np.exp(nine).sum()
        assert scores[key]["attribute"] == pytest.approx(expected, abs=1e-4)
    assert json.dumps(scores[CAT]["by"]).count("ViT-S-32-alt") == 1


@pytest.mark.slow
def test_the_command_checks_with_a_model_of_the_user_s_choice(fca, tmp_path):
    from fca.studies.generate.commands import generate as door

    (tmp_path / "three.yaml").write_text(
        "name: three\nclasses: {mug: mug, car: car}\nattributes: {size: []}\nper_level: 2"
    )
    words = ["plan.file=three.yaml", "generator.size=32", "workers=1", "checks=clip", "checks.attribute=null"]
    model = ["model@checks.model=test_resnet", "checks.model.input_size=32"]
    code, _, err = fca(*words, *model, door=door)
    assert (code, "model.weights = None" in err) == (2, True), err
    assert len(Folder(tmp_path / "outputs" / "generated" / "three").journal.lines()) == 12, "what was drawn is kept"
    code, _, err = fca(*words[:-1], *model, door=door)
    assert (code, "checks.attribute = 0.05; allowed: null with test_resnet" in err) == (2, True), err
