"""Figure 4 and the statements of the paper on guided failure search (Le Coz et al. 2024) beside ours.

    python experiments/failure_search/figure4.py outputs                        searches of all subdomains in a store
    python experiments/failure_search/figure4.py outputs --simulated structured tables drawn at random

Replays every policy on each table (minutes on two cores) and draws no image. What nothing stored decides stays empty,
with the command that fills it. The paper's table is that of `fca run experiment=failure_search task.policy=random ...`.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import le_coz as paper
import pandas as pd

from fca.report.finding import findings_of, sentences
from fca.report.page import Page, Section, write_page
from fca.report.style import NothingToDraw, spec
from fca.store import Store
from fca.studies.generate.domain import EvaluationDomain
from fca.studies.search.benchmark import SearchBenchmark
from fca.studies.search.stats import make_policy
from fca.types import Column, FcaError, Table

STATED = (
    *(Column("where", str, "", "section or figure"), Column("statement", str, "", "what the paper states")),
    *(Column("ours", str, "", "what is found here"), Column("agrees", str, "", "whether ours agrees")),
    Column("command", str, "", "what fills an empty cell"),
)
BOS = ("bo", "bo_linear", "bo_forest", "bo_svr")
Found = tuple[str | None, bool | None]
Frames = Mapping[str, pd.DataFrame]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path, help="the store")
    parser.add_argument("--simulated", help="a kind of simulated table, in the place of stored searches")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each policy")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/le_coz)")
    given = parser.parse_args(arguments)
    page = side_by_side(Store(given.outputs), SearchBenchmark(simulated=given.simulated, seeds=given.seeds))
    index = write_page(given.to or given.outputs / "reports" / "le_coz", page)
    print("\n".join([*page.headlines, f"page: {index}"]))
    return 0


def side_by_side(store: Store, benchmark: SearchBenchmark) -> Page:
    """The page; without searches of all subdomains, statements alone."""
    tables: dict[str, Table] = {}
    lines: list[str] = []
    try:
        tables = {table.name: table for table in benchmark(store)}
    except FcaError as error:
        lines = [f"Figure 4 is not shown: {error}"]
    rows = store.rows()
    stated = statements({name: table.frame for name, table in tables.items()}, rows)
    runs = tuple(sorted({run for table in tables.values() for run in table.runs}))
    table = Table("statements", "The paper's statements and ours", paper.PAPER, stated, {}, runs, STATED)
    decided = stated["agrees"].dropna()
    agree = (decided == "yes").sum()
    lines = [f"{len(decided)} of {len(stated)} statements are decided here: {agree} agree.", *lines]
    sections = [Section("statements", "Statements", None, (table,), "a table of words"), *_figures(benchmark, tables)]
    words = ["python", "experiments/failure_search/figure4.py", str(store.outputs)]
    words += ["--simulated", benchmark.simulated] if benchmark.simulated else []
    shown = rows[rows["run_id"].isin(runs)]
    return Page("Le Coz et al. and ours", [*lines, *sentences(benchmark, tables)], sections, shown, shlex.join(words))


def _figures(benchmark: SearchBenchmark, tables: Mapping[str, Table]) -> Iterator[Section]:
    for finding in findings_of(benchmark):
        if finding.draw is None or not finding.is_in(tables):
            continue

        drawn_tables = [tables[table.name] for table in finding.tables]
        first_table = drawn_tables[0]
        try:
            figure = spec(finding.draw(*drawn_tables))
        except NothingToDraw as nothing:
            yield Section(finding.key, finding.title, None, (first_table,), str(nothing))
        else:
            yield Section(finding.key, finding.title, figure, (first_table,))


def statements(frames: Frames, rows: pd.DataFrame) -> pd.DataFrame:
    """What the paper states, what is found here, and whether that agrees; a command where nothing decides."""
    lines = []
    for key, (where, text, command) in paper.STATEMENTS.items():
        words, agrees = FINDINGS[key](frames, rows)
        shown = None if agrees is None else "yes" if agrees else "no"
        line = {"where": where, "statement": text, "ours": words, "agrees": shown}
        lines.append({**line, "command": command if agrees is None else None})
    return pd.DataFrame(lines)[[str(column) for column in STATED]]


def dog() -> EvaluationDomain:
    """The paper's domain, as conf/domain/dog.yaml has it."""
    from fca.cli.configure import component, configured

    config = configured("run", "task", "search", {}, "domain=dog", "generator=stable_diffusion_2")
    return component(config, "domain")


def _valid(_: Frames, __: pd.DataFrame) -> Found:
    domain = dog().space
    every = replace(domain, rules=())
    words = f"{len(every):,} and {len(domain):,}; other rules give this number too"
    return words, (len(every), len(domain)) == (paper.COMBINATIONS, paper.SUBDOMAINS)


def _dogs(_: Frames, __: pd.DataFrame) -> Found:
    from fca.subset import read_superclasses

    count = sum(group == "dog" for group in read_superclasses("imagenet_dog").of.values())
    return f"{count} below WordNet's dog", count == paper.DOG_CLASSES


def _clean(_: Frames, rows: pd.DataFrame) -> Found:
    own = rows[(rows["task"] == "search") & (rows["dataset"] == "dog")] if "clean_accuracy" in rows else rows[:0]
    if own.empty or own["clean_accuracy"].isna().all():
        return None, None
    line = own.dropna(subset="clean_accuracy").iloc[0]
    ends = f"[{line['clean_accuracy_low']:.2%}, {line['clean_accuracy_high']:.2%}]"
    return f"{line['model']} {line['clean_accuracy']:.2%} {ends}", bool(line["clean_accuracy"] > 0.99)


def _three_wise(_: Frames, __: pd.DataFrame) -> Found:
    sizes = {n: make_policy("nwise", dog().space, 0, strength=n).planned for n in (2, 3)}
    words = f"{sizes[3]} (2-wise {sizes[2]}): 8 colors x 25 valid pairs of weather and location make it 200 at least"
    return words, sizes[3] == paper.AT


def _hours(_: Frames, rows: pd.DataFrame) -> Found:
    own = rows[(rows["task"] == "search") & (rows["dataset"] == "dog")]
    if own.empty:
        return None, None
    line = own.iloc[0]
    minutes = line["gpu_s"] / 60 / line["n_visited"]
    return f"{minutes:.1f} minutes a subdomain on {line['device']}", bool(0.5 < minutes / paper.MINUTES < 2)


def _on_tables(judge: Callable[[Frames], Found], table: str) -> Callable[[Frames, pd.DataFrame], Found]:
    """A finding from a table of the benchmark; unknown without it."""
    return lambda frames, _: judge(frames) if table in frames else (None, None)


def _coverage(frames: Frames, policies: Sequence[str], share: str = "at_20") -> pd.Series:
    """Coverage of the worst tenth at a share explored, mean over tables."""
    found = frames["search_found"]
    return found[found["policy"].isin(policies)].groupby("policy")[share].mean().reindex(list(policies))


def _n_wise(frames: Frames) -> Found:
    curves = frames["search_curves"]
    own = curves[curves["policy"].str.startswith("nwise")].groupby("policy", sort=False)
    gains = {name: one.sort_values("explored").iloc[-1][["coverage", "share"]] for name, one in own}
    words = [
        f"{name}: {of['coverage']:.0%} of the worst tenth in {of['share']:.0%} of all" for name, of in gains.items()
    ]
    return "; ".join(words), all(abs(of["coverage"] - of["share"]) < 0.1 for of in gains.values())


def _better(first: str, second: str, least: float) -> Callable[[Frames], Found]:
    """Whether one policy has found more of the worst tenth than another when a fifth is explored."""

    def found(frames: Frames) -> Found:
        one, other = _coverage(frames, (first, second))
        return f"{first} {one:.0%}, {second} {other:.0%} found at 20 % explored", bool(one - other > least)

    return found


def _forty(frames: Frames) -> Found:
    found = frames["search_found"]
    shares = {name: found.loc[found["policy"] == name, "all_found"].mean() for name in ("bo", "gp_pairwise")}
    words = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    return f"{words} (medians over searches)", bool(0.35 <= shares["bo"] <= 0.5)


def _at_61(frames: Frames) -> Found:
    counts = frames["search_histogram"]
    low = counts[counts["accuracy_from"] < 0.5].groupby("policy")["count"].sum()
    words = ", ".join(f"{name} {low.get(name, 0):.0f}" for name in ("random", "genetic", "bo", "gp_pairwise"))
    return f"below 50 % accuracy: {words}", bool(
        min(low.get("genetic", 0), low.get("bo", 0)) > 1.5 * low.get("random", 0)
    )


def _rho(frames: Frames, size: int) -> pd.Series:
    rhos = frames["search_predictors"]
    return rhos[rhos["trained_on"] == size].groupby("policy")["rho"].mean().reindex([*BOS, "gp_pairwise"])


def _predictors(frames: Frames) -> Found:
    rho = _rho(frames, 400)
    words = ", ".join(f"{name} {value:+.2f}" for name, value in rho.items())
    same = rho[["bo", "bo_linear", "bo_forest"]]
    return f"{words} at 400", bool(same.max() - same.min() < 0.05 and rho["bo_svr"] < same.min())


def _small(frames: Frames) -> Found:
    rho = _rho(frames, 20)
    words = ", ".join(f"{name} {value:+.2f}" for name, value in rho.items())
    return f"{words} at 20", bool(rho[list(BOS)].idxmax() == "bo")


FINDINGS: dict[str, Callable[[Frames, pd.DataFrame], Found]] = {
    "valid": _valid,
    "dogs": _dogs,
    "clean": _clean,
    "three_wise": _three_wise,
    "n_wise": _on_tables(_n_wise, "search_found"),
    "genetic": _on_tables(_better("genetic", "random", 0.1), "search_found"),
    "bo": _on_tables(_better("bo", "genetic", 0.0), "search_found"),
    "forty": _on_tables(_forty, "search_found"),
    "at_61": _on_tables(_at_61, "search_histogram"),
    "predictors": _on_tables(_predictors, "search_predictors"),
    "small": _on_tables(_small, "search_predictors"),
    "hours": _hours,
}


if __name__ == "__main__":
    raise SystemExit(main())
