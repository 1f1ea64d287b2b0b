"""A store with searches whose every image is known: cars fail at night on a cluttered backdrop."""

import json
from collections import defaultdict

import numpy as np

from fca.stats.intervals import wilson
from fca.store import claims
from fca.studies.search.stats import Domain
from fca.studies.search.stats.explain import find_rules, members
from fca.types import Column
from tests.support.columns import task_columns

PROMPT = "A {color} car on a {backdrop} backdrop, during the {time}, it is {weather}."
FAILING = {"time": "night", "backdrop": "cluttered"}
TEXTS = ("domain", "subject", "target", "generator", "filter", "policy", "images", "second", "warning")
COUNTS = ("n_subdomains", "n_visited", "n_drawn", "n_accepted")
SHARES = ("acceptance", "accuracy", "clean_accuracy", "clean_accuracy_low", "clean_accuracy_high")
FLOATS = (*SHARES, "search_s", "gpu_s", "money", "skill", "covering")
COLUMNS = (*(Column(name) for name in TEXTS), *(Column(name, int) for name in COUNTS))
COLUMNS += tuple(Column(name, float) for name in FLOATS)


def small_domain():
    """Of 100 subdomains 10 fail: at night, on a cluttered backdrop."""
    attributes = {
        "weather": ["sunny", "raining", "snowing"],
        "time": ["day", "night"],
        "backdrop": ["plain", "cluttered", "forest", "city"],
        "color": ["red", "green", "blue", "white", "black"],
    }
    return Domain(attributes, [{"not": {"time": "night", "weather": "sunny"}}])


def probabilities(domain):
    """Of an image to be recognised: 31 % where it fails, 88 % elsewhere."""
    return np.where(members(domain, FAILING), 0.31, 0.88)


def arrays_of(domain, visited, seed=0, images=20, second=0.9, refused=(), fresh=10, right=None):
    """Arrays of a search that visited these subdomains in this order; its filter refuses every fifth image.

    second: chance of the second classifier to be right, a number or one a subdomain; None: there is none.
    refused: visits of which the filter accepts nothing.    right: chance of the first, one a subdomain.
    """
    rng = np.random.default_rng(seed)
    right = probabilities(domain) if right is None else right
    visited = np.asarray(visited, np.int32)
    drawn = np.full(len(visited), images + images // 4, np.int32)
    visit = np.repeat(np.arange(len(visited), dtype=np.int32), drawn)
    accepted = (np.arange(len(visit)) % 5 != 4) & ~np.isin(visit, refused)
    correct = accepted & (rng.random(len(visit)) < right[visited[visit]])
    shown, hits = (np.bincount(visit, of, len(visited)).astype(np.int32) for of in (accepted, correct))
    score = np.where(accepted, 0.8, 0.1) - 0.05 * rng.random(len(visit))
    other = rng.random(len(visit)) < np.broadcast_to(0.0 if second is None else second, len(domain))[visited[visit]]
    rules = find_rules(domain, visited, hits, shown)
    of_rule = [rng.choice(np.flatnonzero(members(domain, rule)), fresh) for rule in rules]
    elsewhere = np.flatnonzero(~np.any([members(domain, rule) for rule in rules] or [[False] * len(domain)], axis=0))
    tested = np.concatenate([*of_rule, rng.choice(elsewhere, fresh)]) if rules else np.zeros(0, int)
    picks = [accepted & ~correct, correct, ~accepted]
    chosen = np.concatenate([np.flatnonzero(one)[:n] for one, n in zip(picks, (48, 24, 24), strict=True)])
    return {
        "domain": np.array([domain.as_json()]),
        "prompts": np.array([PROMPT.format_map(defaultdict(str, domain.values(one))) for one in range(len(domain))]),
        "visited": visited,
        "correct": hits,
        "shown": shown,
        "drawn": drawn,
        "visit_s": np.ones(len(visited), np.float32),
        "image_visit": visit,
        "image_accepted": accepted,
        "image_correct": correct,
        "image_p": np.where(correct, 0.9, 0.1).astype(np.float32),
        "image_score": score.astype(np.float32),
        "image_second": np.where(accepted & (second is not None), other, -1).astype(np.int8),
        "gallery": rng.integers(0, 255, (len(chosen), 64, 64, 3), np.uint8),
        "gallery_image": chosen.astype(np.int32),
        "rules": np.array([json.dumps(rules)]),
        "fresh_rule": np.repeat(np.array([*range(len(rules)), -1], np.int32), fresh)[: len(tested)],
        "fresh_subdomain": tested.astype(np.int32),
        "fresh_correct": rng.binomial(images, right[tested]).astype(np.int32),
        "fresh_shown": np.full(len(tested), images, np.int32),
    }


def searched(lab, visited=None, arrays=(), **columns):
    """Write a search; all subdomains are visited, unless named. arrays: replace others.    columns: replace others."""
    domain = small_domain()
    order = np.random.default_rng(0).permutation(len(domain)) if visited is None else np.asarray(visited)
    found = {**arrays_of(domain, order), **dict(arrays)}
    drawn, accepted = len(found["image_visit"]), int(found["image_accepted"].sum())
    low, high = wilson(97, 100)
    row = {
        "task": "search",
        "run_id": f"{next(lab.count):012x}",
        "finished": "2026-01-01T00:00:00",
        "domain": "cars",
        "dataset": "cars",
        "fingerprint": "ofcars",
        "subject": "car",
        "target": "car",
        "model": "resnet18",
        "second": "vit",
        "generator": "rendered",
        "filter": "clip",
        "policy": "gp_pairwise",
        "seed": 0,
        "images": "20",
        "n_subdomains": len(domain),
        "n_visited": len(set(order.tolist())),
        "n_drawn": drawn,
        "n_accepted": accepted,
        "acceptance": accepted / drawn,
        "accuracy": 0.8,
        "clean_accuracy": 0.97,
        "clean_accuracy_low": low,
        "clean_accuracy_high": high,
        "search_s": 7200.0,
        "gpu_s": 3600.0,
        "money": 0.5,
        "skill": 0.6,
        "covering": 0.1,
        **columns,
    }
    folder = lab.store.folder(row["run_id"])
    token = claims.acquire(folder)
    lab.store.write(row, found, token, (*COLUMNS, *task_columns()))
    claims.release(folder, token)
    return row["run_id"]
