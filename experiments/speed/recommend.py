"""How long does `fca recommend` take from nothing, where does the time go, and how long is it the second time?

    python experiments/speed/recommend.py                             digits, 36 of each class and split
    python experiments/speed/recommend.py --images photos.zip         a folder or archive of your own

1. Stages in wall seconds: images (listed, decoded, described), compiling, latency, probes (of which forward passes and
   ridge fits), training, answer and page. Claims: 3 minutes for 360 images, 5 s for the same command again.
2. What a user would write instead for three of the candidates: timm's networks at their usual size in PyTorch, every
   image decoded, a RidgeClassifierCV on the features. Seconds a candidate, as a ratio.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from harness import machine, options, timed
from sklearn.linear_model import RidgeClassifierCV

from fca.cli.application import composed
from fca.cli.configure import component, load_data, load_model
from fca.store import results
from fca.studies.recommend.commands.recommend import Search

NETWORKS = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")
BATCH = 32


def stages(words, asked):
    """Wall seconds of each stage of one recommendation."""
    config = composed("recommend", asked)
    search = Search(config, words, component(config, "analysis"))
    done = {"networks": timed(lambda: print(search.opening)).wall}
    done["images"] = timed(search.describe).wall
    done["compiling"] = timed(lambda: search.subjects).wall
    done["latency"] = timed(search.measure).wall
    done["probes"] = timed(search.probe).wall
    done["training"] = timed(search.train).wall
    weighing = timed(search.compare)
    now = weighing.result
    done["learning curve"] = timed(search.measure_curve, now).wall
    done["answer and page"] = weighing.wall + timed(search.answer, now).wall
    return done, len(search.subjects)


def by_hand(data, network):
    """Accuracy on test images of a ridge classifier on timm's features, as a user would write it."""
    encoder = load_model(network, weights="package").build()
    encoder.module.eval()
    features = []
    with torch.inference_mode():
        for at in range(0, len(data.items), BATCH):
            rows = range(at, min(at + BATCH, len(data.items)))
            pixels = np.stack([encoder.geometry(data.read(row))[0] for row in rows])
            batch = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
            features.append(encoder.embed(encoder.normalise(batch)).numpy())
    values, is_test = np.concatenate(features), (data.items["split"] == "test").to_numpy()
    ridge = RidgeClassifierCV(np.logspace(-2, 4, 7)).fit(values[~is_test], data.labels[~is_test])
    return ridge.score(values[is_test], data.labels[is_test])


def main():
    given = options(__doc__, images=("", ""), limit=(36, 6), sizes=(3, 0), networks=(3, 1), latency_ms=(0.0, 0.0))
    words = ["dataset=folder", f"dataset.root={given.images}"]
    if not given.images:
        words = ["dataset=digits", f"limit={given.limit}"]
    precisions = "[fp32]" if given.smoke else "[fp32,int8]"
    names = NETWORKS[: given.networks]
    with tempfile.TemporaryDirectory() as folder:
        words += ["logger=none", f"outputs={folder}/outputs", "machine.accelerator=cpu"]
        asked = [f"outputs={folder}/outputs", f"sizes={given.sizes}", f"precisions={precisions}", "threads=1"]
        asked += [f"packages=[{','.join(names)}]"] + [f"latency_ms={given.latency_ms}"] * bool(given.latency_ms)
        first, candidates = stages(words, asked)
        again, _ = stages(words, asked)
        rows = results(Path(folder, "outputs"))
        data = load_data("folder", root=given.images) if given.images else load_data("digits")
        peers = [timed(by_hand, data, name) for name in names] if given.images else []
    passes = rows.loc[rows["task"] == "embed", "predict_s"].sum()
    fits = rows.loc[rows["task"] == "train", "train_s"].sum()
    probed = int((rows["task"] == "train").sum())
    print(f"{candidates} candidates, {probed} of them probed")
    for stage, seconds in first.items():
        print(f"{stage:16} {seconds:7.1f} s   again {again[stage]:5.1f} s")
    print(f"{'  forward passes':16} {passes:7.1f} s\n{'  ridge fits':16} {fits:7.1f} s")
    whole, repeated = sum(first.values()), sum(again.values())
    print(f"{'in all':16} {whole:7.1f} s   again {repeated:5.1f} s")
    for name, peer in zip(names, peers, strict=False):
        print(f"by hand, {name}: {peer.wall:.1f} s, test accuracy {peer.result:.3f}")
    if peers:
        each = np.mean([peer.wall for peer in peers])
        ratio = each / (whole / candidates)
        print(f"seconds a candidate by hand, {each:.1f}, are {ratio:.1f} times those of fca recommend")
    machine()


if __name__ == "__main__":
    main()
