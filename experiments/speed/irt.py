"""Does an item response model of every image cost seconds, and predict as well as the peer that costs minutes?

    FCA_REAL_DATA=... python experiments/speed/irt.py            about 6 CPU minutes, and 2 once to install the peer

The peer is py-irt 0.7.1 from PyPI (Lalor and Rodriguez 2023), in an environment of its own that this script makes
(--peer names one that exists; with --smoke or --peer none it is left out). CPU seconds of the fit alone, one thread,
each in a process of its own: neither imports nor the peer's reading of its JSON lines count. It runs as documented:
2pl, hierarchical priors, initial difficulties from the items' means, 2,000 epochs (its default; at 90 x 10,000 --epochs
of them, scaled).
Expect: 90 x 10,000 under 4 CPU s and 30 times less; every model of 90 x 9,824 under 10; of 65 x 50,000 2pl under 10 and
700 MB, 3pl-upper under 20, label errors under 60; on hidden cells a lower nll than the peer's and than a guess from
the margins.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np
from harness import apart, machine, options, real_data, timed

PEER = ("torch==2.13.0", "py-irt==0.7.1")
DEFAULT_EPOCHS = 2000  # py_irt.config.IrtConfig
SHARE, SEED = 0.1, 0  # hidden cells


def fit_ours(responses, model):
    """CPU seconds of a fit (median of three below a million cells), the steps, and (theta, a, b)."""
    from fca.studies.irt.stats import fit_irt

    fits = [timed(fit_irt, responses, model) for _ in range(3 if 1e4 < responses.size < 1e6 else 1)]
    fit = fits[0].result
    return float(np.median([one.cpu for one in fits])), _steps(fit, "steps"), _parameters(fit)


def fit_compat(responses, model):
    """CPU seconds of one fit, the sweeps, and (theta, a, b) of seeds 0 and 1."""
    from fca.studies.irt.stats.variational import fit_variational

    fits = [timed(lambda seed=seed: fit_variational(responses, model, seed=seed)) for seed in (0, 1)]
    seconds = np.mean([one.cpu for one in fits])
    return seconds, _steps(fits[0].result, "sweeps"), *(_parameters(one.result) for one in fits)


def _steps(fit, name):
    return f"{fit.iterations} {name}, {'converged' if fit.converged else 'NOT converged'}"


def _parameters(fit):
    return fit.ability, fit.discrimination, fit.difficulty


def fit_peer(path, model, epochs):
    """Runs in the peer's environment. Its last parameters (what it saves), and those of its lowest loss."""
    import pyro
    import torch
    from py_irt.config import IrtConfig
    from py_irt.training import IrtModelTrainer

    torch.set_num_threads(1)
    pyro.set_rng_seed(0)
    responses, lines = np.load(path), Path(f"{path}.jsonlines")
    known = [{f"i{i}": int(row[i]) for i in np.flatnonzero(~np.isnan(row))} for row in responses]
    lines.write_text("\n".join(json.dumps({"subject_id": f"s{s}", "responses": row}) for s, row in enumerate(known)))
    settings = {"priors": "hierarchical", "lr": 0.1, "initializers": ["difficulty_sign"]}
    config = IrtConfig(model_type=model, epochs=int(epochs), **settings)
    trainer = IrtModelTrainer(data_path=lines, config=config, verbose=False)
    start = time.process_time()
    trainer.train(device="cpu")
    spent = time.process_time() - start
    found = {}
    for name, parameters in (("last", trainer.last_params), ("best", trainer.best_params)):
        for key, names in (("ability", "subject_ids"), ("disc", "item_ids"), ("diff", "item_ids")):
            place = [int(one[1:]) for _, one in sorted(parameters[names].items())]
            found[f"{name}_{key}"] = np.asarray(parameters[key])[np.argsort(place)]
    np.savez(f"{path}.found.npz", spent=spent, **found)


def of_peer(python, responses, epochs=DEFAULT_EPOCHS):
    """CPU seconds of py-irt, and (theta, a, b) at its end and at its lowest loss."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "responses.npy"
        np.save(path, responses)
        command = [str(python), __file__, "peer", str(path), "2pl", str(epochs)]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        spent, *found = np.load(f"{path}.found.npz").values()
    return float(spent), found[:3], found[3:]


def peer_python(folder):
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for package in PEER:  # torch first, so that its pinned build stays
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", package], check=True)
    return python


def drawn(subjects, items):
    rng = np.random.default_rng(0)
    ability, difficulty = rng.normal(0.5, 1.5, subjects), rng.normal(-0.5, 1.2, items)
    slope = np.exp(rng.normal(0.2, 0.4, items))
    chance = 1 / (1 + np.exp(-slope * (ability[:, None] - difficulty)))
    return (rng.random((subjects, items)) < chance).astype(float), ability, difficulty


def imagenet():
    """65 published models x 50,000 images: labels, and the class each predicts."""
    about, predicted = (
        np.load(real_data() / "responses" / f"imagenetv2_val50k_top1{end}.npz") for end in ("", "_predictions")
    )
    return about["labels"], predicted["pred"][~np.isin(about["models"], ["fv_4k", "fv_16k"])]


def predictions(responses):
    """Labels of ten classes, and predictions that are right where these responses are."""
    labels = np.arange(responses.shape[1]) % 10
    return labels, np.where(responses == 1, labels, (labels + 1) % 10)


def label_errors(labels, pred):
    """CPU seconds of `analysis=label_errors` without verdicts, the file's reading included."""
    from fca.store import Store
    from fca.studies.irt.label_errors import LabelErrors

    names = {"subjects": np.arange(len(pred)).astype(str), "items": np.arange(len(labels)).astype(str)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.npz"
        np.savez(path, **names, labels=labels, classes=np.arange(labels.max() + 1).astype(str), pred=pred)
        return timed(LabelErrors(responses=[str(path)]), Store(Path(folder) / "outputs")).cpu


def speed(python, size):
    """Seconds of both, and how well each finds the truth."""
    from scipy.stats import kendalltau, spearmanr

    for items, epochs in ((size.items // 5, DEFAULT_EPOCHS), (size.items, size.epochs)):
        responses, ability, difficulty = drawn(90, items)
        (spent, steps, own), _ = apart(fit_ours, responses, "2pl")
        print(f"90 x {items:,} 2pl: ours {spent:.2f} CPU s ({steps})")
        found = {"ours": own}
        if python:
            theirs, found["py-irt, as far as it ran"], _ = of_peer(python, responses, epochs)
            scaled = theirs * DEFAULT_EPOCHS / epochs
            print(
                f"    py-irt, {DEFAULT_EPOCHS} epochs: {scaled:.1f} CPU s, {scaled / spent:.0f} times as long", end=""
            )
            print(f" ({epochs} epochs in {theirs:.1f} s)")
        for name, (theta, _, b) in found.items():
            tau, rho = kendalltau(theta, ability).statistic, spearmanr(b, difficulty).statistic
            print(f"    against the truth: tau {tau:.3f}, rho(b) {rho:.3f} ({name})")
    every = drawn(90, size.complete)[0]
    for model in ("1pl", "2pl", "3pl", "3pl-upper", "4pl"):
        (spent, steps, _), _ = apart(fit_ours, every, model)
        print(f"90 x {size.complete:,} {model}: {spent:.2f} CPU s ({steps})")
    for model in ("1pl", "2pl", "3pl-upper"):
        (spent, steps, first, second), _ = apart(fit_compat, drawn(90, size.items // 5)[0], model)
        rho = spearmanr(first[2], second[2]).statistic
        print(f"{model}, compat=seed001: {spent:.2f} CPU s ({steps}), Spearman(b) of seeds 0 and 1: {rho:.6f}")


def held_out(python, responses):
    """The same hidden cells for all: 65 models x 5,000 images."""
    from fca.studies.irt.stats import held_out_fit, hide

    sample = responses[:, np.sort(np.random.default_rng(SEED).choice(responses.shape[1], 5_000, replace=False))]
    ours = held_out_fit(sample, "2pl", SHARE, SEED)
    print(f"65 x 5,000 of ImageNet, {ours.cells} hidden cells, seed {SEED}, nll: margins {ours.baseline_nll:.4f},")
    print(f"    ours {ours.nll:.4f}")
    hidden = hide(sample, SHARE, SEED)
    for epochs in (1_000, DEFAULT_EPOCHS) if python else ():
        spent, *fits = of_peer(python, np.where(hidden, np.nan, sample), epochs)
        last, best = (_nll(sample[hidden], theta, a, b, hidden) for theta, a, b in fits)
        print(
            f"    py-irt, {epochs:,} epochs: {last:.4f}; its parameters of lowest loss: {best:.4f} ({spent:.1f} CPU s)"
        )


def _nll(right, theta, a, b, hidden):
    chance = (1 / (1 + np.exp(-a * (theta[:, None] - b))))[hidden]
    return -np.mean(np.log(np.maximum(np.where(right == 1, chance, 1 - chance), 1e-12)))


def main():
    folder = Path.home() / ".cache" / "fca" / "py-irt-0.7.1"
    sizes = {"epochs": (200, 5), "items": (10_000, 100), "complete": (9_824, 100), "images": (50_000, 100)}
    size = options(__doc__, peer=(folder, folder), **sizes)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    python = None if size.smoke or str(size.peer) == "none" else peer_python(size.peer)
    speed(python, size)
    real = real_data() is not None and not size.smoke
    labels, pred = imagenet() if real else predictions(drawn(65, size.images)[0])
    responses = (pred == labels).astype(float)
    kind = "ImageNet" if real else "drawn"
    for model in ("2pl", "3pl-upper", "4pl"):
        (spent, steps, _), memory = apart(fit_ours, responses, model)
        print(f"65 x {size.images:,} {model}, {kind}: {spent:.2f} CPU s ({steps}), peak {memory / 1e6:.0f} MB")
    spent, memory = apart(label_errors, labels, pred)
    print(f"65 x {size.images:,} label errors, {kind}: {spent:.2f} CPU s, peak {memory / 1e6:.0f} MB")
    if real:
        held_out(python, responses)
    machine()


if __name__ == "__main__":
    fit_peer(*sys.argv[2:]) if sys.argv[1:2] == ["peer"] else main()
