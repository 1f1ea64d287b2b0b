"""The saliency penalty reaches the weights, noise stays on the background, images are balanced, solvers are exact."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.nn.functional import cross_entropy

from fca.studies.reliance import last_layer as remedies
from fca.studies.reliance.last_layer import (
    FeatureBatch,
    NoisyFeatures,
    background_saliency,
    logistic_head,
    stored_features,
    train_head,
)
from fca.studies.reliance.remedies import balanced_images
from fca.training.batches import epoch_rng
from fca.types import ImageData
from tests.support.tiny import Square

SIZE = 8
ADAM = {"epochs": 3, "lr": 0.01, "weight_decay": 1e-4, "batch_size": 8}


class Shown:
    """Images and masks that a test made."""

    def __init__(self, images, masks, seed=0):
        import pandas as pd

        items = pd.DataFrame({"image_id": range(len(images)), "label": "a", "split": "train"})
        self.data = ImageData("made", items, ("a",), "f", read=lambda _: None)
        self._images, self._masks, self.rows = images, masks, np.arange(len(images))

    def images(self, rows):
        return self._images[rows]

    def masks(self, rows):
        return self._masks[rows]

    def noise(self, rows, seed, draw):
        shape = tuple(self._images.shape[1:])
        drawn = [epoch_rng(seed, draw, int(row)).standard_normal(shape, dtype=np.float32) for row in rows]
        return torch.from_numpy(np.stack(drawn))


def network(dtype=torch.float32):
    """Smooth, so that finite differences are good; frozen, in eval mode."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
    return body.to(dtype).eval().requires_grad_(False)


def classifier(body):
    from fca.types import Classifier

    return Classifier(body, (), Square(), lambda x: (x - 0.5) / 0.25, body, None)


@pytest.fixture
def scene():
    """Double precision: images, background, labels, frozen features, weight and bias of a layer on them."""
    torch.manual_seed(1)
    images = torch.rand(4, 3, SIZE, SIZE, dtype=torch.float64)
    background = torch.rand(4, 1, SIZE, SIZE) < 0.6
    layer = [torch.randn(3, 20, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    return images, background, torch.tensor([0, 1, 2, 0]), network(torch.float64), layer


def penalty_of(scene, weight):
    images, background, labels, body, (_, bias) = scene
    images = images.clone().requires_grad_()
    losses = cross_entropy(nn.functional.linear(body(images), weight, bias), labels, reduction="none")
    return background_saliency(losses, images, background)


def test_the_penalty_is_the_squared_norm_of_each_image_s_own_gradient_over_its_background(scene):
    images, background, labels, body, (weight, bias) = scene
    found = penalty_of(scene, weight)
    for i in range(len(images)):
        one = images[i : i + 1].clone().requires_grad_()
        cross_entropy(nn.functional.linear(body(one), weight, bias), labels[i : i + 1]).backward()
        kept = one.grad[0].numpy() * background[i].numpy()
        assert found[i].item() == pytest.approx(float((kept**2).sum()), rel=1e-9)  # float64, 192 terms


def test_the_gradient_of_the_penalty_reaches_the_weights_and_agrees_with_finite_differences(scene):
    weight = scene[4][0].clone().requires_grad_()
    [gradient] = torch.autograd.grad(penalty_of(scene, weight).mean(), weight)
    assert gradient.abs().max() > 1e-4
    step = 1e-5
    for place in [(0, 0), (1, 7), (2, 19)]:
        ends = []
        for sign in (1, -1):
            moved = weight.detach().clone()
            moved[place] += sign * step
            ends.append(penalty_of(scene, moved).mean().item())
        difference = (ends[0] - ends[1]) / (2 * step)
        assert gradient[place].item() == pytest.approx(difference, rel=1e-5, abs=1e-9)  # error of order step²


def test_through_x_grad_as_released_the_gradient_of_the_penalty_is_exactly_zero(scene):
    """The defect: `backward` without create_graph leaves an x.grad that no gradient can leave."""
    images, background, labels, body, (weight, bias) = scene
    images, weight = images.clone().requires_grad_(), weight.clone().requires_grad_()
    cross_entropy(nn.functional.linear(body(images), weight, bias), labels).backward()
    penalty = (images.grad * background).square().mean()
    assert penalty > 0
    assert not penalty.requires_grad
    weight.grad = None
    (penalty + 0 * weight.sum()).backward()  # added to a loss, as the released code did
    assert (weight.grad == 0).all()


def noised(probability, sigma=0.25, seed=3, n=64):
    torch.manual_seed(2)
    shown = Shown(torch.rand(n, 3, SIZE, SIZE), torch.rand(n, SIZE, SIZE) < 0.4)
    return NoisyFeatures(classifier(network()), shown, sigma, probability, seed)


def test_noise_is_on_the_background_of_half_of_the_images_each_by_itself_and_in_range():
    see = noised(0.5, n=200)
    every = np.arange(200)
    with torch.no_grad():
        seen = see(every, 1)
    changed = (seen.images != see.input_images._images).any(dim=1)
    assert not (changed & see.input_images._masks).any()
    assert 0 <= seen.images.min() <= seen.images.max() <= 1
    share = changed.flatten(1).any(dim=1).float().mean().item()
    assert share == pytest.approx(0.5, abs=4 * 0.036)  # four standard errors of 200 fair coins
    noise = see.input_images.noise(every, 3, 1)
    expected = (see.input_images._images + 0.25 * noise * ~see.input_images._masks[:, None]).clamp(0, 1)
    at = changed.flatten(1).any(dim=1)
    torch.testing.assert_close(seen.images[at], expected[at])


def test_an_image_has_the_same_noise_in_any_batch_and_another_in_every_epoch():
    see = noised(0.5)
    with torch.no_grad():
        whole, part, later = see(np.arange(64), 1), see(np.array([9, 4, 33]), 1), see(np.arange(64), 2)
    torch.testing.assert_close(whole.images[[9, 4, 33]], part.images)
    assert (whole.images != later.images).any()


def test_training_with_the_penalty_lowers_the_gradient_on_the_background_of_rendered_images():
    from fca.cli.configure import load_data

    data = load_data("rendered", classes=["car", "mug"], per_level=1, train_per_class=8, val_per_class=2, size=32)
    every, n = [*data.rows("train").tolist(), *data.rows("val").tolist()], len(data.rows("train"))
    pixels = torch.from_numpy(np.stack([data.read(i) for i in every])).permute(0, 3, 1, 2).float() / 255
    masks = torch.from_numpy(np.stack([data.mask(i) for i in every]))
    shown, labels = Shown(pixels, masks), data.labels[every]
    body = network()
    see = NoisyFeatures(classifier(body), shown, 0.25, 0.5, 0)
    see_val = lambda part, _: see._replace(probability=1.0)(part + n, 0)  # noqa: E731
    norms = []
    for weight in (0.0, 100.0):
        adam = {"epochs": 5, "lr": 0.02, "weight_decay": 0.0, "batch_size": 12, "seed": 0}
        head = train_head(see, labels[:n], see_val, labels[n:], [weight], **adam)
        assert head.saliency_weight == weight
        images = pixels.clone().requires_grad_()
        layer = torch.from_numpy(head.weight), torch.from_numpy(head.bias)
        logits = nn.functional.linear(body((images - 0.5) / 0.25), *layer)
        losses = cross_entropy(logits, torch.from_numpy(labels), reduction="none")
        norms.append(background_saliency(losses, images, ~masks[:, None]).mean().item())
    assert norms[1] < 0.9 * norms[0], norms


def test_fused_attention_cannot_be_differentiated_twice_and_is_not_used():
    from fca.cli.configure import load_model

    built = load_model("test_vit", input_size=32).build(["a", "b"])
    shown = Shown(torch.rand(2, 3, 32, 32), torch.rand(2, 32, 32) < 0.3)
    see = NoisyFeatures(built, shown, 0.25, 1.0, 0)
    weight = torch.randn(2, see(np.arange(1), 0).features.shape[1], requires_grad=True)

    def gradient(seen):
        losses = cross_entropy(seen.features @ weight.T, torch.tensor([0, 1]), reduction="none")
        return torch.autograd.grad(background_saliency(losses, seen.images, seen.background).mean(), weight)[0]

    assert gradient(see(np.arange(2), 1)).abs().max() > 0
    images = shown._images.clone().requires_grad_()
    fused = FeatureBatch(built.embed(built.normalise(images)), images, ~shown._masks[:, None])
    with pytest.raises(RuntimeError, match="derivative"):
        gradient(fused)  # when this passes, torch can do it and `sdpa_kernel` may go


def held(n=24, features=6, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    x = rng.normal(size=(n, features)).astype(np.float32) + 1.5 * np.eye(classes, features, dtype=np.float32)[labels]
    return x, labels


def test_a_head_is_torch_s_own_layer_trained_in_a_plain_loop_and_val_chooses_the_epoch():
    (x, labels), (val, val_labels) = held(), held(seed=1)
    tensors, truth = torch.from_numpy(x), torch.from_numpy(labels)
    held_val = torch.from_numpy(val)
    found = train_head(
        stored_features(x, "cpu"), labels, stored_features(val, "cpu"), val_labels, [0.0], seed=5, **ADAM
    )
    torch.manual_seed(5)
    layer = nn.Linear(6, 3)
    stepper, best = torch.optim.Adam(layer.parameters(), 0.01, weight_decay=1e-4), (-1.0, 0.0)
    for epoch in (1, 2, 3):
        order = epoch_rng(5, epoch).permutation(24)
        for part in (order[:8], order[8:16], order[16:]):
            stepper.zero_grad()
            cross_entropy(layer(tensors[part]), truth[part]).backward()
            stepper.step()
        logits = layer(held_val).detach()
        score = np.mean(logits.argmax(1).numpy() == val_labels), -cross_entropy(logits, torch.tensor(val_labels)).item()
        if score > best:
            best, kept = score, (layer.weight.detach().numpy().copy(), epoch)
    np.testing.assert_allclose(found.weight, kept[0], rtol=1e-5, atol=1e-6)  # float32
    assert (found.epoch, found.val_top1) == (kept[1], best[0])


@given(st.lists(st.integers(0, 2), min_size=2, max_size=40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_balanced_images_are_the_ends_of_every_ranking_as_many_of_each_and_none_twice(labels, most, random):
    labels = np.array(labels)
    rank = np.array([float(random.randrange(20)) for _ in labels])
    kept, group = balanced_images(labels, rank, most)
    assert len(set(kept.tolist())) == len(kept)
    for label in set(labels.tolist()):
        own = rank[labels == label]
        k = min(most, len(own) // 2)
        top, bottom = (np.sort(rank[kept[group == 2 * label + end]]) for end in (1, 0))
        assert top.tolist() == np.sort(own)[:k].tolist()
        assert bottom.tolist() == np.sort(own)[len(own) - k :].tolist()


def by_hand(x, labels, strength):
    scaler = StandardScaler().fit(x)
    fits = [
        LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=1000, random_state=0)
        .fit(scaler.transform(x), labels == c) for c in range(labels.max() + 1)
    ]  # fmt: skip
    return lambda z: np.stack([fit.decision_function(scaler.transform(z)) for fit in fits], axis=1)


def test_the_logistic_layer_of_equal_groups_is_one_regression_on_all_of_them():
    (x, labels), (val, val_labels) = held(60), held(60, seed=1)
    groups, val_groups = (2 * of + np.arange(60) // 3 % 2 for of in (labels, val_labels))
    weight, bias, strength = logistic_head(x, groups, val, val_groups, seed=0)
    scores = {}
    for candidate in remedies.STRENGTHS:
        right = by_hand(x, labels, candidate)(val).argmax(axis=1) == val_labels
        of_groups = [right[val_groups == g].mean() for g in range(6)]
        scores[candidate] = (min(of_groups), np.mean(of_groups), -candidate)
    assert strength == max(scores, key=scores.get)
    np.testing.assert_allclose(
        val @ weight.T + bias, by_hand(x, labels, strength)(val), rtol=1e-4, atol=1e-4
    )  # float32 x


def test_the_logistic_layer_of_unequal_groups_is_the_mean_of_ten_balanced_subsamples(monkeypatch):
    x, labels = held(60)
    groups = 2 * labels + (np.arange(60) // 3 % 4 > 0)
    drawn = []
    monkeypatch.setattr(remedies, "STRENGTHS", (0.3,))
    fit = StandardScaler.fit
    monkeypatch.setattr(StandardScaler, "fit", lambda self, z: (drawn.append(z), fit(self, z))[1])
    weight, bias, _ = logistic_head(x, groups, x, groups, seed=0)
    draws = drawn[1:]
    assert len(draws) == 10
    of = {row.tobytes(): group for row, group in zip(x, groups, strict=True)}
    for z in draws:
        assert np.bincount([of[row.tobytes()] for row in z]).tolist() == [5] * 6
    monkeypatch.undo()
    logits = [by_hand(z, np.array([of[row.tobytes()] // 2 for row in z]), 0.3)(x) for z in draws]
    np.testing.assert_allclose(x @ weight.T + bias, np.mean(logits, axis=0), rtol=1e-3, atol=1e-4)  # float32 x


def test_a_trained_layer_whose_logits_are_no_numbers_is_none():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2
    see = stored_features(features * np.float32(1e38), "cpu")
    given = {"epochs": 2, "weight_decay": 0.0, "batch_size": 4, "seed": 0}
    assert train_head(see, labels, see, labels, [0.0], lr=1e38, **given) is None
    assert train_head(
        stored_features(features, "cpu"), labels, stored_features(features, "cpu"), labels, [0.0], lr=1e-2, **given
    )
