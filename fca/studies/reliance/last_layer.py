"""A new last layer on a frozen network: by Adam, with core risk minimisation (CoRM, arXiv:2203.15566), or solved."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from fca.finite import OVERFLOW
from fca.progress import track
from fca.training.batches import epoch_rng
from fca.training.devices import device_of
from fca.types import Classifier

STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)  # C, as in arXiv:2204.02937
SUBSAMPLES = 10
Ints = Int[np.ndarray, " images"]
Rows = Int[np.ndarray, " chosen"]  # positions of some of the images
Features = Float[np.ndarray, "images features"]


class Head(NamedTuple):
    """logits = features @ weight.T + bias; the saliency weight and epoch that val chose, and the accuracy there."""

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, " classes"]
    val_top1: float
    saliency_weight: float
    epoch: int


class FeatureBatch(NamedTuple):
    """The features of a batch; for CoRM also the images that they are of, in [0, 1], and their background."""

    features: Float[Tensor, "images features"]
    images: Any = None
    background: Any = None


FeatureSource = Callable[[np.ndarray, int], FeatureBatch]  # positions of images, epoch -> their features


class NoisyFeatures(NamedTuple):
    """Features, by a frozen network, of images with noise on the background: clamp(x + sigma (1 - mask) n, 0, 1).

    input_images: the images (fca.shifts.InputImages).
    probability:  that an image has noise, each image by itself.
    seed:         of the noise.
    """

    classifier: Classifier
    input_images: Any
    sigma: float
    probability: float
    seed: int

    def __call__(self, positions: Ints, draw: int) -> FeatureBatch:
        """The features of a batch.

        positions: which of the images.    draw: which noise, e.g. the number of the epoch.
        """
        rows = self.input_images.rows[positions]
        images = self.input_images.images(rows).clone()
        background = ~self.input_images.masks(rows)[:, None]

        chances = epoch_rng(self.seed, draw, 1).random(len(self.input_images.data.items))[rows]
        noisy = np.flatnonzero(chances < self.probability)
        if len(noisy):
            noise = self.input_images.noise(rows[noisy], self.seed, draw)
            images[noisy] = (images[noisy] + self.sigma * background[noisy] * noise).clamp(0, 1)

        self.classifier.module.eval().requires_grad_(False).to(images.device)
        images.requires_grad_(torch.is_grad_enabled())
        with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be differentiated twice
            features = self.classifier.embed(self.classifier.normalise(images))
        return FeatureBatch(features, images, background)


def background_saliency(
    losses: Float[Tensor, " n"], images: Float[Tensor, "n 3 size size"], background: Bool[Tensor, "n 1 size size"]
) -> Float[Tensor, " n"]:
    """Squared l2 norm of each image's gradient d loss / d x over its background, x in [0, 1]; not scaled by its size.

    It can be differentiated again, so that as a penalty it reaches the weights. (The released code took the mean square
    of `x.grad`, which no gradient leaves.)

    >>> x = torch.ones(1, 3, 2, 2, requires_grad=True)
    >>> background_saliency((x**2).sum((1, 2, 3)), x, torch.tensor([[[[True, False], [False, False]]]])).tolist()
    [12.0]
    """
    [gradient] = torch.autograd.grad(losses.sum(), images, create_graph=True)
    return (gradient * background).square().flatten(1).sum(1)


def stored_features(features: Features, accelerator: str) -> FeatureSource:
    """A source of features that were computed earlier, kept on the device; they are the same in every epoch."""
    on_device = torch.from_numpy(features).to(device_of(accelerator))
    return lambda positions, _: FeatureBatch(on_device[positions])


def train_head(
    train: FeatureSource,
    labels: Ints,
    val: FeatureSource,
    val_labels: Int[np.ndarray, " val"],
    saliency_weights: Sequence[float],
    *,
    epochs: int,
    lr: float,
    weight_decay: float,
    batch_size: int,
    seed: int,
) -> Head | None:
    """Adam on mean cross-entropy + weight * mean `background_saliency`, for all weights on the same batches.

    Of all weights and epochs the one with the highest accuracy on val is kept, of equal ones that with the smaller
    cross-entropy. None if no epoch left finite logits.
    train, val: features of the images with these labels; those of val are read as of epoch 0.
    seed:       of the first weights and the order of the images.
    """
    with torch.no_grad():
        val_batches = np.array_split(np.arange(len(val_labels)), math.ceil(len(val_labels) / batch_size))
        val_features = torch.cat([val(positions, 0).features for positions in val_batches])
    device = val_features.device
    true = torch.from_numpy(labels).to(device)
    val_true = torch.from_numpy(val_labels).to(device)

    # one head for each saliency weight, all with the same first weights
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first_head = nn.Linear(val_features.shape[1], int(labels.max()) + 1).to(device)
    heads = nn.ModuleList(deepcopy(first_head) for _ in saliency_weights)
    optimizer = torch.optim.Adam(heads.parameters(), lr, weight_decay=weight_decay)

    n_batches = math.ceil(len(labels) / batch_size)
    best_score = (-1.0, 0.0)  # accuracy, minus cross-entropy
    best_head: Head | None = None
    for epoch in track(range(1, epochs + 1), "training the last layer"):
        order = epoch_rng(seed, epoch).permutation(len(labels))
        for positions in np.array_split(order, n_batches):
            batch = train(positions, epoch)
            optimizer.zero_grad()
            for head, saliency_weight in zip(heads, saliency_weights, strict=True):
                loss = _loss(head, batch, true[positions], saliency_weight)
                torch.autograd.backward(loss, inputs=list(head.parameters()), retain_graph=True)
            try:
                optimizer.step()
            except RuntimeError as error:
                if OVERFLOW in str(error):  # training diverged: keep the best head until here
                    return best_head
                raise

        # the best head on validation images so far
        for head, saliency_weight in zip(heads, saliency_weights, strict=True):
            logits = head(val_features).detach()
            if not logits.isfinite().all():  # a diverged head; the others may go on
                continue
            val_top1 = float((logits.argmax(1) == val_true).double().mean())
            score = (val_top1, -float(cross_entropy(logits, val_true)))
            if score > best_score:
                weight, bias = (parameter.detach().cpu().numpy().copy() for parameter in head.parameters())
                best_score = score
                best_head = Head(weight, bias, val_top1, saliency_weight, epoch)
    return best_head


def _loss(head: nn.Module, batch: FeatureBatch, true: Tensor, saliency_weight: float) -> Tensor:
    """Mean cross-entropy of a batch, and with its images also saliency_weight * mean `background_saliency`."""
    losses = cross_entropy(head(batch.features), true, reduction="none")
    mean_loss = losses.mean()
    if batch.images is None:
        return mean_loss

    saliency = background_saliency(losses, batch.images, batch.background)
    return mean_loss + saliency_weight * saliency.mean()


def logistic_head(
    x: Features, groups: Ints, val: Float[np.ndarray, "val features"], val_groups: Int[np.ndarray, " val"], seed: int
) -> tuple[Any, Any, float]:
    """Weight, bias and C of the last layer of arXiv:2204.02937: the mean over SUBSAMPLES balanced subsamples.

    On each subsample there is one logistic regression a class, with an l1 penalty on standardised features. A subsample
    has as many images of every group (label = group // 2) as the smallest group has, so that equal groups have a single
    subsample. C is the one of STRENGTHS that is most accurate on the worst group of val, then on all groups, then the
    smallest; it is chosen on the first subsample.
    """
    subsamples = _balanced_subsamples(groups, seed)

    def quality(strength: float) -> tuple[float, float, float]:
        weight, bias = _logistic_layer(x, groups, subsamples[0], strength, seed)
        is_right = (val @ weight.T + bias).argmax(axis=1) == val_groups // 2
        group_accuracies: list[float] = []
        for group in np.unique(val_groups):
            group_accuracies.append(float(is_right[val_groups == group].mean()))
        return min(group_accuracies), float(np.mean(group_accuracies)), -strength

    strength = max(track(STRENGTHS, "choosing C"), key=quality)

    weights: list[Any] = []
    biases: list[Any] = []
    for rows in track(subsamples, "solving"):
        weight, bias = _logistic_layer(x, groups, rows, strength, seed)
        weights.append(weight)
        biases.append(bias)
    return np.mean(weights, axis=0), np.mean(biases, axis=0), strength


def _balanced_subsamples(groups: Ints, seed: int) -> list[Rows]:
    """Distinct random subsamples, as sorted positions, with as many images of every group as the smallest group has."""
    images_by_group = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    smallest = min(map(len, images_by_group))

    subsamples: dict[bytes, Rows] = {}
    for number in range(SUBSAMPLES):
        rng = epoch_rng(seed, number)
        images = np.concatenate([rng.permutation(members)[:smallest] for members in images_by_group])
        rows = np.sort(images)
        subsamples[rows.tobytes()] = rows
    return list(subsamples.values())


def _logistic_layer(x: Features, groups: Ints, rows: Rows, strength: float, seed: int) -> tuple[Any, Any]:
    """Weight and bias of one l1-penalised logistic regression for each class, on these rows.

    The regressions are on z = (x - mean) / scale, so that for features x: weight = w / scale, bias = b - weight mean.
    """
    scaler = StandardScaler().fit(x[rows])
    z = scaler.transform(x[rows])
    labels = groups[rows] // 2

    fits = []
    for label in range(labels.max() + 1):
        regression = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=1000, random_state=seed)
        fits.append(regression.fit(z, labels == label))
    weight = np.concatenate([fit.coef_ for fit in fits]) / scaler.scale_
    bias = np.concatenate([fit.intercept_ for fit in fits]) - weight @ scaler.mean_
    return weight, bias
