"""Does an item response model of every image cost seconds, and predict as well as the peer that costs minutes?

    FCA_REAL_DATA=... python experiments/speed/irt.py            about 4 CPU minutes, and 2 once to install the peer

The peer is py-irt 0.7.1 from PyPI (Lalor and Rodriguez 2023), in an environment of its own that this script makes
(--peer names one that exists). CPU seconds of the fit alone, one thread, each in a process of its own: neither imports
nor the peer's reading of its JSON lines count. It runs as documented: 2pl, hierarchical priors, initial difficulties
from the items' means, 2,000 epochs (its default; at 90 x 10,000 --epochs of them, scaled). Expect: 90 x 10,000 under 4
CPU s and 30 times less; 65 x 50,000 under 10 CPU s and 700 MB; on hidden cells a lower nll than the peer's and than a
guess from the margins.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

import numpy as np

PEER = ("torch==2.13.0", "py-irt==0.7.1")
DEFAULT_EPOCHS = 2000  # py_irt.config.IrtConfig
SHARE, SEED = 0.1, 0  # hidden cells


def fit_ours(responses, model):
    """Median of three fits: theta, a, b, and the seconds."""
    from fca.stats.irt import fit_irt

    spent = []
    for _ in range(3):
        start = time.process_time()
        fit = fit_irt(responses, model)
        spent.append(time.process_time() - start)
    steps = f"{fit.iterations} steps, {'converged' if fit.converged else 'NOT converged'}"
    return [(fit.ability, fit.discrimination, fit.difficulty)], float(np.median(spent)), steps


def fit_compat(responses, model):
    """Seeds 0 and 1, and the seconds of one."""
    from fca.stats.irt.variational import fit_variational

    start = time.process_time()
    fits = [fit_variational(responses, model, seed=seed) for seed in (0, 1)]
    spent = (time.process_time() - start) / 2
    steps = f"{fits[0].iterations} sweeps, {'converged' if fits[0].converged else 'NOT converged'}"
    return [(fit.ability, fit.discrimination, fit.difficulty) for fit in fits], spent, steps


def fit_peer(responses, model, epochs):
    """Runs in the peer's environment. Last parameters (what it saves), and those of its lowest loss."""
    import pyro
    import torch
    from py_irt.config import IrtConfig
    from py_irt.training import IrtModelTrainer

    torch.set_num_threads(1)
    pyro.set_rng_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.jsonlines"
        asked = [{f"i{i}": int(row[i]) for i in np.flatnonzero(~np.isnan(row))} for row in responses]
        lines = [json.dumps({"subject_id": f"s{s}", "responses": cells}) for s, cells in enumerate(asked)]
        path.write_text("\n".join(lines))
        settings = {"priors": "hierarchical", "lr": 0.1, "initializers": ["difficulty_sign"]}
        config = IrtConfig(model_type=model, epochs=epochs, **settings)
        trainer = IrtModelTrainer(data_path=path, config=config, verbose=False)
    start = time.process_time()
    trainer.train(device="cpu")
    spent = time.process_time() - start
    found = [_in_order(params, responses.shape) for params in (trainer.last_params, trainer.best_params)]
    return found, spent, f"{epochs} epochs"


def _in_order(params, shape):
    found = [np.empty(size) for size in (shape[0], shape[1], shape[1])]
    for out, names, key in zip(
        found, ("subject_ids", "item_ids", "item_ids"), ("ability", "disc", "diff"), strict=True
    ):
        out[[int(name[1:]) for at, name in sorted(params[names].items())]] = params[key]
    return found


def child(arguments):
    who, path, model, epochs = arguments
    responses = np.load(path)
    if who == "py-irt":
        found, spent, steps = fit_peer(responses, model, int(epochs))
    else:
        found, spent, steps = (fit_ours if who == "ours" else fit_compat)(responses, model)
    np.savez(f"{path}.found.npz", *(part for fit in found for part in fit))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"spent": spent, "steps": steps, "peak": peak}))


def run(python, who, responses, model="2pl", epochs=DEFAULT_EPOCHS):
    """In a process of its own, one thread; the fits as (theta, a, b)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "answers.npy"
        np.save(path, responses)
        command = [str(python), __file__, "child", who, str(path), model, str(epochs)]
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **one})
        parts = list(np.load(f"{path}.found.npz").values())
    return json.loads(done.stdout.splitlines()[-1]), [parts[i : i + 3] for i in range(0, len(parts), 3)]


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
    """65 published models x 50,000 images; None without the data."""
    if "FCA_REAL_DATA" not in os.environ:
        return None
    stored = np.load(Path(os.environ["FCA_REAL_DATA"]) / "responses" / "imagenetv2_val50k_top1.npz")
    answers = np.unpackbits(stored["correct_bits"], axis=1)[:, : int(stored["n_items"])].astype(float)
    return answers[~np.isin(stored["models"], ["fv_4k", "fv_16k"])]


def speed(peer, epochs):
    """Seconds of both, and how well each finds the truth."""
    from scipy.stats import kendalltau, spearmanr

    for items, asked in ((2_000, DEFAULT_EPOCHS), (10_000, epochs)):
        answers, ability, difficulty = drawn(90, items)
        ours, own = run(sys.executable, "ours", answers)
        theirs, other = run(peer, "py-irt", answers, epochs=asked)
        scaled = theirs["spent"] * DEFAULT_EPOCHS / asked
        note = "" if asked == DEFAULT_EPOCHS else f" (from {asked} epochs, {theirs['spent']:.1f} s)"
        print(f"90 x {items:,} 2pl: ours {ours['spent']:.2f} CPU s ({ours['steps']}); py-irt, {DEFAULT_EPOCHS} epochs,")
        print(f"    {scaled:.1f} CPU s{note}, {scaled / ours['spent']:.0f} times as long")
        for name, (theta, _, b) in (("ours", own[0]), ("py-irt, as far as it ran", other[0])):
            truth = f"tau {kendalltau(theta, ability).statistic:.3f}, rho(b) {spearmanr(b, difficulty).statistic:.3f}"
            print(f"    against the truth: {truth} ({name})")
    answers = drawn(90, 2_000)[0]
    for model in ("1pl", "2pl", "3pl-upper"):
        said, (first, second) = run(sys.executable, "variational", answers, model)
        rho = spearmanr(first[2], second[2]).statistic
        spent = f"{said['spent']:.2f} CPU s ({said['steps']})"
        print(f"90 x 2,000 {model}, compat=seed001: {spent}, Spearman(b) of seeds 0 and 1: {rho:.6f}")


def held_out(peer, answers):
    """The same hidden cells for all: 65 models x 5,000 images."""
    from fca.stats.irt import held_out_fit, hide

    sample = answers[:, np.sort(np.random.default_rng(SEED).choice(answers.shape[1], 5_000, replace=False))]
    ours = held_out_fit(sample, "2pl", SHARE, SEED)
    hidden = hide(sample, SHARE, SEED)
    print(f"65 x 5,000 of ImageNet, {ours.cells} hidden cells, seed {SEED}, nll: margins {ours.baseline_nll:.4f},")
    print(f"    ours {ours.nll:.4f}")
    seen = np.where(hidden, np.nan, sample)
    for epochs in (1_000, DEFAULT_EPOCHS):
        said, fits = run(peer, "py-irt", seen, epochs=epochs)
        last, best = (_nll(sample[hidden], theta, a, b, hidden) for theta, a, b in fits)
        spent = f"{said['spent']:.1f} CPU s"
        print(f"    py-irt, {epochs:,} epochs: {last:.4f}; its parameters of lowest loss: {best:.4f} ({spent})")


def _nll(right, theta, a, b, hidden):
    chance = (1 / (1 + np.exp(-a * (theta[:, None] - b))))[hidden]
    return -np.mean(np.log(np.maximum(np.where(right == 1, chance, 1 - chance), 1e-12)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", type=Path, default=Path.home() / ".cache" / "fca" / "py-irt-0.7.1")
    parser.add_argument("--epochs", type=int, default=200, help="of py-irt at 90 x 10,000; scaled to 2,000")
    options = parser.parse_args()
    peer, answers = peer_python(options.peer), imagenet()
    speed(peer, options.epochs)
    said, _ = run(sys.executable, "ours", drawn(65, 50_000)[0] if answers is None else answers)
    kind = "drawn" if answers is None else "ImageNet"
    print(f"65 x 50,000 2pl, {kind}: {said['spent']:.2f} CPU s ({said['steps']}), peak {said['peak'] / 1e6:.0f} MB")
    if answers is not None:
        held_out(peer, answers)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, numpy {np.__version__}, Python {sys.version[:6]}")


if __name__ == "__main__":
    child(sys.argv[2:]) if sys.argv[1:2] == ["child"] else main()
