"""A new last layer on a frozen network: by Adam, with core risk minimisation (CoRM, arXiv:2203.15566), or solved."""

from __future__ import annotations

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

STRENGTHS, SUBSAMPLES = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01), 10  # C, as in arXiv:2204.02937
Ints = Int[np.ndarray, " images"]
Features = Float[np.ndarray, "images features"]


class Head(NamedTuple):
    """logits = features @ weight.T + bias; the saliency weight and epoch that val chose, and the accuracy there."""

    weight: Float[np.ndarray, "classes features"]
    bias: Float[np.ndarray, " classes"]
    val_top1: float
    saliency_weight: float
    epoch: int


class Seen(NamedTuple):
    """The features of a batch; for CoRM also the images that they are of, in [0, 1], and their background."""

    features: Float[Tensor, "images features"]
    images: Any = None
    background: Any = None


See = Callable[[np.ndarray, int], Seen]


class Noised(NamedTuple):
    """Images with noise on the background, seen by a frozen network: clamp(x + sigma (1 - mask) n, 0, 1).

    shown: the images (fca.shifts.InputImages).    probability: that an image has noise, each by itself.    seed: of it.
    """

    classifier: Classifier
    shown: Any
    sigma: float
    probability: float
    seed: int

    def __call__(self, part: Ints, draw: int) -> Seen:
        """part: which of the shown images.    draw: which noise, e.g. the number of the epoch."""
        rows = self.shown.rows[part]
        images, background = self.shown.images(rows).clone(), ~self.shown.masks(rows)[:, None]
        chances = epoch_rng(self.seed, draw, 1).random(len(self.shown.data.items))[rows]
        if len(noisy := np.flatnonzero(chances < self.probability)):
            noise = self.shown.noise(rows[noisy], self.seed, draw)
            images[noisy] = (images[noisy] + self.sigma * background[noisy] * noise).clamp(0, 1)
        self.classifier.module.eval().requires_grad_(False).to(images.device)
        images.requires_grad_(torch.is_grad_enabled())
        with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be differentiated twice
            return Seen(self.classifier.embed(self.classifier.normalise(images)), images, background)


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


def stored(features: Features, accelerator: str) -> See:
    """Features that were computed before, on the device."""
    held = torch.from_numpy(features).to(device_of(accelerator))
    return lambda part, _: Seen(held[part])


def trained_head(
    see: See, labels: Ints, see_val: See, val_labels: Int[np.ndarray, " val"],
    weights: Sequence[float], *, epochs: int, lr: float, weight_decay: float, batch_size: int, seed: int,
) -> Head | None:  # fmt: skip
    """Adam on mean cross-entropy + weight * mean `background_saliency`, for all `weights` on the same batches.

    Of all weights and epochs the most accurate on val is kept, of equal ones that of the smaller cross-entropy. None
    where no epoch left finite logits.
    see: positions in `labels` and epoch (of val: 0) -> what is seen.    seed: of the first weights and the order.
    """
    with torch.no_grad():
        parts = np.array_split(np.arange(len(val_labels)), -(-len(val_labels) // batch_size))
        val = torch.cat([see_val(part, 0).features for part in parts])
    truth, val_truth = (torch.from_numpy(each).to(val.device) for each in (labels, val_labels))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        first = nn.Linear(val.shape[1], int(labels.max()) + 1).to(val.device)
    heads = nn.ModuleList(deepcopy(first) for _ in weights)
    adam = torch.optim.Adam(heads.parameters(), lr, weight_decay=weight_decay)
    best = (-1.0, 0.0)
    best_head: Head | None = None
    for epoch in track(range(1, epochs + 1), "training the last layer"):
        for part in np.array_split(epoch_rng(seed, epoch).permutation(len(labels)), -(-len(labels) // batch_size)):
            seen = see(part, epoch)
            adam.zero_grad()
            for head, weight in zip(heads, weights, strict=True):
                losses = cross_entropy(head(seen.features), truth[part], reduction="none")
                loss = losses.mean()
                if seen.images is not None:
                    loss = loss + weight * background_saliency(losses, seen.images, seen.background).mean()
                torch.autograd.backward(loss, inputs=list(head.parameters()), retain_graph=True)
            try:
                adam.step()
            except RuntimeError as error:
                if OVERFLOW in str(error):
                    return best_head
                raise
        for head, weight in zip(heads, weights, strict=True):
            logits = head(val).detach()
            if not logits.isfinite().all():
                continue
            right = float((logits.argmax(1) == val_truth).double().mean())
            if (score := (right, -float(cross_entropy(logits, val_truth)))) > best:
                layer = [each.detach().cpu().numpy().copy() for each in head.parameters()]
                best, best_head = score, Head(layer[0], layer[1], right, weight, epoch)
    return best_head


def logistic_head(
    x: Features, groups: Ints, val: Float[np.ndarray, "val features"], val_groups: Int[np.ndarray, " val"], seed: int
) -> tuple[Any, Any, float]:
    """Weight, bias and C of the last layer of arXiv:2204.02937: the mean over SUBSAMPLES balanced subsamples.

    Of each, one logistic regression a class with l1 penalty on standardised features; it has as many images of every
    group (label = group // 2) as the smallest has, so that equal groups have a single one. C: of STRENGTHS that which
    is most accurate on the worst group of val, then on all groups, then the smallest; on the first subsample.
    """
    members = [np.flatnonzero(groups == group) for group in range(groups.max() + 1)]
    size, lots = min(map(len, members)), [epoch_rng(seed, number) for number in range(SUBSAMPLES)]
    drawn = [np.sort(np.concatenate([lot.permutation(its)[:size] for its in members])) for lot in lots]
    drawn = list({rows.tobytes(): rows for rows in drawn}.values())

    def solved(rows: Ints, strength: float) -> tuple[Any, Any]:
        scaler, fixed = StandardScaler().fit(x[rows]), {"solver": "liblinear", "max_iter": 1000, "random_state": seed}
        z, own = scaler.transform(x[rows]), groups[rows] // 2
        fits = [LogisticRegression(C=strength, l1_ratio=1, **fixed).fit(z, own == c) for c in range(own.max() + 1)]
        weight = np.concatenate([fit.coef_ for fit in fits]) / scaler.scale_
        return weight, np.concatenate([fit.intercept_ for fit in fits]) - weight @ scaler.mean_

    def quality(strength: float) -> tuple[float, float, float]:
        weight, bias = solved(drawn[0], strength)
        right = (val @ weight.T + bias).argmax(axis=1) == val_groups // 2
        each = [float(right[val_groups == group].mean()) for group in np.unique(val_groups)]
        return min(each), float(np.mean(each)), -strength

    strength = -max(quality(each) for each in track(STRENGTHS, "choosing C"))[2]
    layers = [solved(rows, strength) for rows in track(drawn, "solving")]
    weight, bias = (np.mean(parts, axis=0) for parts in zip(*layers, strict=True))
    return weight, bias, strength
