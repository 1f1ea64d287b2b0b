"""Hydra multiruns that resume: everything is composed and checked first, and only what is left is launched."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fca.allowed import check_values
from fca.cli.application import SweepConfig, hydra_words, typed_words
from fca.cli.compose import Composer
from fca.cli.configure import Job, NotDownloaded, data_of, job_of, not_here
from fca.cli.execute import POLL_S, execute, keep_items, record_failure, record_orphans, unfinished, void
from fca.cli.notices import gathered, shared
from fca.cli.outcome import outcome, swept_columns
from fca.cli.pace import Pace, first_of_each_kind, kind_of, seconds_of, works_of
from fca.cli.show import show_failures
from fca.cli.status import as_time
from fca.cli.waiting import Waiting, why_waiting
from fca.cli.weights import Weights
from fca.data.content import one_look
from fca.plugins import use_plugins
from fca.progress import Lines, on_terminal
from fca.store import ENDED_EARLY, SETTLED, State, Store, claims
from fca.store.claims import repeating
from fca.store.columns import DIVERGED, FLAG
from fca.subset import NoSuchSubset
from fca.types import FcaError, Run, listed

OF_THE_SWEEP = ("outputs", "plugins")  # and sweep.KEY: what cannot differ between its runs
PROGRAMS = {"submitit_slurm": ("srun", "sbatch")}  # that a launcher needs
LOOK_S = 1.0
ANSWERS_S = 5.0
BARREN = 3  # launches in a row from which nothing came


class LostJob(Exception):
    """A job of a cluster ended without the record of any end; the message is why, as far as it is known."""


@contextmanager
def progress(
    store: Store,
    runs: Sequence[Run],
    total: int,
    waiting_for: Callable[[], str],
    estimate: Callable[[float | None], None],
) -> Iterator[None]:
    """Show how many of `total` runs are done and failed, and the time to go, while somebody works on `runs`.

    Those that nobody will do (see `void`) count from when the training that they need has diverged.
    waiting_for: why nobody does; a line says so when that takes long.
    estimate: called with each estimate of the seconds to go, None where there is none.
    """
    left = {run.run_id for run in runs}
    children: dict[str | None, list[str]] = {}
    for run in runs:
        children.setdefault(run.parent, []).append(run.run_id)
    idle = Waiting(waiting_for)
    pace = Pace(works_of(runs))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    lines = Lines("runs", total, total - len(left), paced=False)
    failures = TextColumn("[red]{task.fields[failed]}[/red]")
    times = TimeElapsedColumn(), TextColumn("{task.fields[to_go]}")
    with Progress(*columns, failures, *times, disable=not on_terminal()) as bar:
        shown = bar.add_task("runs", total=total, completed=total - len(left), failed="", to_go="")
        waiting = set(left)
        ended_early: dict[str, State] = {}
        never: set[str] = set()
        working = True

        def look() -> None:
            at_work = not waiting
            working_for: dict[str, float] = {}
            for run_id in list(waiting):
                state = store.state(run_id)
                at_work |= state is State.RUNNING or state in SETTLED
                if state is State.RUNNING and (claim := claims.holder(store.folder(run_id))) is not None:
                    working_for[run_id] = time.time() - claim.get("started", time.time())
                if state in SETTLED:
                    waiting.discard(run_id)
                    row = store.row_if_whole(run_id) if state is State.DONE else None
                    pace.finish(run_id, None if row is None else seconds_of(row))
                    if row is not None and row.get(FLAG) == DIVERGED:
                        never.update(_descendants(run_id, children))
                if state in ENDED_EARLY:
                    ended_early[run_id] = state
            for run_id in never & waiting:
                waiting.discard(run_id)
                pace.finish(run_id, None)
            idle.look(at_work=at_work or not working)

            counts = Counter(state.value for state in ended_early.values())
            notes = [f"{number} {state}" for state, number in sorted(counts.items())]
            notes += [f"{len(never)} never: their training diverged"] if never else []
            note = ", ".join(notes)
            seconds = pace.to_go(time.monotonic(), working_for) if waiting else None
            estimate(seconds)
            to_go = "" if seconds is None else f"about {as_time(seconds)} to go"
            bar.update(shown, completed=total - len(waiting), failed=note, to_go=to_go)
            lines.show(total - len(waiting), ", ".join(filter(None, (note, to_go))), last=not working)

        try:
            with repeating(look, LOOK_S):
                yield
        finally:
            working = False
            look()


def _descendants(run_id: str, children: Mapping[str | None, Sequence[str]]) -> Iterator[str]:
    """The runs that need this one, those that need them, ..."""
    for child in children.get(run_id, ()):
        yield child
        yield from _descendants(child, children)


@dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    overrides: list[str]
    job: Job


class Skipped:
    """The points of a grid whose data set has no subset of the size, while another point of the grid has one."""

    def __init__(self) -> None:
        self.errors: list[NoSuchSubset] = []
        self.sizes: dict[str, list[str]] = {}  # why points are skipped -> the sizes asked for
        self.drawn = 0

    @contextmanager
    def unless_drawn(self, config: DictConfig) -> Iterator[None]:
        """Plan a point in the body; it is skipped if its data set has too few classes for such a subset."""
        try:
            yield
            self.drawn += 1
        except NoSuchSubset as error:
            data, ncl = data_of(config), config.subset.ncl
            if ncl <= 0 or 1 <= ncl <= len(data.classes):  # wrong for every data set
                raise
            self.errors.append(error)
            few = f"{data.name} has {len(data.classes)} classes, "
            few += f"of which subset.ncl={ncl} is {error.args[1]}" if ncl < 1 else "fewer than subset.ncl="
            sizes = self.sizes.setdefault(few, [])
            if ncl > 1 and str(ncl) not in sizes:
                sizes.append(str(ncl))

    def line(self) -> str | None:
        """How many points were skipped and why; None for none. Raises the first error where all are."""
        if self.errors and not self.drawn:
            raise self.errors[0]
        reasons = "; ".join(few + listed(sizes) for few, sizes in self.sizes.items())
        total = self.drawn + len(self.errors)
        return f"skipped {len(self.errors)} of {total} configurations: {reasons}" if self.errors else None


def _equal_draws(points: Sequence[Configuration]) -> str | None:
    """Where several seeds draw the same classes: how many seeds there are and how many subsets; None for nowhere.

    Such seeds share their runs, so that a sweep has fewer runs than configurations.
    """
    seeds: dict[tuple[str, str], set[int]] = {}
    subsets: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for point in points:
        wanted, data = point.job.values["subset"], point.job.setup.data
        if wanted["ncl"] is None:
            continue
        draw = f"subset.ncl={wanted['ncl']} of the {len(data.classes)} classes of {data.name}"
        key = (data.fingerprint + str(wanted["sampler"]), draw)
        seeds.setdefault(key, set()).add(wanted["seed"])
        subsets.setdefault(key, set()).add(point.job.setup.subset.classes)

    notes = []
    for key, different in subsets.items():
        if len(different) < len(seeds[key]):
            number = f"{len(different)} different subsets" if len(different) > 1 else "1 subset"
            notes.append(f"{key[1]}: {len(seeds[key])} seeds, {number}")
    return "; ".join(notes) or None


class ResumingSweep:
    """The body of the sweeper plugin (hydra_plugins/fca); `params` are the axes that an experiment file brings."""

    def __init__(self, params: Mapping[str, str] | None = None) -> None:
        self.params = dict(params or {})
        self.barren = 0

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before `sweep`."""
        self.config = config
        use_plugins(config.plugins)
        _check_launcher(config.hydra, starts=not OmegaConf.select(config, "sweep.print"))
        self.context = hydra_context
        self.loader: Any = hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    @one_look()
    def sweep(self, arguments: list[str]) -> None:
        """Plan the whole grid, print where it stands, launch what is left; exit code 1 if a run failed."""

        if self.config.sweep.print:
            self._print_commands(arguments)
            return
        with shared():
            self._sweep(arguments)

    def _sweep(self, arguments: list[str]) -> None:
        with gathered():
            points = self._configurations(arguments)
        store = points[0].job.setup.store
        runs = {run.run_id: run for point in points for run in point.job.plan}
        states = {run_id: store.state(run_id) for run_id in runs}
        left, never = self._left_and_never(store, runs, states)
        trainings = sum(run.task == "train" for run in runs.values())
        chosen_classes = dict.fromkeys(line for point in points if (line := point.job.chosen_classes))
        print(_plan_line(states, left, trainings, len(never)), *chosen_classes, sep="\n", flush=True)
        if line := _equal_draws(points):
            print(line, flush=True)
        for run_id in runs:
            claims.clear(store.folder(run_id))  # of a killed sweep, perhaps just after it had stored the row
        done = {run_id for run_id, state in states.items() if state is State.DONE}
        for point in points:
            keep_items(point.job, done)
        for run_id in left:
            store.forgive(run_id)
        hydra = self.config.hydra
        group = hydra.runtime.choices.get("experiment") or Path(hydra.sweep.dir).name
        os.environ.setdefault("WANDB_RUN_GROUP", group)  # the workers inherit it
        if left:
            points[0].job.setup.tracker.connect()
        weights = Weights(point.job for point in points)
        runs_left = [run for run_id, run in runs.items() if run_id in left]
        with (
            claims.announced(store.outputs, {run_id: runs[run_id].parent for run_id in left}) as announced,
            progress(store, runs_left, len(runs), self._waiting_for, announced.estimate),
            repeating(weights.remove_unneeded, LOOK_S),
        ):
            while left:
                self._work(points, left)
                left = _wait(store, left)
                left -= void(store, (run for run in runs.values() if run.run_id in left))
        weights.remove_unneeded()
        axes = swept_columns([point.overrides for point in points])
        print(*outcome(store, list(runs.values()), axes), sep="\n")
        if show_failures(store, runs):
            raise SystemExit(1)

    def _left_and_never(
        self, store: Store, runs: Mapping[str, Run], states: Mapping[str, State]
    ) -> tuple[set[str], set[str]]:
        """The runs that are to be done, and those that nobody will do (see `void`)."""
        wanted = {State.ABSENT, State.DAMAGED, State.INTERRUPTED, State.RUNNING}
        if self.config.sweep.retry:
            wanted.add(State.FAILED)

        left = [run for run_id, run in runs.items() if states[run_id] in wanted]
        never = void(store, left)
        return {run.run_id for run in left} - never, never

    def _print_commands(self, arguments: list[str]) -> None:
        """Print a command for each configuration with work left; downloads nothing."""
        not_downloaded: list[NotDownloaded] = []
        with gathered():
            points = self._configurations(arguments, not_downloaded)
        left: set[str] = set()
        if points:
            store = points[0].job.setup.store
            runs = {run.run_id: run for point in points for run in point.job.plan}
            states = {run_id: store.state(run_id) for run_id in runs}
            left, _ = self._left_and_never(store, runs, states)
        if line := _equal_draws(points):
            print(line, file=sys.stderr)
        commands = [point.job.command for point in _launches(points, left)]
        commands += [missing.command for missing in not_downloaded]
        for command in commands:
            print(command)
        if not commands:
            print("note: every run of these is done: no command is left to print", file=sys.stderr)
        if not_downloaded:
            print(not_here([missing.dataset for missing in not_downloaded]), file=sys.stderr)

    def _waiting_for(self) -> str:
        """Why no run is at work."""
        return why_waiting(self.config.hydra.runtime.choices.get("hydra/launcher"), self.launcher)

    def _work(self, points: Sequence[Configuration], left: set[str]) -> None:
        """Launch one job a configuration with heavy work left; then the light runs, here."""
        launches = [p for p in _launches(points, left) if any(r.run_id in left and not r.light for r in p.job.plan)]
        if launches:
            kinds = [{kind_of(run) for run in point.job.plan if run.run_id in left} for point in launches]
            self._launch(first_of_each_kind(launches, kinds), left)
        for point in points:
            if any(run.run_id in left and run.light for run in point.job.plan):
                execute(point.job, alone=False)
        points[0].job.setup.tracker.close()  # one for all points

    def _launch(self, launches: Sequence[Configuration], left: set[str]) -> None:
        """Have the launcher do these jobs. A worker that dies costs the run that it was at; the others are left.

        Raises what the launcher raises, or exits, when again and again nothing comes of it: no run done, none to blame.
        """
        store = launches[0].job.setup.store
        jobs: Sequence[Any] = ()
        if isinstance(params := getattr(self.launcher, "params", {}), dict) and params.get("timeout_from_rows"):
            params["timeout_min"] = _time_limit(launches, left, self.config.hydra.launcher.timeout_min)
        try:
            with _noting_deaths() as dead:
                jobs = self.launcher.launch([point.overrides for point in launches], initial_job_idx=0)
        except Exception as error:
            if not dead:
                _wait(store, left)  # jobs on other machines go on
            _bury(launches, dead, f"the worker died: {str(error).partition('.')[0]}")
            useful = any(store.state(run_id) in SETTLED for run_id in left)
            self.barren = 0 if useful else self.barren + 1
            if self.barren and not dead:
                raise self._cannot_start(error) from error
            if self.barren == BARREN:
                print(f"error: {BARREN} times, workers died before they began ({_cause(dead)})", file=sys.stderr)
                raise SystemExit(1) from error
        finally:
            for run_id in left:
                claims.clear(store.folder(run_id))
        for point, job in zip(launches, jobs, strict=False):  # none when the launcher itself failed
            try:
                _ = job.return_value  # raises what ended a job outside of its runs
            except LostJob as loss:
                _record_loss(point, str(loss))

    def _cannot_start(self, error: Exception) -> Exception:
        """The error of a launcher from which nothing came, as a user's; folders that it made are removed if empty."""
        folder = Path(self.config.hydra.sweep.dir)
        with suppress(OSError):
            for empty in (folder, *folder.parents[:2]) if folder.parent.name == ".hydra" else (folder,):
                empty.rmdir()
        if isinstance(error, FcaError) or (isinstance(error, OSError) and error.filename is not None):
            return error
        name, reason = self.config.hydra.runtime.choices["hydra/launcher"], " ".join(str(error).split())
        allowed = f"a launcher that can start ({type(error).__name__}: {reason[:300]})"
        return FcaError("hydra/launcher", name, allowed, "correct hydra.launcher.KEY, or take hydra/launcher=basic")

    def _configurations(
        self, arguments: list[str], not_downloaded: list[NotDownloaded] | None = None
    ) -> list[Configuration]:
        """Every point of the grid, composed, checked and planned; without subsets that a data set is too small for.

        not_downloaded: takes the points of data sets that are not here, of which then none is downloaded.
        """
        axes = self._axes(arguments)
        words = {word: len(axis) for axis in axes.values() for value in axis for word in hydra_words(value)}
        composer = self.context.config_loader = Composer(self.loader, words)
        points, skipped = [], Skipped()
        for values in itertools.product(*axes.values()):
            overrides = [word for value in values for word in hydra_words(value)]
            config = composer.point(self.config, overrides)
            typed = typed_words(self.config.hydra, overrides)
            try:
                with skipped.unless_drawn(config):
                    job = job_of(config, typed, download=not_downloaded is None)
                    points.append(Configuration(overrides, job))
            except NotDownloaded as missing:
                assert not_downloaded is not None
                not_downloaded.append(missing)
        if line := skipped.line():
            print(line, file=sys.stderr, flush=True)
        return points

    def _axes(self, arguments: list[str]) -> dict[str, list[str]]:
        """Key -> its overrides; the command line overrules the experiment's axes, key by key."""
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        overrides = OverridesParser.create(config_loader=self.loader).parse_overrides(words)
        axes = {override.get_key_element(): override for override in overrides}
        check_values(SweepConfig, self.config.sweep, "sweep")
        head, most = self.config.sweep.head, self.config.sweep.max
        sizes = {key: min(_size(override), head or math.inf) for key, override in axes.items()}
        if (size := math.prod(sizes.values())) > most:
            shown = ", ".join(f"{key} {values:,}" for key, values in sizes.items() if values > 1)
            step = f"take fewer values ({shown}), or set sweep.max={size}"
            raise FcaError("configurations of the sweep", f"{size:,}", f"at most sweep.max={most:,}", step)
        return {key: _values(override, head) for key, override in axes.items()}


def _check_launcher(hydra: DictConfig, *, starts: bool) -> None:
    """Raise FcaError for a launcher that cannot work here, which it would find out itself when all is planned.

    starts: whether it is to start anything; it needs no cluster to have its commands printed.
    """
    name, launcher = hydra.runtime.choices.get("hydra/launcher"), hydra.launcher
    if not isinstance(launcher, DictConfig):
        raise FcaError("hydra.launcher", launcher, "what hydra/launcher=NAME brings", "choose a launcher by its name")
    if launcher.get("n_jobs") == 0:
        raise FcaError("hydra.launcher.n_jobs", 0, "1 or more, or -1 for one a core", "take one of these")
    if name == "joblib" and launcher.get("backend") not in (None, "loky"):
        allowed = "loky, or null: Hydra's launcher has no other"
        raise FcaError("hydra.launcher.backend", launcher.backend, allowed, "leave it out")
    if name == "gpus" and not (launcher.gpus == "auto" or (OmegaConf.is_list(launcher.gpus) and len(launcher.gpus))):
        step = "write it as hydra.launcher.gpus=[0,2]"
        raise FcaError("hydra.launcher.gpus", launcher.gpus, "auto, or a list of GPUs as nvidia-smi numbers them", step)
    lacking = [program for program in PROGRAMS.get(name, ()) if shutil.which(program) is None]
    if starts and lacking:
        allowed = f"a machine that has {' and '.join(PROGRAMS[name])}; {' and '.join(lacking)} not found"
        raise FcaError("hydra/launcher", name, allowed, "go to a machine of the cluster, or take hydra/launcher=joblib")
    if name == "ray" and not isinstance(launcher.ray, DictConfig):
        raise FcaError("hydra.launcher.ray", launcher.ray, "init and remote", "set their keys")
    if starts and name == "ray" and isinstance(init := OmegaConf.select(launcher, "ray.init"), DictConfig):
        _prepare_ray(init)


def _prepare_ray(init: DictConfig) -> None:
    """Let Ray connect to an address, if it has one. Raises FcaError if nobody answers there: Ray would try for ever."""
    address = init.get("address") or os.environ.get("RAY_ADDRESS", "")
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # auto or local
        return
    try:
        socket.create_connection((host, int(port)), ANSWERS_S).close()
    except (OSError, OverflowError) as error:
        step = "look at `ray status` there; without an address, Ray starts on this machine"
        raise FcaError("hydra.launcher.ray.init.address", address, f"a cluster that answers ({error})", step) from error
    with open_dict(init):
        init.setdefault("object_store_memory", None)  # else the launcher sets it, which Ray refuses beside an address


def _size(override: Override) -> int:
    """The number of values of an axis, none of which is made. Raises FcaError where there is no value."""
    if not override.is_sweep_override():
        return 1
    key, _, typed = str(override.input_line).partition("=")
    if key in OF_THE_SWEEP or key.startswith("sweep."):
        raise FcaError(key, typed, "one value for the whole sweep", "give one")
    if not override.is_discrete_sweep():
        raise FcaError(key, typed, "a list or a range", "write it as 1,2,3 or range(1,4)")
    swept = override.value()
    if isinstance(swept, RangeSweep):
        ends: list[Any] = [swept.start, swept.stop, swept.step]
        if not swept.step or not all(map(math.isfinite, ends)):
            raise FcaError(key, typed, "a range with finite ends and a step", "write it as range(1,4)")
        size = math.ceil((ends[1] - ends[0]) / ends[2])
    else:
        size = sum(1 for _ in override.sweep_iterator())
    if size < 1:
        raise FcaError(key, typed, "one value or more", "write it as 1,2,3 or range(1,4)")
    return size


def _values(override: Override, head: int | None) -> list[str]:
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in itertools.islice(override.sweep_string_iterator(), head)]


def _wait(store: Store, left: set[str]) -> set[str]:
    """Wait for runs that other sweeps compute; returns those that were abandoned and are to be done again."""
    while any(store.state(run_id) is State.RUNNING for run_id in left):
        time.sleep(POLL_S)
    return {run_id for run_id in left if store.state(run_id) in (State.ABSENT, State.DAMAGED)}


@contextmanager
def _noting_deaths() -> Iterator[dict[int, int]]:
    """Process id -> exit code of the workers of joblib that died, noted before it ends all others of their pool."""
    from joblib.externals.loky.process_executor import _ExecutorManagerThread as Pool

    dead: dict[int, int] = {}
    end_all = Pool.kill_workers

    def note(pool: Any, reason: str = "") -> None:
        dead.update({pid: p.exitcode for pid, p in pool.processes.items() if p.exitcode is not None})
        end_all(pool, reason)

    Pool.kill_workers = note
    try:
        yield dead
    finally:
        Pool.kill_workers = end_all


def _bury(launches: Sequence[Configuration], dead: Mapping[int, int], message: str) -> None:
    """Record for every dead worker the run that it was at: of those it had claimed, the first that is not done."""
    blamed: set[int] = set()
    for point in launches:
        store = point.job.setup.store
        for run in point.job.plan:
            claim = None if store.state(run.run_id) is State.DONE else claims.clear(store.folder(run.run_id))
            if claim and claim["pid"] not in blamed and (not dead or claim["pid"] in dead):
                blamed.add(claim["pid"])
                cause = _cause({claim["pid"]: dead[claim["pid"]]}) if dead else message
                record_failure(point.job, run, cause, None, interrupted=True)
                record_orphans(point.job, point.job.plan)


def _record_loss(point: Configuration, message: str) -> None:
    """Record for a job that was lost the first of its runs that nobody did, and those that need it."""
    store, plan = point.job.setup.store, point.job.plan
    _wait(store, {run.run_id for run in plan})  # its claim may be one of a host that is gone
    if left := unfinished(store, plan):
        record_failure(point.job, left[0], message, None, interrupted=True)
        record_orphans(point.job, left[1:])


def _time_limit(launches: Sequence[Configuration], left: set[str], given: int) -> int:
    """Minutes for a job: 3 times the longest stored training of the same models and data, plus 5; at most `given`.

    As given where some model of the launches was never trained on its data.
    """
    rows = launches[0].job.setup.store.rows("task == 'train'")
    longest: Any = rows.groupby(["dataset", "model"])["train_s"].max() if len(rows) else {}
    runs = [run.about for point in launches for run in point.job.plan if run.task == "train" and run.run_id in left]
    seconds = [longest.get((about["dataset"], about["model"])) for about in runs]
    known = [one for one in seconds if one is not None]
    return min(given, math.ceil(max(known) * 3 / 60) + 5) if known and len(known) == len(seconds) else given


def _cause(dead: Mapping[int, int]) -> str:
    """What ended the first of these workers."""
    code = next(iter(dead.values()))
    if code >= 0:
        return f"the worker ended with exit code {code}"
    return f"the worker was killed by {signal.Signals(-code).name}" + (" (out of memory?)" if code == -9 else "")


def _launches(points: Sequence[Configuration], left: set[str]) -> list[Configuration]:
    """The configurations with work left that no earlier one covers: a heavy run shared by many is launched once."""
    covered: set[str] = set()
    chosen = []
    for point in points:
        missing = {run.run_id for run in point.job.plan if run.run_id in left} - covered
        if missing:
            chosen.append(point)
            covered |= missing
    return chosen


def _plan_line(states: dict[str, State], left: set[str], trainings: int, never: int) -> str:
    """Where the runs of a plan stand, and how many of them are trainings, where others are among them.

    never: runs that need the weights of a training that diverged.
    """
    counts: Counter[Any] = Counter(states.values())
    parts = [f"{counts[state]} {state.value}" for state in (State.DONE, State.FAILED)]
    parts += [f"{counts[state]} {state.value}" for state in (State.INTERRUPTED, State.DAMAGED) if counts[state]]
    parts += [f"{counts[State.RUNNING]} running", f"{len(left) - counts[State.RUNNING]} to run"]
    parts += [f"{never} never: their training diverged"] if never else []
    kinds = f"; {trainings} of the runs are trainings" if 0 < trainings < len(states) else ""
    return f"{len(states)} runs: {', '.join(parts)}{kinds}"
