"""How fast is fca on this GPU? The whole GPU table: training, prediction, sub-models an hour, all of the paper's runs.

    python experiments/speed/gpu.py            about 15 minutes on a GPU; without one it runs shrunk and fills no cell

1. Images a second of `fit` and `logits_of` at 224 px against a bare PyTorch loop over normalised images that are on
   the device (claim: .95), beside the accuracy of both; and the loop of timm's benchmark.py, written out here as
   timm's package lacks that file: one batch on the device, over and over. Training is in bf16, prediction in float32
   as fca does it, timm's loop in bf16 for both. All are channels-last, without augmentation, in one warm process.
2. Share of the peak: FLOPs (torch.utils.flop_counter, 2 a multiplication) times images a second, over those of a
   measured matrix product: bf16 for training, tf32 for prediction, as convolutions may be computed in that.
3. Sub-models an hour by slots, which are processes on one GPU (CUDA_VISIBLE_DEVICES): ResNet-18, 5 classes, 1,350
   images, 10 epochs, batch 64, prediction of 500 images included; each process first trains one that does not count.
4. The paper's 1,591 runs, from the images a second of 1 and assumptions that are printed.
Images: scikit-learn's digits, enlarged and repeated; an accuracy far above .1 shows that a training works, no more.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from harness import composed, machine, options, timed
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fca.cli.configure import component
from fca.training.batches import Examples
from fca.training.infer import batch_size_of, logits_of
from fca.training.loop import TrainingPlace, fit

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
NETWORKS = {"resnet18": "test_resnet", "convnext_tiny": "test_convnext", "vit_base_patch16": "test_vit"}  # and shrunk
LR, SUBMODEL_CLASSES, SUBMODEL_TEST, SUBMODEL_BATCH = 2e-4, 5, 500, 64
# Few-Class Arena (arXiv:2411.01099): classes and, rounded, training images a class of its ten data sets.
PAPER = {"gtsrb": (43, 620), "cifar100": (100, 500), "imagenet": (1_000, 1_280), "food101": (101, 750)}
PAPER |= {"caltech101": (101, 60), "caltech256": (257, 80), "quickdraw": (345, 1_000), "cub200": (200, 30)}
PAPER |= {"indoor67": (67, 80), "dtd": (47, 80)}
PAPER_RUNS, PAPER_EPOCHS, PAPER_NCL, PAPER_SHARES = 1_591, 100, (2, 3, 4, 5, 10), (0.1, 0.2, 0.4, 0.6, 0.8)


def cell(value, form="{:,.0f}"):
    """Empty on a CPU, where everything ran shrunk and no figure means anything."""
    return form.format(value) if CUDA else ""


def wait():
    if CUDA:
        torch.cuda.synchronize()


def images_of(number, side, classes=10):
    """uint8 pixels and labels of so many digits, enlarged to `side`; those of one split are no images of the other."""
    digits = load_digits()
    inside = np.flatnonzero(digits.target < classes)
    cut = len(inside) * 4 // 5
    found = []
    for rows, wanted in zip((inside[:cut], inside[cut:]), number, strict=True):
        rows = np.resize(rows, wanted)
        small = (digits.images[rows] * 255 / 16).astype(np.uint8)
        at = np.arange(side) * small.shape[1] // side
        found.append((np.repeat(small[:, at][:, :, at, None], 3, axis=3), digits.target[rows].astype(np.int64)))
    return found


def model_of(name, side, *words):
    return component(composed(f"model={name}", f"model.input_size={side}", "model.crop_pct=1.0", *words), "model")


def built(model, classes=10, seed=0):
    torch.manual_seed(seed)
    return model.build([str(i) for i in range(classes)])


def recipe_of(epochs, batch, precision):
    given = {"epochs": epochs, "batch_size": batch, "lr": LR, "precision": precision}
    off = dict.fromkeys(("warmup_epochs", "weight_decay", "grad_clip", "min_steps"), 0)
    return component(composed(*(f"recipe.{key}={value}" for key, value in {**given, **off}.items())), "recipe")


def amp():
    return torch.autocast(DEVICE.type, torch.bfloat16)


def on_device(classifier, pixels):
    """Normalised float images on the device, channels-last: where a bare loop begins."""
    out = torch.empty((len(pixels), 3, *pixels.shape[1:3]), device=DEVICE).to(memory_format=torch.channels_last)
    for start in range(0, len(pixels), 256):
        part = torch.from_numpy(pixels[start : start + 256]).to(DEVICE)
        out[start : start + 256] = classifier.normalise(part.permute(0, 3, 1, 2).float() / 255)
    return out


def bare_train(classifier, images, labels, epochs, batch):
    net = classifier.module.to(DEVICE, memory_format=torch.channels_last).train()
    optimiser = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, -(-len(images) // batch) * epochs)
    for _ in range(epochs):
        for part in torch.randperm(len(images), device=DEVICE).split(batch):
            with amp():
                loss = cross_entropy(net(images[part]), labels[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    wait()


def bare_predict(classifier, images):
    net = classifier.module.eval()
    with torch.inference_mode():
        logits = torch.cat([net(part).cpu() for part in images.split(batch_size_of(images.shape[-1]))])
    return logits.argmax(1).numpy()


def fca_train(classifier, examples, val, recipe):
    with tempfile.TemporaryDirectory() as folder:
        fit(classifier, examples, val, recipe, 0, TrainingPlace(Path(folder)))
    wait()


def timm_loops(classifier, side, batch, steps):
    """Images a second of training and of inference as timm's benchmark.py measures them, in bf16."""
    net = classifier.module.to(DEVICE, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
    images = torch.randn(batch, 3, side, side, device=DEVICE).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (batch,), device=DEVICE)

    def train():
        net.train()
        optimiser.zero_grad()
        with amp():
            loss = cross_entropy(net(images), labels)
        loss.backward()
        optimiser.step()

    def infer():
        with torch.inference_mode(), amp():
            net.eval()(images)

    rates = []
    for step in (train, infer):
        for _ in range(max(1, steps // 4)):
            step()
        wait()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        rates.append(steps * batch / (time.perf_counter() - start))
    return rates


def flops(classifier, side):
    """Of one image: training (forward and backward) and prediction."""
    net, image = classifier.module.to(DEVICE).train(), torch.randn(2, 3, side, side, device=DEVICE)
    with FlopCounterMode(display=False) as both:
        net(image).sum().backward()
    with FlopCounterMode(display=False) as forward, torch.inference_mode():
        net(image)
    return both.get_total_flops() / 2, forward.get_total_flops() / 2


def peak(side, kind):
    """FLOPs a second of a matrix product in bf16 or tf32: the best of five rounds of ten."""
    torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
    a = torch.randn(side, side, device=DEVICE, dtype=torch.bfloat16 if kind == "bf16" else torch.float32)
    best = 0.0
    for _ in range(6):
        wait()
        start = time.perf_counter()
        for _ in range(10):
            a @ a
        wait()
        best = max(best, 10 * 2 * side**3 / (time.perf_counter() - start))
    torch.set_float32_matmul_precision("highest")
    return best


def throughput(size, side, peaks):
    """Sections 1 and 2; returns images a second of fca's training by network."""
    columns = (
        "network",
        "what",
        "fca images/s",
        "bare loop",
        "fca / bare",
        "top1 fca",
        "bare",
        "timm's loop",
        "of peak",
    )
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    data = images_of((size.images, size.test), side)
    number, rates = {"train": size.images * size.epochs, "predict": size.test}, {}
    for name, small in NETWORKS.items():
        model = model_of(name if CUDA else small, side)
        side_by_side(size, model, data)  # warms up: kernels are chosen and memory is reserved
        wall, top1 = side_by_side(size, model, data)
        of_timm, each = timm_loops(built(model), side, size.batch, size.steps), flops(built(model), side)
        for what, timm_rate, operations, most in zip(wall, of_timm, each, peaks, strict=True):
            fca, bare = (number[what] / seconds for seconds in wall[what])
            shown = [cell(fca), cell(bare), cell(fca / bare, "{:.2f}"), *(cell(one, "{:.3f}") for one in top1)]
            shown += [cell(timm_rate), cell(fca * operations / most, "{:.0%}")]
            print(f"| {name} | {what} | {' | '.join(shown)} |", flush=True)
            rates.setdefault(name, fca)
    return rates


def side_by_side(size, model, data):
    """Seconds of fca and of the bare loop, in training and prediction; top1 of both."""
    (pixels, labels), (unseen, true) = data
    recipe, rows = recipe_of(size.epochs, size.batch, "bf16-mixed"), np.arange(size.test)
    ours, plain = built(model), built(model)
    examples = Examples(pixels, np.arange(size.images), labels)
    val = Examples(pixels, np.arange(min(64, size.images)), labels[:64])
    wall = {"train": [timed(fca_train, ours, examples, val, recipe).wall]}
    predicted = [timed(logits_of, ours, unseen, rows)]
    images, shown = on_device(plain, pixels), on_device(plain, unseen)
    on_gpu = torch.from_numpy(labels).to(DEVICE)
    wall["train"].append(timed(bare_train, plain, images, on_gpu, size.epochs, size.batch).wall)
    predicted.append(timed(bare_predict, plain, shown))
    wall["predict"] = [one.wall for one in predicted]
    return wall, [float((found == true).mean()) for found in (predicted[0].result.argmax(1), predicted[1].result)]


def worker(side, runs, epochs, images, threads, barrier):
    """In a process of its own: sub-models one after another; wall seconds from the barrier, and their mean top1."""
    torch.set_num_threads(threads)
    train, test = images_of((images, min(images, SUBMODEL_TEST)), side, SUBMODEL_CLASSES)
    examples = Examples(train[0], np.arange(images), train[1])
    val = Examples(train[0], np.arange(0, images, 10), train[1][::10])
    recipe = recipe_of(epochs, SUBMODEL_BATCH, "bf16-mixed")
    stem = ["model.stem=cifar"] if CUDA and side < 128 else []
    model = model_of("resnet18" if CUDA else "test_resnet", side, *stem)

    def one(seed):
        classifier = built(model, SUBMODEL_CLASSES, seed)
        fca_train(classifier, examples, val, recipe)
        logits = logits_of(classifier, test[0], np.arange(len(test[0])))
        return float((logits.argmax(1) == test[1]).mean())

    one(0)
    barrier.wait()
    start = time.perf_counter()
    top1 = [one(seed) for seed in range(1, runs + 1)]
    return time.perf_counter() - start, np.mean(top1)


def slots(size, sides, counts):
    """Section 3. The processes inherit CUDA_VISIBLE_DEVICES: they are slots of one GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    print("\n| sub-models an hour | " + " | ".join(f"{n} slot{'s' * (n > 1)}" for n in counts) + " | top1 |")
    print("|---" * (len(counts) + 2) + "|")
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(max(counts), mp_context=context) as pool:
        for side in sides:
            cells, right = [], []
            for count in counts:
                barrier, threads = manager.Barrier(count), max(1, (os.cpu_count() or 1) // count)
                work = (side, size.runs, size.submodel_epochs, size.submodel_images, threads, barrier)
                found = [job.result() for job in [pool.submit(worker, *work) for _ in range(count)]]
                cells.append(cell(3600 * count * size.runs / max(seconds for seconds, _ in found)))
                right += [top1 for _, top1 in found]
            print(f"| {side} px | {' | '.join(cells)} | {cell(np.mean(right), '{:.2f}')} |", flush=True)


def paper(rates):
    """Section 4: hours of all runs, were each a training, on one GPU and by one network."""
    grid = {}
    for name, (classes, each) in PAPER.items():
        sizes = [*PAPER_NCL, *(round(share * classes) for share in PAPER_SHARES)]
        grid[name] = PAPER_RUNS / len(PAPER) * np.mean(sizes) * each * PAPER_EPOCHS
    print(
        f"\nThe paper's {PAPER_RUNS:,} runs on one GPU. Assumed: all are {PAPER_EPOCHS} epochs of training at 224 px,"
    )
    print(f"spread equally over ten data sets and over ncl {PAPER_NCL} and shares {PAPER_SHARES} of the classes;")
    print("training images a class: " + ", ".join(f"{name} {each}" for name, (_, each) in PAPER.items()) + ".")
    print(f"{sum(grid.values()):.3g} images, {sum(grid.values()) - grid['imagenet']:.3g} of them not of ImageNet.")
    print("\n| by the images/s of | hours | hours without ImageNet |\n|---|---|---|")
    for name, rate in rates.items():
        hours = [sum(grid.values()) / rate / 3600, (sum(grid.values()) - grid["imagenet"]) / rate / 3600]
        print(f"| {name} | {' | '.join(cell(one) for one in hours)} |")


def main():
    if not CUDA:
        sys.argv.append("--smoke")
    size = options(
        __doc__,
        images=(8_192, 32),
        test=(4_096, 32),
        epochs=(3, 1),
        batch=(128, 16),
        steps=(40, 1),
        runs=(4, 1),
        submodel_images=(1_350, 32),
        submodel_epochs=(10, 1),
        product=(8_192, 128),
    )
    tiny = size.smoke or not CUDA
    name = torch.cuda.get_device_name(0) if CUDA else "no GPU: all of it runs shrunk on the CPU, the cells stay empty"
    print(f"{name}; torch {torch.__version__}, CUDA {torch.version.cuda}")
    peaks = [peak(size.product, kind) for kind in ("bf16", "tf32")]
    print(f"measured peak, TFLOP/s: bf16 {cell(peaks[0] / 1e12)}, tf32 {cell(peaks[1] / 1e12)}")
    rates = throughput(size, 32 if tiny else 224, peaks)
    slots(size, (32,) if tiny else (32, 64, 224), (1, 2) if tiny else (1, 2, 4, 8))
    paper(rates)
    print()
    machine()


if __name__ == "__main__":
    main()
