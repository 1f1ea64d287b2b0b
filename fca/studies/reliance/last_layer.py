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
    """A trained last layer: logits = features @ weight.T + bias.

    saliency_weight, epoch: those with the highest accuracy on validation images (val_top1).
    """

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, " classes"]
    val_top1: float
    saliency_weight: float
    epoch: int


class FeatureBatch(NamedTuple):
    """The features of a batch of images.

    images, background: for CoRM the pixels in [0, 1], and a mask that is True off the object; None without CoRM.
    """

    features: Float[Tensor, "images features"]
    images: Any = None
    background: Any = None


FeatureSource = Callable[[np.ndarray, int], FeatureBatch]  # positions of images, epoch -> their features


class NoisyFeatures(NamedTuple):
    """A source of features, which a frozen network computes from images with noise on their backgrounds.

        x_noisy = clamp(x + sigma (1 - mask) n, 0, 1),   n standard normal

    input_images: the images x and the masks of their objects (fca.shifts.InputImages).
    probability:  with which an image has noise in an epoch, each image independently.
    seed:         of the noise, and of which images have it.
    """

    classifier: Classifier
    input_images: Any
    sigma: float
    probability: float
    seed: int

    def __call__(self, positions: Ints, draw: int) -> FeatureBatch:
        """The features of a batch, with the images from which they were computed and the masks of their backgrounds.

        With the given probability an image x gets noise of standard deviation sigma on its background:
        clamp(x + sigma (1 - mask) n, 0, 1), n standard normal. Where gradients are enabled, the features can be
        differentiated with respect to the images.

        positions: of the batch's images among all images of the source.
        draw:      which noise, e.g. the number of the epoch. The same draw always gives the same noise.
        """
        rows = self.input_images.rows[positions]  # positions in the items of the data
        images = self.input_images.images(rows).clone()
        background = ~self.input_images.masks(rows)[:, None]

        # Numbers are drawn for all images of the data, so that an image's number does not depend on its batch.
        # The 1 keeps these numbers apart from those that order the images of an epoch, whose key is (seed, epoch)
        rng = epoch_rng(self.seed, draw, 1)
        random_numbers = rng.random(len(self.input_images.data.items))
        noisy = np.flatnonzero(random_numbers[rows] < self.probability)  # positions in the batch
        if len(noisy):
            noise = self.input_images.noise(rows[noisy], self.seed, draw)
            images[noisy] = (images[noisy] + self.sigma * background[noisy] * noise).clamp(0, 1)

        self.classifier.module.eval().requires_grad_(False).to(images.device)
        images.requires_grad_(torch.is_grad_enabled())
        # training differentiates a squared gradient, and fused attention cannot be differentiated twice
        with sdpa_kernel(SDPBackend.MATH):
            features = self.classifier.embed(self.classifier.normalise(images))
        return FeatureBatch(features, images, background)


def background_saliency(
    losses: Float[Tensor, " n"], images: Float[Tensor, "n 3 size size"], background: Bool[Tensor, "n 1 size size"]
) -> Float[Tensor, " n"]:
    """For each image the squared l2 norm of the gradient d loss / d x over its background, not divided by its size.

    It can be differentiated again: as a penalty in a loss it changes the weights. (The released code took the mean
    square of `x.grad`, through which no gradient flows to the weights.)

    losses:     of each image.
    images:     the pixels x in [0, 1].
    background: True off the object.

    >>> x = torch.ones(1, 3, 2, 2, requires_grad=True)
    >>> background_saliency((x**2).sum((1, 2, 3)), x, torch.tensor([[[[True, False], [False, False]]]])).tolist()
    [12.0]
    """
    [gradient] = torch.autograd.grad(losses.sum(), images, create_graph=True)
    return (gradient * background).square().flatten(1).sum(1)


def stored_features(features: Features, accelerator: str) -> FeatureSource:
    """A source of features that were computed earlier; they are the same in every epoch.

    features:    of all images; they are kept on the device.
    accelerator: as configured, such as "auto".
    """
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
    """A last layer trained by Adam on the features of a frozen network; None if no epoch ended with finite logits.

        loss = mean_i CE_i + saliency_weight * mean_i ||background_i * d CE_i / d x_i||^2

    CE_i is the cross-entropy of image i, x_i its pixels, background_i is 1 off its object and 0 on it. The second term
    (core risk minimisation) is left out for features that come without images.

    One layer is trained for each of the saliency weights, all on the same batches. Of all weights and epochs the layer
    with the highest accuracy on validation images is returned, of equal ones that with the smallest cross-entropy.

    train, val:       called as train(positions, epoch), they give the features of training and of validation images.
                      For core risk minimisation the images have random noise, which is drawn anew for each epoch.
    labels:           class of each training image.
    val_labels:       class of each validation image.
    saliency_weights: candidates; [0.0] for features without images.
    seed:             of the initial weights and the order of the images.
    """
    with torch.no_grad():
        val_batches = np.array_split(np.arange(len(val_labels)), math.ceil(len(val_labels) / batch_size))
        # computed once, with the noise of epoch 0 if there is noise: all epochs are judged on the same features
        val_features = torch.cat([val(positions, 0).features for positions in val_batches])
    device = val_features.device
    true = torch.from_numpy(labels).to(device)
    val_true = torch.from_numpy(val_labels).to(device)

    # one head for each saliency weight, all with the same initial weights
    with torch.random.fork_rng():  # does not change the random numbers of others
        torch.manual_seed(seed)
        first_head = nn.Linear(val_features.shape[1], int(labels.max()) + 1).to(device)
    heads = nn.ModuleList(deepcopy(first_head) for _ in saliency_weights)
    optimizer = torch.optim.Adam(heads.parameters(), lr, weight_decay=weight_decay)

    n_batches = math.ceil(len(labels) / batch_size)
    best_score = (-1.0, 0.0)  # (accuracy, -cross-entropy); any head beats this first pair
    best_head: Head | None = None
    for epoch in track(range(1, epochs + 1), "training the last layer"):
        order = epoch_rng(seed, epoch).permutation(len(labels))
        for positions in np.array_split(order, n_batches):
            batch = train(positions, epoch)
            optimizer.zero_grad()
            for head, saliency_weight in zip(heads, saliency_weights, strict=True):
                loss = _loss(head, batch, true[positions], saliency_weight)
                # gradients of this head alone; the graph of the features is kept for the next head
                torch.autograd.backward(loss, inputs=list(head.parameters()), retain_graph=True)
            try:
                optimizer.step()
            except RuntimeError as error:
                if OVERFLOW in str(error):  # a step beyond float32: training diverged; the best head until here counts
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
    """Mean cross-entropy of a batch; if it has images (CoRM), plus saliency_weight * mean `background_saliency`.

    true: class of each image.
    """
    losses = cross_entropy(head(batch.features), true, reduction="none")
    mean_loss = losses.mean()
    if batch.images is None:
        return mean_loss

    saliency = background_saliency(losses, batch.images, batch.background)
    return mean_loss + saliency_weight * saliency.mean()


def logistic_head(
    x: Features, groups: Ints, val: Float[np.ndarray, "val features"], val_groups: Int[np.ndarray, " val"], seed: int
) -> tuple[Any, Any, float]:
    """The last layer of deep feature reweighting (arXiv:2204.02937), solved by logistic regressions.

    Returns weight, bias, and the inverse penalty C. Weight and bias are means over balanced subsamples of the training
    images, up to SUBSAMPLES of them. A subsample has as many images of every group as the smallest group has; if all
    groups are equally large, there is a single one. On each subsample there is one logistic regression for each class,
    with an l1 penalty on standardised features.

    C is chosen among STRENGTHS on the first subsample: it has the highest accuracy on the worst group of validation
    images; of equal ones the highest mean accuracy over groups, then the smallest C.

    x, val:     features of the training and of the validation images.
    groups:     group of each training image: 2 label + 1 with strong cues, 2 label with weak ones.
    val_groups: the same for each validation image.
    """
    subsamples = _balanced_subsamples(groups, seed)

    def quality(strength: float) -> tuple[float, float, float]:
        """Accuracy on the worst validation group, mean accuracy over these groups, and -C; the largest is chosen."""
        weight, bias = _logistic_layer(x, groups, subsamples[0], strength, seed)
        val_labels = val_groups // 2
        is_right = (val @ weight.T + bias).argmax(axis=1) == val_labels
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
    """Up to SUBSAMPLES different random subsamples with equally many images of every group, as sorted positions.

    A subsample has as many images of a group as the smallest group has. If all groups are equally large, there is only
    one subsample: all images.

    groups: the group of each image.
    """
    images_by_group = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    smallest = min(map(len, images_by_group))

    subsamples: dict[bytes, Rows] = {}  # keyed by their positions, which drops repetitions
    for number in range(SUBSAMPLES):
        rng = epoch_rng(seed, number)
        images = np.concatenate([rng.permutation(members)[:smallest] for members in images_by_group])
        rows = np.sort(images)
        subsamples[rows.tobytes()] = rows
    return list(subsamples.values())


def _logistic_layer(x: Features, groups: Ints, rows: Rows, strength: float, seed: int) -> tuple[Any, Any]:
    """Weight and bias of a layer whose outputs are one l1-penalised logistic regression for each class.

    Each regression separates the images of a class from all others. It is fitted to standardised features
    z = (x - mean) / scale with weights w and intercept b, so that for the features x: weight = w / scale and
    bias = b - weight @ mean.

    groups:   group of each image; the label of an image is group // 2.
    rows:     positions of the images to fit to.
    strength: inverse penalty C.
    seed:     of the order in which the solver visits the features.
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
