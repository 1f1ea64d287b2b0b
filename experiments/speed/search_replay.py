"""Does choosing cost anything beside generating, and is comparing policies quick? Replays on 1,032 subdomains.

    python experiments/speed/search_replay.py            about a minute on 2 cores

Six policies on one drawn table of the paper's domain: CPU seconds of a whole search, its mean step, and the slowest of
the last hundred, with its share of the 12 minutes that the paper takes to generate a subdomain. Expect no step above
0.2 s (0.03 % of these), and 10 seeds of all six under 360 CPU seconds: 3 minutes on 2 cores.
"""

from harness import machine, options, timed

from fca.studies.search.benchmark import SearchBenchmark
from fca.studies.search.stats import make_policy, replay

POLICIES = ("random", "nwise", "genetic", "bo", "bo_svr", "gp_pairwise")
GENERATED_S = 12 * 60


def main():
    size = options(__doc__, visits=(1032, 14), last=(100, 2))
    asked = SearchBenchmark()
    domain = replay.Domain(asked.attributes, asked.rules)
    right = replay.simulated(domain, seed=0).right
    total = 0.0
    for name in POLICIES:
        _, cpu, done = timed(lambda name=name: replay.replay(domain, right, name, 0, most=size.visits))
        total += cpu
        policy, places = make_policy(name, domain, 0), range(size.visits - size.last, size.visits)
        slowest = max(timed(policy.next, *(of[:at] for of in done)).cpu for at in places)
        print(
            f"{name}: {cpu:.2f} CPU s, {1000 * cpu / size.visits:.2f} ms a step; slowest of the last {size.last}: "
            f"{1000 * slowest:.1f} ms, {slowest / GENERATED_S:.4%} of generating",
            flush=True,
        )
    print(f"{len(POLICIES)} policies x 10 seeds: {10 * total:.0f} CPU s, {10 * total / 2 / 60:.1f} minutes on 2 cores")
    machine()


if __name__ == "__main__":
    main()
