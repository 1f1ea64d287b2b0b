import math

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as reference

from fca.training.augment import AFFINE, IMAGENET, OPERATIONS, Augment, draw_crops
from fca.training.batches import DRAWS_PER_IMAGE, warp
from fca.training.changes import apply, apply_changes, crop_and_resize, erase

SIZE = 12
ROUNDING = 1e-4  # sampling points are float32 in [-1, 1], off by up to SIZE * 6e-8 pixels times the steepest edge, 1


def images(n, size=SIZE):
    return torch.from_numpy(np.random.default_rng(0).random((n, 3, size, size), dtype=np.float32))


def draws(n, **columns):
    names = ("flip", "shift_x", "shift_y", "area", "aspect", "place_x", "place_y")
    return torch.stack([torch.as_tensor(columns.get(name, 0.9)).float().expand(n) for name in names], 1)


def test_a_flip_is_torchvision_s():
    shown = images(4)
    out = warp(shown, draws(4, flip=torch.tensor([0.0, 0.49, 0.5, 0.99])), flip=True, shift=0.0, scale_min=1.0)
    torch.testing.assert_close(out[:2], reference.horizontal_flip(shown[:2]), atol=ROUNDING, rtol=0)
    torch.testing.assert_close(out[2:], shown[2:], atol=ROUNDING, rtol=0)


@pytest.mark.parametrize("size", [8, 12, 33])
def test_every_whole_pixel_shift_is_torchvision_s_pad_and_crop(size):
    reach = 2
    uniform = [(k + 0.5) / (2 * reach + 1) for k in range(2 * reach + 1)]
    shown = images(1, size)
    padded = reference.pad(shown, reach)
    for row, y in enumerate(uniform):
        for column, x in enumerate(uniform):
            out = warp(shown, draws(1, shift_x=x, shift_y=y), flip=False, shift=reach / size, scale_min=1.0)
            expected = reference.crop(padded, row, column, size, size)
            torch.testing.assert_close(out, expected, atol=ROUNDING, rtol=0)


def test_a_crop_is_torchvision_s_resized_crop_away_from_its_edge():
    shown = images(1)
    scale_min, area, place_x, place_y = 0.25, 0.0, 0.5, 1.0  # the smallest square: 6 of 12 pixels, bottom centre
    chosen = draws(1, area=area, aspect=0.5, place_x=place_x, place_y=place_y)
    out = warp(shown, chosen, flip=False, shift=0.0, scale_min=scale_min)
    expected = reference.resized_crop(shown, 6, 3, 6, 6, [SIZE, SIZE], antialias=False)
    # At its edge torchvision repeats the crop's own pixels, we blend in the image's next ones.
    torch.testing.assert_close(out[:, :, 1:-1, 1:-1], expected[:, :, 1:-1, 1:-1], atol=ROUNDING, rtol=0)


def test_crops_stay_inside_the_image_and_cover_the_asked_areas():
    n = 4000
    ones = torch.ones(n, 3, SIZE, SIZE)
    ramp = ((torch.arange(SIZE) + 0.5) / SIZE).expand(n, 3, SIZE, SIZE)
    chosen = torch.from_numpy(np.random.default_rng(1).random((n, DRAWS_PER_IMAGE), dtype=np.float32))
    across = warp(ramp, chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, SIZE // 2]
    down = warp(ramp.transpose(2, 3), chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, :, SIZE // 2]
    inner = warp(ones, chosen, flip=False, shift=0.0, scale_min=0.3)[:, 0, 1:-1, 1:-1]
    torch.testing.assert_close(inner, torch.ones_like(inner), atol=ROUNDING, rtol=0)
    # The ramp's slope inside the window is the window's share of the side.
    width, height = ((line[:, 7] - line[:, 4]) * SIZE / 3 for line in (across, down))
    area, aspect = width * height, (width / height).log()
    assert area.min() > 0.3 * 0.99
    assert area.max() <= 1 + ROUNDING
    assert float(aspect.abs().max()) <= math.log(4 / 3) + 0.01
    assert float(aspect.abs().max()) > math.log(4 / 3) - 0.05
    # Areas below 3/4 fit whatever their aspect, so they are as uniform as they were drawn.
    for bound in (0.4, 0.5, 0.7):
        assert float((area < bound).double().mean()) == pytest.approx((bound - 0.3) / 0.7, abs=0.03)  # 4 deviations


def test_shifts_are_equally_likely():
    n = 6000
    dot = torch.zeros(n, 3, 5, 5)
    dot[:, :, 2, 2] = 1
    chosen = torch.from_numpy(np.random.default_rng(2).random((n, DRAWS_PER_IMAGE), dtype=np.float32))
    out = warp(dot, chosen, flip=False, shift=0.4, scale_min=1.0)
    share = out[:, 0].sum(0) / n
    torch.testing.assert_close(share, torch.full((5, 5), 1 / 25), atol=0.012, rtol=0)  # 5 deviations of 6000 draws


def test_half_precision_does_not_move_the_window():
    shown, chosen = images(2, 32), draws(2, flip=0.1, shift_x=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = warp(shown, chosen, flip=True, shift=0.125, scale_min=1.0)
    torch.testing.assert_close(out, warp(shown, chosen, flip=True, shift=0.125, scale_min=1.0))


SHAPES = [(9, 31), (40, 8), (13, 13), (50, 77), (224, 150), (8, 9)]


def packed(photos):
    """Pixels one after another, where each image begins, and widths."""
    sizes = [photo.shape[0] * photo.shape[1] for photo in photos]
    flat = torch.from_numpy(np.concatenate([photo.reshape(-1, 3) for photo in photos]))
    return flat, np.cumsum([0, *sizes[:-1]]), [photo.shape[1] for photo in photos]


@pytest.mark.parametrize("size", [7, 16, 65])
def test_crops_of_any_shapes_are_torchvision_s_resized_crop_and_flip(size):
    rng = np.random.default_rng(3)
    photos = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    height, width = np.array(SHAPES).T
    boxes = draw_crops(rng.random((len(SHAPES), 22)), height, width, 0.1)
    mirrored = np.arange(len(SHAPES)) % 2
    flat, start, across = packed(photos)
    out = crop_and_resize(flat, torch.from_numpy(np.column_stack([start, across, boxes, mirrored])), size)
    for photo, box, flip, ours in zip(photos, boxes.tolist(), mirrored, out, strict=True):
        image = torch.from_numpy(photo).permute(2, 0, 1)
        exact = reference.resized_crop(image.float(), *box, [size, size], antialias=False)
        exact = reference.horizontal_flip(exact) if flip else exact
        # Rounded once: half a level, and float32's error of a sum of four products of up to 255.
        assert float((ours.permute(2, 0, 1) - exact).abs().max()) <= 0.5 + 1e-3


@pytest.mark.parametrize("shape", [(50, 50), (40, 60), (90, 30)])
def test_crops_have_the_distribution_of_torchvision_s_random_resized_crop(shape):
    n = 1000
    torch.manual_seed(0)
    theirs = v2.RandomResizedCrop(8, scale=(0.3, 1.0))
    image = torch.zeros(3, *shape)
    expected = np.array([list(theirs.make_params([image]).values()) for _ in range(n)])
    uniform = np.random.default_rng(4).random((n, 22))
    ours = draw_crops(uniform, np.full(n, shape[0]), np.full(n, shape[1]), 0.3)
    for column in range(4):  # two samples of n: the largest distance of their distributions is below 1.63 sqrt(2 / n)
        assert ks_2samp(ours[:, column], expected[:, column]).statistic < 1.63 * math.sqrt(2 / n)  # p = .01
    area = [values[:, 2] * values[:, 3] for values in (ours, expected)]
    assert ks_2samp(*area).statistic < 1.63 * math.sqrt(2 / n)
    assert ((ours[:, :2] >= 0) & (ours[:, :2] + ours[:, 2:] <= shape)).all()


def test_erased_rectangles_have_torchvision_s_distribution_and_hold_noise_and_no_other_pixel_changes():
    n, size = 1000, 40
    torch.manual_seed(0)
    theirs, image = v2.RandomErasing(p=1.0), torch.zeros(3, size, size)
    drawn = [theirs.make_params([image]) for _ in range(n)]
    expected = np.array([[params[name] for name in "ijhw"] for params in drawn])
    changes = Augment("none", 0, 0, 0.0, 0.25).draw_changes(np.random.default_rng(5), 4 * n, size)
    chosen = changes.erased[changes.erased[:, 2] > 0]
    assert len(chosen) == pytest.approx(n, abs=4 * math.sqrt(4 * n * 0.25 * 0.75))  # 4 deviations
    for column in range(4):
        assert ks_2samp(chosen[:, column], expected[:, column]).statistic < 1.63 * math.sqrt(2 / n)
    batch = torch.zeros(40, 3, size, size)
    out = erase(batch.clone(), changes.erased[:40])
    for image, (top, left, height, width) in zip(out, changes.erased[:40], strict=True):
        inside = torch.zeros(size, size, dtype=bool)
        inside[top : top + height, left : left + width] = True
        assert torch.equal(image != 0, inside.expand(3, -1, -1))
    noise = out[out != 0]
    assert float(noise.mean()) == pytest.approx(0, abs=5 / math.sqrt(len(noise)))
    assert float(noise.std()) == pytest.approx(1, abs=5 / math.sqrt(2 * len(noise)))


def photographs(n, size):
    """Smooth in part, so that operations on levels and edges have something to work on; uint8."""
    rough = torch.rand(n, 3, 6, 6, generator=torch.Generator().manual_seed(6))
    noise = torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(7))
    smooth = torch.nn.functional.interpolate(rough, size=size, mode="bicubic")
    return (255 * (0.9 * smooth + 0.1 * noise)).clamp(0, 255).to(torch.uint8)


NAMES = {"Identity": "identity", "ShearX": "shear_x", "ShearY": "shear_y", "TranslateX": "translate_x"}
NAMES |= {"TranslateY": "translate_y", "AutoContrast": "autocontrast"}


def theirs(name, image, strength):
    """torchvision's operation of its policies on one image."""
    policy = v2.RandAugment()
    return policy._apply_image_or_video_transform(image, name, strength, "nearest", policy._fill)


@pytest.mark.parametrize("policy", [v2.RandAugment, v2.TrivialAugmentWide, v2.AutoAugment])
def test_operations_agree_with_torchvision_s_at_every_strength(policy):
    size = 27
    bins = 10 if policy is v2.AutoAugment else 31
    for name, (magnitudes, signed) in policy._AUGMENTATION_SPACE.items():
        values = magnitudes(bins, size, size)
        values = np.zeros(1) if values is None else values.double().numpy()
        values = np.concatenate([values, -values]) if signed else values
        values = np.trunc(values) if name.startswith("Translate") else values
        shown = photographs(len(values), size)
        ours = apply(NAMES.get(name, name.lower()), shown, values) if name != "Identity" else shown
        expected = torch.stack([theirs(name, *pair) for pair in zip(shown, values.tolist(), strict=True)])
        differ = (ours.int() - expected.int()).abs()
        if NAMES.get(name, name.lower()) in (*AFFINE, "identity"):
            # The nearest of two pixels at equal distance is a matter of float32's last digit.
            assert float((differ > 0).float().mean()) < 0.01, name
        else:
            assert int(differ.max()) <= 1, name  # a product just below a whole level is cut off to the one under it


def test_policies_choose_operations_and_strengths_as_torchvision_does():
    size, n = 32, 40000
    rng = np.random.default_rng(8)
    spaces = {"randaugment": (v2.RandAugment, 9), "trivial": (v2.TrivialAugmentWide, None)}
    for name, (policy, level) in spaces.items():
        changes = Augment(name, 2, 9, 0.0, 0.0).draw_changes(rng, n, size)
        space = policy._AUGMENTATION_SPACE
        counts = np.bincount(changes.operation.ravel(), minlength=len(space))
        assert len(counts) == len(space)
        expected = changes.operation.size / len(space)
        assert np.abs(counts - expected).max() < 5 * math.sqrt(expected)  # Poisson
        for number, (theirs, (magnitudes, signed)) in enumerate(space.items()):
            assert OPERATIONS[number] == NAMES.get(theirs, theirs.lower())
            values = magnitudes(31, size, size)
            found = changes.strength[changes.operation == number]
            if values is None:
                continue
            allowed = values.double().numpy() if level is None else values[[level]].double().numpy()
            # torchvision's linspace in float32 makes 15.999999 of TrivialAugment's 16 pixels.
            allowed = np.trunc(allowed + 1e-5) if theirs.startswith("Translate") else allowed
            both = np.concatenate([allowed, -allowed]) if signed else allowed
            np.testing.assert_allclose(np.unique(found.round(5)), np.unique(both.round(5)), atol=2e-5)
            if signed:
                below = float((found < 0).mean()) + float((found == 0).mean()) / 2
                assert below == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(len(found)))


def test_autoaugment_has_torchvision_s_pairs_for_imagenet_and_their_probabilities():
    pairs = [
        tuple((word[i], int(word[i + 1]) / 10, int(word[i + 2])) for i in (0, 3))
        for word in map(str.split, IMAGENET.split(","))
    ]
    expected = v2.AutoAugment()._policies
    assert pairs == [tuple((NAMES.get(n, n.lower()), p, level or 0) for n, p, level in pair) for pair in expected]
    n = 20000
    changes = Augment("autoaugment", 0, 0, 0.0, 0.0).draw_changes(np.random.default_rng(9), n, 32)
    for place in (0, 1):
        for number, name in enumerate(OPERATIONS[1:15], 1):
            share = sum(pair[place][1] for pair in pairs if pair[place][0] == name) / len(pairs)
            found = float((changes.operation[:, place] == number).mean())
            assert found == pytest.approx(share, abs=4.5 * math.sqrt((share + 1e-4) / n)), name


def test_three_augment_is_grey_solarize_or_blur_and_jitter_follows():
    n, size = 90, 33
    shown = photographs(n, size)
    augment = Augment("three_augment", 0, 0, 0.3, 0.0)
    changes = augment.draw_changes(np.random.default_rng(10), n, size)
    assert sorted({OPERATIONS[k] for k in changes.operation[:, 0]}) == ["blur", "grayscale", "solarize"]
    assert {tuple(sorted(OPERATIONS[k] for k in row)) for row in changes.operation[:, 1:]} == {
        ("brightness", "color", "contrast")
    }
    assert len({tuple(row) for row in changes.operation[:, 1:]}) == 6
    assert np.abs(changes.strength[:, 1:]).max() <= 0.3
    out = (apply_changes(shown / 255, changes) * 255).round()
    jitter = {"brightness": reference.adjust_brightness, "contrast": reference.adjust_contrast}
    jitter["color"] = reference.adjust_saturation
    for image, operation, strength, ours in zip(shown, changes.operation, changes.strength, out, strict=True):
        first = OPERATIONS[operation[0]]
        if first == "grayscale":
            expected = reference.rgb_to_grayscale(image, 3)
        elif first == "solarize":
            expected = reference.solarize(image, 128)
        else:
            expected = reference.gaussian_blur(image, [13, 13], [strength[0]] * 2)
        for number, change in zip(operation[1:], strength[1:], strict=True):
            expected = jitter[OPERATIONS[number]](expected, 1 + change)
        # A level after each of four operations, enlarged by the factors of those that follow, at most 1.3.
        assert float((ours - expected).abs().max()) <= 1 + 1.3 + 1.3**2 + 1.3**3


def test_what_is_drawn_for_an_image_does_not_depend_on_the_batch_it_is_changed_in():
    n, size = 12, 16
    shown = photographs(n, size) / 255
    changes = Augment("randaugment", 3, 20, 0.4, 0.0).draw_changes(np.random.default_rng(11), n, size)
    whole = apply_changes(shown, changes)
    single = [apply_changes(shown[i : i + 1], type(changes)(*(part[i : i + 1] for part in changes))) for i in range(n)]
    torch.testing.assert_close(whole, torch.cat(single), atol=0, rtol=0)


def test_mixed_precision_does_not_change_operations():
    n, size = 40, 16
    shown = photographs(n, size) / 255
    for policy in ("randaugment", "three_augment"):
        changes = Augment(policy, 3, 20, 0.4, 0.0).draw_changes(np.random.default_rng(12), n, size)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = apply_changes(shown, changes)
        torch.testing.assert_close(out, apply_changes(shown, changes), atol=0, rtol=0)


def test_nothing_is_drawn_or_changed_without_augmentation():
    augment = Augment("none", 0, 0, 0.0, 0.0)
    assert augment.label() is None
    changes = augment.draw_changes(np.random.default_rng(0), 4, 8)
    shown = images(4, 8)
    assert apply_changes(shown, changes) is shown
    assert torch.equal(erase(shown.clone(), changes.erased), shown)
