"""Maps are GradCAM's, of the network as it is used; numbers are those of maps and masks, image by image."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from safetensors.torch import save_file

from fca.cli.configure import load_model
from fca.geometry import ResizeCrop
from fca.store import Store
from fca.studies.reliance.saliency import MAX_PICTURES, OUTLINE, Camera, enlarged, mask_facts, picture
from fca.studies.reliance.stats.reliance import centre_distance, density_gap, mask_iou, mass_inside
from fca.torchvision_ops import imported
from fca.types import FcaError

KEYS = [str(number) for number in range(5)]
WANTED = np.array([0, 1, 2, 3, 4, 0])


def timm(name, size, **kwargs):
    return lambda: replace(load_model("vit_b16"), name=name, kwargs=kwargs, input_size=size)


def stored(name, **keys):
    return lambda: load_model(name, **keys)


SMALL = {"depth": 2, "embed_dim": 48, "num_heads": 3}
SWIN = {"embed_dim": 24, "depths": [1, 1], "num_heads": [2, 4]}
NETWORKS = {  # the layer, and the tokens that are no place
    "resnet": (stored("test_resnet", input_size=96), "layer4", 0),
    "cifar": (stored("cifar_resnet20"), "layer3", 0),
    "vit": (stored("test_vit", input_size=64), "blocks.5.norm1", 1),
    "registers": (timm("vit_tiny_patch16_224", 64, reg_tokens=4, **SMALL), "blocks.1.norm1", 5),
    "distilled": (timm("deit_tiny_distilled_patch16_224", 64, **SMALL), "blocks.1.norm1", 2),
    "convnext": (stored("test_convnext", input_size=96), "norm_pre", 0),
    "swin": (timm("swin_tiny_patch4_window7_224", 56, **SWIN), "norm", 0),
}


def built(name):
    """A network with random weights, its logits spread so that slopes are not tiny, and images."""
    torch.manual_seed(0)
    classifier = NETWORKS[name][0]().build(KEYS)
    with torch.no_grad():
        for weight in classifier.head.parameters():
            weight.normal_(std=3)
    images = torch.rand(6, 3, classifier.input_size, classifier.input_size)
    return classifier, images * torch.linspace(0.2, 1, 6)[:, None, None, None]


@pytest.mark.slow  # imports matplotlib
@pytest.mark.parametrize("name", NETWORKS)
def test_maps_are_those_of_the_grad_cam_library(name):
    imported("torchvision")
    from pytorch_grad_cam import GradCAM
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    classifier, images = built(name)
    camera = Camera(classifier, images[:1], None)
    _, layer, prefix = NETWORKS[name]
    assert (camera.name, camera.prefix) == (layer, prefix)
    found = enlarged(camera(images, WANTED), classifier.input_size).numpy()
    assert (found.max(axis=(1, 2)) == 1).sum() >= 4, "most maps are not zero, so that the comparison means something"
    side = int(camera(images, WANTED).shape[-1])

    def places(output):  # grad-cam wants (batch, channels, height, width)
        if output.ndim == 3:
            return output[:, prefix:].reshape(len(output), side, side, -1).permute(0, 3, 1, 2)
        return output.permute(0, 3, 1, 2) if output.shape[1] == side else output

    module = classifier.module.requires_grad_(True)
    with GradCAM(module, [module.get_submodule(layer)], reshape_transform=places) as library:
        expected = library(classifier.normalise(images), [ClassifierOutputTarget(int(c)) for c in WANTED])
    assert np.abs(found - expected).max() <= 1e-4  # it adds 1e-7 to the maximum, which maps here are far above


def test_the_map_is_the_equation_over_a_literal_loop():
    classifier, images = built("cifar")
    found = Camera(classifier, images[:1], None)(images, WANTED)
    network = classifier.module
    with torch.enable_grad():
        x = torch.relu(network.bn1(network.conv1(classifier.normalise(images))))
        x = network.layer3(network.layer2(network.layer1(x))).detach().requires_grad_()
        logits = network.linear(x.mean((2, 3)))
        for image, column in enumerate(WANTED.tolist()):
            [slope] = torch.autograd.grad(logits[image, column], x, retain_graph=True)
            heat = torch.zeros(8, 8)
            for channel in range(64):
                heat += slope[image, channel].mean() * x[image, channel].detach()
            heat = heat.clamp(min=0)
            expected = (heat - heat.min()) / (heat.max() - heat.min())
            np.testing.assert_allclose(found[image], expected, atol=1e-5)  # float32 sums of 64 terms


def test_a_batch_has_the_maps_of_its_images_one_by_one():
    classifier, images = built("vit")
    camera = Camera(classifier, images[:1], None)
    alone = [camera(images[at : at + 1], WANTED[at : at + 1]) for at in range(len(images))]
    np.testing.assert_allclose(camera(images, WANTED), torch.cat(alone), atol=1e-4)


@pytest.mark.parametrize("name", ["resnet", "vit"])
def test_an_input_that_is_not_normalised_has_another_map(name):
    classifier, images = built(name)
    right = Camera(classifier, images[:1], None)(images, WANTED)
    released = replace(classifier, normalise=lambda pixels: pixels)
    assert (Camera(released, images[:1], None)(images, WANTED) - right).abs().max() > 0.1


def test_a_layer_is_found_by_the_end_of_its_name_or_refused_with_those_that_have_maps():
    classifier, images = built("resnet")
    camera = Camera(classifier, images[:1], "layer3.0")
    assert (camera.name, camera(images, WANTED).shape) == ("layer3.0", (6, 6, 6))
    with pytest.raises(FcaError, match=r"task\.layer = fc; allowed: .*layer4"):
        Camera(classifier, images[:1], "fc")


def test_a_network_without_a_map_is_refused():
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 96 * 96, 5))
    classifier, images = built("resnet")
    with pytest.raises(FcaError, match=r"task\.layer = None; allowed: .*this network has none"):
        Camera(replace(classifier, module=flat), images[:1], None)


def test_a_layer_that_the_logits_do_not_depend_on_is_refused():
    class Aside(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.aside = torch.nn.Conv2d(3, 5, 3), torch.nn.Conv2d(3, 5, 5)

        def forward(self, images):
            self.aside(images)
            return self.used(images).mean((2, 3))

    classifier, images = built("resnet")
    with pytest.raises(FcaError, match=r"task\.layer = aside; .*depend on"):
        Camera(replace(classifier, module=Aside()), images[:1], None)(images, WANTED)


def test_a_constant_map_is_zero_and_never_missing():
    classifier, images = built("cifar")
    with torch.no_grad():
        classifier.head.weight.fill_(-1.0)
    maps = Camera(classifier, images[:1], None)(images, WANTED)
    assert not maps.any()


# Numbers

SHAPE = (3, 5, 6)
MAPS = arrays(np.float32, SHAPE, elements=st.floats(0, 1, width=16))
MASKS = arrays(bool, SHAPE)


@given(MAPS, MASKS)
def test_numbers_are_those_of_loops_over_pixels(maps, masks):
    salient = maps >= 0.5
    found = zip(mask_iou(salient, masks), mass_inside(maps, masks), density_gap(maps, masks), strict=True)
    for (iou, mass, gap), heat, hot, mask in zip(found, maps, salient, masks, strict=True):
        pixels = [(float(h), bool(s), bool(m)) for h, s, m in zip(heat.flat, hot.flat, mask.flat, strict=True)]
        inside, outside = [h for h, _, m in pixels if m], [h for h, _, m in pixels if not m]
        both, either = sum(s and m for _, s, m in pixels), sum(s or m for _, s, m in pixels)
        whole = sum(h for h, _, _ in pixels)
        expected = [
            both / either if inside else np.nan,
            sum(inside) / whole if inside and whole else np.nan,
            np.mean(inside) - np.mean(outside) if inside and outside else np.nan,
        ]
        np.testing.assert_allclose([iou, mass, gap], expected, atol=1e-6)  # float32 values, float64 sums


def test_the_distance_from_the_centre_is_that_of_the_centroid():
    mask = np.zeros((4, 8), bool)
    assert np.isnan(centre_distance(mask))
    mask[0, 0] = True
    assert centre_distance(mask) == pytest.approx(np.hypot(1.5, 3.5) / np.hypot(2, 4), abs=1e-12)
    mask[3, 7] = True
    assert centre_distance(mask) == 0


@pytest.mark.parametrize("squash", [False, True])
def test_what_a_crop_leaves_is_counted_pixel_by_pixel(squash):
    geometry = ResizeCrop(40, 0.5, squash=squash)  # shorter side 80, of which the middle 40 stay
    mask = np.random.default_rng(0).random((80, 160)) > 0.5
    down, right = (slice(20, 60), slice(40, 120)) if squash else (slice(20, 60), slice(60, 100))
    area, kept, centre = mask_facts(mask, geometry)
    assert (area, kept) == (mask.mean(), mask[down, right].sum() / mask.sum())
    assert centre == centre_distance(mask)
    corner = np.zeros_like(mask)
    corner[:5, :5] = True
    assert mask_facts(corner, geometry)[1] == 0
    assert np.isnan(mask_facts(~(mask | ~mask), geometry)[1])


def test_a_picture_has_the_object_s_outline_over_the_heat():
    image, mask = np.full((128, 128, 3), 100, np.uint8), np.zeros((128, 128), bool)
    mask[40:80, 40:80] = True
    heat = np.zeros((4, 4), np.float16)
    shown = picture(image, mask, heat)
    assert (shown[20, 20:40] == OUTLINE).all()
    assert (shown[5, 5] == 100).all()
    assert (picture(image, mask, heat + 1)[5, 5] != 100).any()
    assert (picture(image, mask, None)[30, 30] != 100).any()
    assert (picture(image, mask, None)[5, 5] == 100).all()


# Runs

DATA = ["dataset=rendered", "dataset.classes=[car,lamp]", "dataset.attributes=[size]", "dataset.size=48"]
DATA += ["dataset.per_level=2", "dataset.train_per_class=2", "dataset.val_per_class=2", "logger=none"]
LINE = ["task=saliency", *DATA, "model=test_resnet", "model.input_size=48", "model.classes=[car,lamp]"]


@pytest.fixture
def weights(tmp_path):
    torch.manual_seed(1)
    network = load_model("test_resnet", input_size=48).build(["car", "lamp"]).module
    network.fc.weight.data.abs_()  # activations of layer4 are positive, so no map is all zero
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    return f"model.weights={tmp_path / 'weights.safetensors'}"


def test_a_run_stores_every_image_and_its_headlines_are_means_over_classes(fca, weights, tmp_path):
    code, out, err = fca(*LINE, weights, "task.layer=layer4")
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    [row] = store.rows("task == 'saliency'").to_dict("records")
    assert (row["n_test"], row["chance"], row["saliency_layer"], row["geometry"]) == (
        12,
        0.5,
        "layer4",
        "48-48-bilinear",
    )
    assert f"{row['n_zero']} of 12 maps zero" in out
    kept = {path.stem: np.load(path) for path in store.folder(row["run_id"]).glob("*.npy")}
    masks = np.unpackbits(kept["mask"], axis=1, count=48 * 48).astype(bool)
    np.testing.assert_allclose(kept["mask_area"], masks.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(kept["mask_area_raw"], kept["mask_area"], atol=1e-6)  # no resize, no crop
    assert (kept["retained"] == 1).all()
    assert kept["map"].dtype == np.float16
    assert (kept["zero"] == ~kept["map"].any(axis=(1, 2))).all()
    large = enlarged(torch.from_numpy(kept["map"]).float(), 48).numpy()
    np.testing.assert_allclose(kept["mass"], mass_inside(large, masks.reshape(-1, 48, 48)), atol=2e-3)  # float16 maps
    labels = store.items(row["fingerprint"]).query("split == 'test'")["label"].to_numpy(str)
    for name, column in {"iou": "saliency_iou", "mass": "saliency_mass", "density_gap": "saliency_density_gap"}.items():
        of_classes = [np.nanmean(kept[name][labels == key].astype(float)) for key in ("car", "lamp")]
        assert row[column] == pytest.approx(np.mean(of_classes))
        assert row[f"{column}_low"] <= row[column] <= row[f"{column}_high"]
    assert kept["overlays"].shape == (len(kept["lowest"]), 64, 64, 3)
    assert len(kept["lowest"]) == min(MAX_PICTURES, (~kept["zero"]).sum())
    assert (np.diff(kept["iou"][kept["lowest"]]) >= 0).all()
    assert labels[kept["first"]].tolist() == ["car", "lamp"]
    again = fca(*LINE, weights, "task.layer=layer4", "subset.ncl=2", "seed=3")
    assert (again[0], len(store.rows())) == (0, 1), "neither subset nor seed is part of what it means"


def test_images_without_masks_are_refused_with_the_sets_that_have_them(fca, weights, tmp_path):
    line = ["task=saliency", "dataset=digits", "logger=none", "limit=8", *LINE[len(DATA) + 1 :], weights]
    code, _, err = fca(*line, "model.classes=['0','1']", "model.input_size=48")
    assert code != 0
    assert "a mask for every image, digits has none" in err
    assert "rendered" in err


def test_a_shift_is_predicted_beside_the_maps(fca, weights, tmp_path):
    code, _, err = fca(*LINE, weights, "shift=ablate/gray")
    assert code == 0, err
    rows = Store(tmp_path / "outputs").rows()
    assert sorted(zip(rows["task"], rows["shift"], strict=True)) == [("predict", "ablate/gray"), ("saliency", "clean")]


@pytest.mark.slow
@pytest.mark.parametrize("adaptation", ["scratch", "head"])
def test_a_model_that_is_to_be_trained_is_trained_first_and_its_maps_are_those_of_the_stored_run(
    fca, weights, tmp_path, adaptation
):
    base = LINE[LINE.index("task=saliency") + 1 :] if adaptation == "head" else ["model=test_resnet", "logger=none"]
    words = [*DATA, *base, *([weights] if adaptation == "head" else ["model.input_size=32"]), "shift=ablate/gray"]
    code, _, err = fca("task=saliency", *words, f"adaptation={adaptation}", "recipe.epochs=1", "recipe.min_steps=0")
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    rows = store.rows("task != 'embed'")
    [trained] = rows.loc[rows["task"] == "train", "run_id"]
    assert set(zip(rows["task"], rows["shift"], strict=True)) == {
        ("train", "clean"), ("predict", "clean"), ("predict", "ablate/gray"), ("saliency", "clean"),
    }  # fmt: skip
    assert set(rows.loc[rows["task"] != "train", "parent"]) == {trained}
    assert fca("task=saliency", *DATA, "model=run", f"model.run_id={trained}", "logger=none")[0] == 0
    assert len(store.rows("task == 'saliency'")) == 1, "the same weights, images and layer are the same run"
    code, _, err = fca("task=saliency", *words, f"adaptation={adaptation}", "task.split=val")
    assert code == 2
    assert "task.split = val; allowed: test" in err


@pytest.mark.slow
def test_a_probe_is_seen_through_the_network_under_it(fca, weights, tmp_path):
    words = [*DATA, *LINE[len(DATA) + 1 :], weights]
    code, _, err = fca(*words, "adaptation=probe", "subset=all", "model.classes=null")
    assert code == 0, err
    store = Store(tmp_path / "outputs")
    [probe] = store.rows("task == 'train'")["run_id"]
    code, _, err = fca("task=saliency", *DATA, "model=run", f"model.run_id={probe}", "task.layer=layer3")
    assert code == 0, err
    [row] = store.rows("task == 'saliency'").to_dict("records")
    assert (row["saliency_layer"], row["weights"]) == ("encoder.layer3", f"{probe}/best")
