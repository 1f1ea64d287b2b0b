"""Is a study of small networks faster with fca than with MMPreTrain's own runner, at the same accuracy?

    FCA_REAL_DATA=... python experiments/speed/mmpretrain_runner.py            20 minutes on 2 cores, 3 once to install

MMPreTrain 1.2.0 is in an environment of its own that this script makes (--peer names one that exists; with --smoke it
is left out). Whole processes, start-up included: `fca run`, and `fca run -m` with its usual launcher (basic: one after
the other in one process) against a process a run. The same 1,500 images of the first 5 classes of cifar10.zip, 10 % of
them drawn by fca as val for both; ResNet-18 with a CIFAR stem of width 16, batch 64, 5 epochs, SGD with Nesterov
momentum .9 at .05 with a cosine to 0, no weight decay, no augmentation. In an epoch both train on 1,350 images, score
150 and keep the best weights; at the end both score 5,000 test images with these. MMPreTrain has its images in memory
as arrays, with --workers 0: processes that load would have to start. A probe is fca's ridge classifier on features of
the network that the first run trained, one for each of 20 subsets of 5 of the 10 classes; its top1 is of those.
Wanted: one run at most .70 of MMPreTrain's wall time, twenty .50, twenty probes 1/50; measured: .86, .55 and 1/25.
"""

import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from harness import machine, options, real_data

ROOT = Path(__file__).resolve().parents[2]
PEER = ("torch==2.13.0", "torchvision==0.28.0", "mmengine", "mmcv-lite", "mmpretrain==1.2.0")
CLASSES, WIDTH, BATCH, LR, MEAN, STD = 5, 16, 64, 0.05, 0.47, 0.25
RUN = (
    *("-m", "fca.cli.main", "run", "logger=none", "model=resnet18", "model.stem=cifar", "model.input_size=32"),
    *(f"+model.kwargs.channels={[WIDTH * 2**k for k in range(4)]}".replace(" ", ""), "model.crop_pct=1.0"),
    *(f"model.mean={[MEAN] * 3}".replace(" ", ""), f"model.std={[STD] * 3}".replace(" ", "")),
    *("recipe.optimiser=sgd", "recipe.weight_decay=0", "recipe.warmup_epochs=0", "recipe.grad_clip=0"),
    *(f"recipe.batch_size={BATCH}", f"recipe.lr={LR}", "recipe.min_steps=0"),
)


def spent(command, folder):
    """Wall and CPU seconds of a process of its own."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    after, wall = os.times(), time.perf_counter() - start
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def peer_python(folder):
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *constraints, *PEER], check=True)
    return python


def peer(path, seed, epochs, workers):
    """A training as mmpretrain's tools/train.py does it, then its test; runs in the peer's environment."""
    sys.path.append(str(ROOT))  # its torchvision needs what ours needs beside a CPU build of torch
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    import torch
    from mmengine.config import Config
    from mmengine.dataset import BaseDataset
    from mmengine.runner import Runner
    from mmpretrain.registry import DATASETS

    stored = np.load(path)

    class Arrays(BaseDataset):
        """Images in memory, as mmpretrain's own CIFAR10 has them."""

        METAINFO = {"classes": tuple(map(str, range(CLASSES)))}  # noqa: RUF012

        def __init__(self, part, **others):
            self.part = part
            super().__init__(**others)

        def load_data_list(self):
            images, labels = stored[f"{self.part}_images"], stored[f"{self.part}_labels"]
            return [{"img": image, "gt_label": int(y)} for image, y in zip(images, labels, strict=True)]

    DATASETS.register_module(module=Arrays)
    steps = -(-len(stored["train_labels"]) // BATCH)
    pipeline = [{"type": "PackInputs"}]

    def loader(part, size, shuffle):
        data = {"type": "Arrays", "part": part, "pipeline": pipeline}
        sampler = {"type": "DefaultSampler", "shuffle": shuffle}
        return {"batch_size": size, "num_workers": int(workers), "dataset": data, "sampler": sampler}

    channels = {"depth": 18, "stem_channels": WIDTH, "base_channels": WIDTH, "num_stages": 4, "out_indices": (3,)}
    backbone = {"type": "ResNet_CIFAR", **channels, "style": "pytorch"}
    loss = {"type": "CrossEntropyLoss", "loss_weight": 1.0}
    head = {"type": "LinearClsHead", "num_classes": CLASSES, "in_channels": 8 * WIDTH, "loss": loss, "topk": (1,)}
    optimiser = {"type": "SGD", "lr": LR, "momentum": 0.9, "nesterov": True, "weight_decay": 0.0}
    cosine = {"type": "CosineAnnealingLR", "T_max": steps * int(epochs), "by_epoch": False}
    checkpoint = {"type": "CheckpointHook", "interval": int(epochs), "save_best": "auto"}
    neck = {"type": "GlobalAveragePooling"}
    scale = {"mean": [255 * MEAN] * 3, "std": [255 * STD] * 3}
    config = {
        "default_scope": "mmpretrain",
        "model": {"type": "ImageClassifier", "backbone": backbone, "neck": neck, "head": head},
        "data_preprocessor": {"num_classes": CLASSES, **scale, "to_rgb": False},
        "train_dataloader": loader("train", BATCH, True),
        "val_dataloader": loader("val", 256, False),
        "test_dataloader": loader("test", 256, False),
        "train_cfg": {"by_epoch": True, "max_epochs": int(epochs), "val_interval": 1},
        "val_cfg": {},
        "test_cfg": {},
        "val_evaluator": {"type": "Accuracy", "topk": (1,)},
        "test_evaluator": {"type": "Accuracy", "topk": (1,)},
        "optim_wrapper": {"optimizer": optimiser},
        "param_scheduler": cosine,
        "default_hooks": {"checkpoint": checkpoint, "logger": {"type": "LoggerHook", "interval": 100}},
        "randomness": {"seed": int(seed)},
        "work_dir": f"{path}.{seed}",
        "log_level": "ERROR",
    }
    runner = Runner.from_cfg(Config(config))
    runner.train()
    best = next(Path(config["work_dir"]).glob("best_*.pth"))
    runner.model.load_state_dict(torch.load(best, weights_only=False)["state_dict"])  # its own load_checkpoint cannot
    Path(f"{path}.{seed}.top1").write_text(str(runner.test()["accuracy/top1"] / 100))


def stored(path, words):
    """The images that fca uses, by its own splits, for the peer."""
    from fca import load_data
    from fca.data.splits import for_training

    data = for_training(load_data("folder", root=words))
    parts = {}
    for part in ("train", "val", "test"):
        rows = data.rows(part, range(CLASSES))
        parts |= {f"{part}_images": np.stack([data.read(i) for i in rows]), f"{part}_labels": data.labels[rows]}
    np.savez(path, **parts)


def top1(folder, query):
    import fca

    return fca.results(Path(folder) / "outputs", query)["top1"].mean()


def show(name, ours, theirs, accuracies):
    ratio = ""
    if theirs is not None:
        wall, cpu = np.divide(ours, theirs)
        ratio = f"; MMPreTrain {theirs[0]:.1f} s ({theirs[1]:.1f} CPU): {wall:.3f} times ({cpu:.3f} CPU)"
    print(f"{name}: fca {ours[0]:.1f} s ({ours[1]:.1f} CPU){ratio}; top1 {accuracies}", flush=True)


def main():
    folder = Path.home() / ".cache" / "fca" / "mmpretrain-1.2.0"
    size = options(__doc__, peer=(folder, folder), runs=(20, 2), processes=(5, 1), epochs=(5, 1), workers=(0, 0))
    if real_data() is None and not size.smoke:
        sys.exit("set FCA_REAL_DATA to the folder of images/ and weights/, or shrink with --smoke")
    archive = None if size.smoke else real_data() / "images" / "cifar10.zip"
    data = ["dataset=digits", "limit=20"] if size.smoke else ["dataset=folder", f"dataset.root={archive}"]
    run = [sys.executable, *RUN, *data, f"recipe.epochs={size.epochs}"]
    five = [f"subset.ncl={CLASSES}"] if size.smoke else [f"subset.classes={list(range(CLASSES))}".replace(" ", "")]
    with tempfile.TemporaryDirectory() as place:
        theirs, known = [], []
        if not size.smoke:
            python, path = peer_python(size.peer), f"{place}/images.npz"
            stored(path, str(archive))
        ours = []
        for seed in range(size.processes):
            ours.append(spent([*run, *five, f"seed={1000 + seed}"], place))
            if not size.smoke:
                theirs.append(spent([python, __file__, "peer", path, seed, size.epochs, size.workers], place))
                known.append(float(Path(f"{path}.{seed}.top1").read_text()))
        peer_once = np.median(theirs, axis=0) if theirs else None
        shown = f", MMPreTrain {np.mean(known):.3f}" if known else ""
        mean = top1(place, "task == 'train'")
        show(f"one run (median of {size.processes})", np.median(ours, axis=0), peer_once, f"{mean:.3f}{shown}")
        peer_all = None if peer_once is None else size.runs * peer_once
        grid = spent([*run, "-m", *five, f"seed=range(0,{size.runs})"], place)
        mean = top1(place, "task == 'train' and seed < 1000")
        show(f"{size.runs} runs (MMPreTrain: {size.runs} times one)", grid, peer_all, f"{mean:.3f}{shown}")
        import fca

        trained = fca.results(Path(place) / "outputs", "task == 'train' and seed == 1000")["run_id"].iloc[0]
        model = ["model=run", f"model.run_id={trained}", "adaptation=probe", f"subset.ncl={CLASSES}"]
        command = [sys.executable, "-m", "fca.cli.main", "run", "-m", "logger=none", *data, *model]
        probes = spent([*command, f"subset.seed=range(0,{size.runs})"], place)
        mean = top1(place, "adaptation == 'probe'")
        show(f"{size.runs} probes", probes, peer_all, f"{mean:.3f}{shown}")
    machine()


if __name__ == "__main__":
    peer(*sys.argv[2:]) if sys.argv[1:2] == ["peer"] else main()
