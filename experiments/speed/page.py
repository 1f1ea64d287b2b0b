"""How large is the page of 5,000 runs, and how soon is it there? Under 15 MB, and its answers within 3 seconds.

python experiments/speed/page.py            a minute, in headless Chromium; --runs 20000 for a larger store
"""

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from harness import machine, options, timed
from playwright.sync_api import sync_playwright

from fca.report.page import AnalysesReport, Result
from fca.store.columns import BASE
from fca.studies.few_class import accuracy
from fca.studies.few_class.subset_accuracy import ACCURACY
from fca.subset import draw_subset

NCL, MODELS, DATASETS = (2, 3, 5, 10, 20), 90, ("cifar100", "imagenet")
READY = "document.querySelectorAll('.answers .marks').length === document.querySelectorAll('.answers li').length"


def points(runs):
    rng = np.random.default_rng(0)
    found = []
    for i in range(runs):
        at, ncl, dataset = i // MODELS, NCL[i // MODELS % len(NCL)], DATASETS[i % 2]
        drawn = draw_subset(100, ncl, at // len(NCL))
        top1 = float(np.clip(0.95 - 0.01 * ncl + 0.05 * rng.normal(), 0, 1))
        line = {"dataset": dataset, "model": f"model_{i % MODELS}", "protocol": "sub", "ncl": ncl, "top1": top1}
        line |= {"subset_seed": drawn.seed, "sampler": drawn.sampler, "classes": drawn.classes, "n_test": 100 * ncl}
        found.append(line | {"top1_low": top1 - 0.02, "top1_high": top1 + 0.02, "seed": 0, "run_id": f"{i:012x}"})
    frame = pd.DataFrame(found, columns=list(ACCURACY))
    return frame.astype({"subset_seed": "Int64", "seed": "Int64", "n_test": "Int64"})


def tables(frame):
    subset = accuracy.per_subset(frame)
    parts = {"accuracy_points": frame, "accuracy": accuracy.accuracy(subset), "dcn": accuracy.dcn(subset)}
    parts |= {"ranks": accuracy.ranks(subset)}
    specs = {spec.name: spec for spec in accuracy.FewClass.tables}
    return [specs[name].table(part, {}, tuple(frame["run_id"])) for name, part in parts.items()]


def rows(frame):
    command = [
        f"fca run model={m} subset.ncl={n} experiment=many" for m, n in zip(frame["model"], frame["ncl"], strict=True)
    ]
    own = {f"recipe_key_{k}": np.arange(len(frame)) / 7 for k in range(40)}
    return frame.assign(task="train", command=command, **own).reindex(columns=[*BASE, *own])


def opened(browser, index):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    answers = timed(lambda: (page.goto(index.as_uri(), wait_until="commit"), page.wait_for_function(READY)))
    rest = timed(page.evaluate, "window.figuresDrawn")
    page.close()
    return answers.wall, answers.wall + rest.wall


def main():
    size = options(__doc__, runs=(5_000, 180), turns=(3, 1))
    frame = points(size.runs)
    report = AnalysesReport("few_class", "Many runs", ["few_class"], {})
    result = Result(accuracy.FewClass(), tables(frame))
    named = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as place, sync_playwright() as playwright:
        wrote = timed(report, Path(place) / "page", [result], rows(frame), "fca report")
        browser = playwright.chromium.launch(executable_path=named, args=["--no-sandbox"] * (os.geteuid() == 0))
        turns = [opened(browser, wrote.result) for _ in range(size.turns)]
        browser.close()
        page = wrote.result.stat().st_size / 1e6
    answers, figures = np.median(turns, axis=0)
    print(f"{size.runs} runs: page of {page:.1f} MB written in {wrote.wall:.1f} s; ", end="")
    print(f"answers after {answers:.1f} s, all figures after {figures:.1f} s (median of {size.turns})")
    machine()


if __name__ == "__main__":
    main()
