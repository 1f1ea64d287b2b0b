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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

SWEEP_WIDE_KEYS = ("outputs", "plugins")  # like sweep.KEY, they have one value for all runs of a sweep
REQUIRED_PROGRAMS = {"submitit_slurm": ("srun", "sbatch")}  # by launcher
REFRESH_S = 1.0
CONNECT_TIMEOUT_S = 5.0
MAX_FRUITLESS_LAUNCHES = 3  # launches in a row that finish no run


class LostJob(Exception):
    """A job of a cluster ended without recording how; the message is the cause, as far as it is known."""


@contextmanager
def progress(
    store: Store,
    runs: Sequence[Run],
    total: int,
    waiting_for: Callable[[], str],
    estimate: Callable[[float | None], None],
) -> Iterator[None]:
    """Show how many of `total` runs are done and failed, and the time to go, while the body works on `runs`.

    Void runs (see `void`) count as completed once the training that they need has diverged.
    waiting_for: returns why no run is at work; a line shows it when that takes long.
    estimate: called with each estimate of the seconds to go; None where there is none.
    """
    waiting_ids = {run.run_id for run in runs}
    children_of: dict[str | None, list[str]] = {}
    for run in runs:
        children_of.setdefault(run.parent, []).append(run.run_id)

    idle = Waiting(waiting_for)
    pace = Pace(works_of(runs))
    n_completed = total - len(waiting_ids)
    lines = Lines("runs", total, n_completed, paced=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[failed]}[/red]"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[to_go]}"),
        disable=not on_terminal(),
    )
    ended_early: dict[str, State] = {}
    void_ids: set[str] = set()
    is_working = True

    with bar:
        bar_task = bar.add_task("runs", total=total, completed=n_completed, failed="", to_go="")

        def refresh() -> None:
            is_any_at_work = not waiting_ids
            seconds_at_work: dict[str, float] = {}  # by run id

            for run_id in list(waiting_ids):
                state = store.state(run_id)
                if state is State.RUNNING:
                    is_any_at_work = True
                    claim = claims.holder(store.folder(run_id))
                    if claim is not None:
                        seconds_at_work[run_id] = time.time() - claim.get("started", time.time())

                if state in SETTLED:
                    is_any_at_work = True
                    waiting_ids.discard(run_id)
                    row = store.row_if_whole(run_id) if state is State.DONE else None
                    pace.finish(run_id, None if row is None else seconds_of(row))
                    if row is not None and row.get(FLAG) == DIVERGED:
                        void_ids.update(_descendants(run_id, children_of))

                if state in ENDED_EARLY:
                    ended_early[run_id] = state

            for run_id in void_ids & waiting_ids:
                waiting_ids.discard(run_id)
                pace.finish(run_id, None)
            idle.look(at_work=is_any_at_work or not is_working)

            note = _note_on_runs_without_result(ended_early.values(), len(void_ids))
            seconds = pace.to_go(time.monotonic(), seconds_at_work) if waiting_ids else None
            estimate(seconds)
            to_go = "" if seconds is None else f"about {as_time(seconds)} to go"

            n_completed = total - len(waiting_ids)
            bar.update(bar_task, completed=n_completed, failed=note, to_go=to_go)
            lines.show(n_completed, ", ".join(filter(None, (note, to_go))), last=not is_working)

        try:
            with repeating(refresh, REFRESH_S):
                yield
        finally:
            is_working = False
            refresh()


def _note_on_runs_without_result(states: Iterable[State], n_void: int) -> str:
    """The number of runs that ended in each of these states, and of void ones: "1 failed, 2 never: ..."."""
    counts = Counter(state.value for state in states)
    notes = [f"{number} {state}" for state, number in sorted(counts.items())]
    if n_void:
        notes.append(f"{n_void} never: their training diverged")
    return ", ".join(notes)


def _descendants(run_id: str, children_of: Mapping[str | None, Sequence[str]]) -> Iterator[str]:
    """The runs that need this one, the runs that need those, and so on."""
    for child in children_of.get(run_id, ()):
        yield child
        yield from _descendants(child, children_of)


@dataclass(frozen=True)
class Configuration:
    """One point of the grid."""

    overrides: list[str]
    job: Job


class SkippedPoints:
    """The points of a grid whose data set has too few classes for the subset, while another point can be drawn."""

    def __init__(self) -> None:
        self.errors: list[NoSuchSubset] = []
        self.sizes_by_reason: dict[str, list[str]] = {}  # why points are skipped -> the sizes that were requested
        self.n_planned = 0

    @contextmanager
    def skipping(self, config: DictConfig) -> Iterator[None]:
        """Plan a point in the body; skip it if its data set has too few classes for such a subset."""
        try:
            yield
            self.n_planned += 1
        except NoSuchSubset as error:
            data = data_of(config)
            ncl = config.subset.ncl
            if ncl <= 0 or 1 <= ncl <= len(data.classes):  # wrong for every data set
                raise

            self.errors.append(error)
            problem = f"of which subset.ncl={ncl} is {error.args[1]}" if ncl < 1 else "fewer than subset.ncl="
            reason = f"{data.name} has {len(data.classes)} classes, {problem}"
            sizes = self.sizes_by_reason.setdefault(reason, [])
            if ncl > 1 and str(ncl) not in sizes:
                sizes.append(str(ncl))

    def summary(self) -> str | None:
        """A line with the number of skipped points and why; None for none. Raises the first error if all are."""
        if not self.errors:
            return None
        if not self.n_planned:
            raise self.errors[0]

        total = self.n_planned + len(self.errors)
        reasons = "; ".join(reason + listed(sizes) for reason, sizes in self.sizes_by_reason.items())
        return f"skipped {len(self.errors)} of {total} configurations: {reasons}"


def _equal_draws(points: Sequence[Configuration]) -> str | None:
    """A line on seeds that draw the same classes: the number of seeds and of subsets; None where no seeds do.

    Such seeds share their runs, so a sweep has fewer runs than configurations.
    """
    seeds_by_draw: dict[tuple[str, str], set[int]] = {}
    subsets_by_draw: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for point in points:
        subset = point.job.values["subset"]
        data = point.job.setup.data
        if subset["ncl"] is None:
            continue

        label = f"subset.ncl={subset['ncl']} of the {len(data.classes)} classes of {data.name}"
        draw = (data.fingerprint + str(subset["sampler"]), label)
        seeds_by_draw.setdefault(draw, set()).add(subset["seed"])
        subsets_by_draw.setdefault(draw, set()).add(point.job.setup.subset.classes)

    notes = []
    for draw, subsets in subsets_by_draw.items():
        n_seeds = len(seeds_by_draw[draw])
        if len(subsets) < n_seeds:
            label = draw[1]
            number = f"{len(subsets)} different subsets" if len(subsets) > 1 else "1 subset"
            notes.append(f"{label}: {n_seeds} seeds, {number}")
    return "; ".join(notes) or None


class ResumingSweep:
    """The body of the sweeper plugin (hydra_plugins/fca); `params` are the axes that an experiment file brings."""

    def __init__(self, params: Mapping[str, str] | None = None) -> None:
        self.params = dict(params or {})
        self.fruitless_launches = 0

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
        """Plan the whole grid, print where it stands, launch the unfinished runs; exit code 1 if a run failed."""

        if self.config.sweep.print:
            self._print_commands(arguments)
            return
        with shared():
            self._run_grid(arguments)

    def _run_grid(self, arguments: list[str]) -> None:
        with gathered():
            points = self._configurations(arguments)
        store = points[0].job.setup.store
        runs = {run.run_id: run for point in points for run in point.job.plan}
        states = {run_id: store.state(run_id) for run_id in runs}
        pending_ids, void_ids = self._pending_and_void(store, runs, states)

        # Show the plan
        n_trainings = sum(run.task == "train" for run in runs.values())
        print(_plan_line(states, pending_ids, n_trainings, len(void_ids)), flush=True)
        chosen_classes = (point.job.chosen_classes for point in points)
        for line in dict.fromkeys(line for line in chosen_classes if line):
            print(line, flush=True)
        equal_draws = _equal_draws(points)
        if equal_draws:
            print(equal_draws, flush=True)

        # Prepare the store
        for run_id in runs:
            claims.clear(store.folder(run_id))  # of a killed sweep, perhaps just after it had stored the row
        done_ids = {run_id for run_id, state in states.items() if state is State.DONE}
        for point in points:
            keep_items(point.job, done_ids)
        for run_id in pending_ids:
            store.forgive(run_id)

        # Prepare the tracker
        hydra = self.config.hydra
        group = hydra.runtime.choices.get("experiment") or Path(hydra.sweep.dir).name
        os.environ.setdefault("WANDB_RUN_GROUP", group)  # the workers inherit it
        if pending_ids:
            points[0].job.setup.tracker.connect()

        weights = Weights(point.job for point in points)
        pending_runs = [run for run_id, run in runs.items() if run_id in pending_ids]
        parents = {run_id: runs[run_id].parent for run_id in pending_ids}
        with (
            claims.announced(store.outputs, parents) as announced,
            progress(store, pending_runs, len(runs), self._waiting_for, announced.estimate),
            repeating(weights.remove_unneeded, REFRESH_S),
        ):
            while pending_ids:
                self._work(points, pending_ids)
                pending_ids = _wait(store, pending_ids)
                pending_ids -= void(store, (run for run in runs.values() if run.run_id in pending_ids))
        weights.remove_unneeded()

        axes = swept_columns([point.overrides for point in points])
        print(*outcome(store, list(runs.values()), axes), sep="\n")
        if show_failures(store, runs):
            raise SystemExit(1)

    def _pending_and_void(
        self, store: Store, runs: Mapping[str, Run], states: Mapping[str, State]
    ) -> tuple[set[str], set[str]]:
        """The ids of the runs that are to be done, and of those that nobody will do (see `void`)."""
        states_to_run = {State.ABSENT, State.DAMAGED, State.INTERRUPTED, State.RUNNING}
        if self.config.sweep.retry:
            states_to_run.add(State.FAILED)

        candidates = [run for run_id, run in runs.items() if states[run_id] in states_to_run]
        void_ids = void(store, candidates)
        return {run.run_id for run in candidates} - void_ids, void_ids

    def _print_commands(self, arguments: list[str]) -> None:
        """Print a command for each configuration with unfinished runs; downloads nothing."""
        not_downloaded: list[NotDownloaded] = []
        with gathered():
            points = self._configurations(arguments, not_downloaded)

        pending_ids: set[str] = set()
        if points:
            store = points[0].job.setup.store
            runs = {run.run_id: run for point in points for run in point.job.plan}
            states = {run_id: store.state(run_id) for run_id in runs}
            pending_ids, _ = self._pending_and_void(store, runs, states)
        equal_draws = _equal_draws(points)
        if equal_draws:
            print(equal_draws, file=sys.stderr)

        commands = [point.job.command for point in _points_to_launch(points, pending_ids)]
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

    def _work(self, points: Sequence[Configuration], pending_ids: set[str]) -> None:
        """Launch one job for each configuration with heavy runs pending; then do the light runs in this process."""
        launches: list[Configuration] = []
        kinds_of_launch: list[set[str]] = []
        for point in _points_to_launch(points, pending_ids):
            pending_runs = [run for run in point.job.plan if run.run_id in pending_ids]
            if not all(run.light for run in pending_runs):
                launches.append(point)
                kinds_of_launch.append({kind_of(run) for run in pending_runs})
        if launches:
            self._launch(first_of_each_kind(launches, kinds_of_launch), pending_ids)

        for point in points:
            if any(run.run_id in pending_ids and run.light for run in point.job.plan):
                execute(point.job, alone=False)
        points[0].job.setup.tracker.close()  # all points share it

    def _launch(self, launches: Sequence[Configuration], pending_ids: set[str]) -> None:
        """Have the launcher do these jobs. A worker that dies fails the run that it was at; its other runs stay free.

        Raises the launcher's error, or exits, when launches repeatedly finish no run and no run is to blame.
        """
        store = launches[0].job.setup.store
        params = getattr(self.launcher, "params", {})
        if isinstance(params, dict) and params.get("timeout_from_rows"):
            params["timeout_min"] = _time_limit(launches, pending_ids, self.config.hydra.launcher.timeout_min)

        jobs: Sequence[Any] = ()
        try:
            with _exit_codes_of_dead_workers() as exit_codes:
                jobs = self.launcher.launch([point.overrides for point in launches], initial_job_idx=0)
        except Exception as error:
            if not exit_codes:
                _wait(store, pending_ids)  # jobs on other machines go on
            record_dead_workers(launches, exit_codes, f"the worker died: {str(error).partition('.')[0]}")

            has_finished_a_run = any(store.state(run_id) in SETTLED for run_id in pending_ids)
            self.fruitless_launches = 0 if has_finished_a_run else self.fruitless_launches + 1
            if self.fruitless_launches and not exit_codes:
                raise self._cannot_start(error) from error
            if self.fruitless_launches == MAX_FRUITLESS_LAUNCHES:
                first_code = next(iter(exit_codes.values()))
                cause = _describe_exit(first_code)
                print(
                    f"error: {MAX_FRUITLESS_LAUNCHES} times, workers died before they began ({cause})", file=sys.stderr
                )
                raise SystemExit(1) from error
        finally:
            for run_id in pending_ids:
                claims.clear(store.folder(run_id))

        for point, job in zip(launches, jobs, strict=False):  # no jobs if the launcher itself failed
            try:
                _ = job.return_value  # raises what ended a job outside of its runs
            except LostJob as loss:
                _record_loss(point, str(loss))

    def _cannot_start(self, error: Exception) -> Exception:
        """The launcher's error as the user reads it. Removes the folders that the launcher made, if they are empty."""
        sweep_folder = Path(self.config.hydra.sweep.dir)
        made_folders = [sweep_folder]
        if sweep_folder.parent.name == ".hydra":
            made_folders += sweep_folder.parents[:2]
        with suppress(OSError):
            for folder in made_folders:
                folder.rmdir()

        if isinstance(error, FcaError) or (isinstance(error, OSError) and error.filename is not None):
            return error
        name = self.config.hydra.runtime.choices["hydra/launcher"]
        reason = " ".join(str(error).split())
        allowed = f"a launcher that can start ({type(error).__name__}: {reason[:300]})"
        return FcaError("hydra/launcher", name, allowed, "correct hydra.launcher.KEY, or take hydra/launcher=basic")

    def _configurations(
        self, arguments: list[str], not_downloaded: list[NotDownloaded] | None = None
    ) -> list[Configuration]:
        """Every point of the grid, composed, checked and planned; without subsets that a data set is too small for.

        not_downloaded: collects the points whose data set is not on this machine; nothing is downloaded then.
        """
        axes = self._axes(arguments)
        axis_sizes = {word: len(axis) for axis in axes.values() for value in axis for word in hydra_words(value)}
        composer = self.context.config_loader = Composer(self.loader, axis_sizes)

        points: list[Configuration] = []
        skipped = SkippedPoints()
        for values in itertools.product(*axes.values()):
            overrides = [word for value in values for word in hydra_words(value)]
            config = composer.point(self.config, overrides)
            typed = typed_words(self.config.hydra, overrides)
            try:
                with skipped.skipping(config):
                    job = job_of(config, typed, download=not_downloaded is None)
                    points.append(Configuration(overrides, job))
            except NotDownloaded as missing:
                assert not_downloaded is not None
                not_downloaded.append(missing)

        skipped_line = skipped.summary()
        if skipped_line:
            print(skipped_line, file=sys.stderr, flush=True)
        return points

    def _axes(self, arguments: list[str]) -> dict[str, list[str]]:
        """Key -> its overrides; the command line overrules the experiment's axes, key by key."""
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        overrides = OverridesParser.create(config_loader=self.loader).parse_overrides(words)
        override_by_key = {override.get_key_element(): override for override in overrides}

        check_values(SweepConfig, self.config.sweep, "sweep")
        head = self.config.sweep.head
        max_size = self.config.sweep.max
        sizes = {key: min(_axis_size(override), head or math.inf) for key, override in override_by_key.items()}
        grid_size = math.prod(sizes.values())
        if grid_size > max_size:
            axes = ", ".join(f"{key} {size:,}" for key, size in sizes.items() if size > 1)
            step = f"take fewer values ({axes}), or set sweep.max={grid_size}"
            raise FcaError("configurations of the sweep", f"{grid_size:,}", f"at most sweep.max={max_size:,}", step)
        return {key: _axis_values(override, head) for key, override in override_by_key.items()}


def _check_launcher(hydra: DictConfig, *, starts: bool) -> None:
    """Raise FcaError for a launcher that cannot work here, before the sweep is planned.

    starts: whether it is to start jobs; to have its commands printed, it needs no cluster.
    """
    name = hydra.runtime.choices.get("hydra/launcher")
    launcher = hydra.launcher
    if not isinstance(launcher, DictConfig):
        raise FcaError("hydra.launcher", launcher, "what hydra/launcher=NAME brings", "choose a launcher by its name")
    if launcher.get("n_jobs") == 0:
        raise FcaError("hydra.launcher.n_jobs", 0, "1 or more, or -1 for one a core", "take one of these")

    if name == "joblib" and launcher.get("backend") not in (None, "loky"):
        allowed = "loky, or null: Hydra's launcher has no other"
        raise FcaError("hydra.launcher.backend", launcher.backend, allowed, "leave it out")

    if name == "gpus":
        is_list_of_gpus = OmegaConf.is_list(launcher.gpus) and len(launcher.gpus) > 0
        if launcher.gpus != "auto" and not is_list_of_gpus:
            allowed = "auto, or a list of GPUs as nvidia-smi numbers them"
            raise FcaError("hydra.launcher.gpus", launcher.gpus, allowed, "write it as hydra.launcher.gpus=[0,2]")

    if starts:
        _check_programs(name)

    if name == "ray":
        if not isinstance(launcher.ray, DictConfig):
            raise FcaError("hydra.launcher.ray", launcher.ray, "init and remote", "set their keys")
        init = OmegaConf.select(launcher, "ray.init")
        if starts and isinstance(init, DictConfig):
            _prepare_ray(init)


def _check_programs(launcher: str | None) -> None:
    """Raise FcaError where this machine lacks a program that the launcher needs."""
    required_programs = REQUIRED_PROGRAMS.get(str(launcher), ())
    missing_programs = [program for program in required_programs if shutil.which(program) is None]
    if missing_programs:
        allowed = f"a machine that has {' and '.join(required_programs)}; {' and '.join(missing_programs)} not found"
        step = "go to a machine of the cluster, or take hydra/launcher=joblib"
        raise FcaError("hydra/launcher", launcher, allowed, step)


def _prepare_ray(init: DictConfig) -> None:
    """Let Ray connect to an address, if it has one. Raises FcaError if nobody answers there: Ray would try for ever."""
    address = init.get("address") or os.environ.get("RAY_ADDRESS", "")
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # auto or local
        return

    try:
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        step = "look at `ray status` there; without an address, Ray starts on this machine"
        raise FcaError("hydra.launcher.ray.init.address", address, f"a cluster that answers ({error})", step) from error
    with open_dict(init):
        init.setdefault("object_store_memory", None)  # else the launcher sets it, which Ray refuses beside an address


def _axis_size(override: Override) -> int:
    """The number of values of an axis, without making them. Raises FcaError where there is no value."""
    if not override.is_sweep_override():
        return 1

    key, _, typed_value = str(override.input_line).partition("=")
    if key in SWEEP_WIDE_KEYS or key.startswith("sweep."):
        raise FcaError(key, typed_value, "one value for the whole sweep", "give one")
    if not override.is_discrete_sweep():
        raise FcaError(key, typed_value, "a list or a range", "write it as 1,2,3 or range(1,4)")

    values = override.value()
    if isinstance(values, RangeSweep):
        start: Any = values.start
        stop: Any = values.stop
        step: Any = values.step
        if not step or not all(map(math.isfinite, (start, stop, step))):
            raise FcaError(key, typed_value, "a range with finite ends and a step", "write it as range(1,4)")
        size = math.ceil((stop - start) / step)
    else:
        size = sum(1 for _ in override.sweep_iterator())
    if size < 1:
        raise FcaError(key, typed_value, "one value or more", "write it as 1,2,3 or range(1,4)")
    return size


def _axis_values(override: Override, head: int | None) -> list[str]:
    """The values of an axis as overrides, at most the first `head`."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in itertools.islice(override.sweep_string_iterator(), head)]


def _wait(store: Store, run_ids: set[str]) -> set[str]:
    """Wait for runs that other sweeps compute; returns those that were abandoned and are to be done again."""
    while any(store.state(run_id) is State.RUNNING for run_id in run_ids):
        time.sleep(POLL_S)
    return {run_id for run_id in run_ids if store.state(run_id) in (State.ABSENT, State.DAMAGED)}


@contextmanager
def _exit_codes_of_dead_workers() -> Iterator[dict[int, int]]:
    """Process id -> exit code of the joblib workers that died in the body, noted before joblib ends their pool."""
    from joblib.externals.loky.process_executor import _ExecutorManagerThread as Pool

    exit_codes: dict[int, int] = {}
    kill_workers = Pool.kill_workers

    def note_and_kill_workers(pool: Any, reason: str = "") -> None:
        for pid, process in pool.processes.items():
            if process.exitcode is not None:
                exit_codes[pid] = process.exitcode
        kill_workers(pool, reason)

    Pool.kill_workers = note_and_kill_workers
    try:
        yield exit_codes
    finally:
        Pool.kill_workers = kill_workers


def record_dead_workers(launches: Sequence[Configuration], exit_codes: Mapping[int, int], message: str) -> None:
    """Record for every dead worker the run that it was at: of those that it had claimed, the first unfinished one.

    exit_codes: process id -> exit code of the workers that died; empty: every worker with a claim did, of `message`.
    """
    recorded_pids: set[int] = set()
    for point in launches:
        store = point.job.setup.store
        for run in point.job.plan:
            if store.state(run.run_id) is State.DONE:
                continue

            stale_claim = claims.clear(store.folder(run.run_id))  # frees the run for another worker
            if not stale_claim:
                continue

            pid = stale_claim["pid"]
            has_died = not exit_codes or pid in exit_codes
            if has_died and pid not in recorded_pids:
                recorded_pids.add(pid)
                cause = _describe_exit(exit_codes[pid]) if exit_codes else message
                record_failure(point.job, run, cause, None, interrupted=True)
                record_orphans(point.job, point.job.plan)


def _record_loss(point: Configuration, message: str) -> None:
    """Record that a job was lost: for the first of its unfinished runs, and for the runs that need it."""
    store = point.job.setup.store
    plan = point.job.plan
    _wait(store, {run.run_id for run in plan})  # its claim may be one of a host that is gone

    unfinished_runs = unfinished(store, plan)
    if unfinished_runs:
        record_failure(point.job, unfinished_runs[0], message, None, interrupted=True)
        record_orphans(point.job, unfinished_runs[1:])


def _time_limit(launches: Sequence[Configuration], pending_ids: set[str], max_minutes: int) -> int:
    """Minutes for a job: 3 times the longest stored training of the same models and data, plus 5; at most the maximum.

    The maximum where a model of the launches was never trained on its data.
    """
    rows = launches[0].job.setup.store.rows("task == 'train'")
    longest_s: Any = rows.groupby(["dataset", "model"])["train_s"].max() if len(rows) else {}

    expected_s: list[float] = []
    for point in launches:
        for run in point.job.plan:
            if run.task != "train" or run.run_id not in pending_ids:
                continue
            seconds = longest_s.get((run.about["dataset"], run.about["model"]))
            if seconds is None:
                return max_minutes
            expected_s.append(seconds)

    if not expected_s:
        return max_minutes
    return min(max_minutes, math.ceil(max(expected_s) * 3 / 60) + 5)


def _describe_exit(exit_code: int) -> str:
    """What ended a worker with this exit code; negative: the number of a signal."""
    if exit_code >= 0:
        return f"the worker ended with exit code {exit_code}"
    hint = " (out of memory?)" if exit_code == -signal.SIGKILL else ""
    return f"the worker was killed by {signal.Signals(-exit_code).name}{hint}"


def _points_to_launch(points: Sequence[Configuration], pending_ids: set[str]) -> list[Configuration]:
    """The points with pending runs that no earlier point covers: a heavy run that many share is launched once."""
    covered_ids: set[str] = set()
    points_to_launch = []
    for point in points:
        pending_of_point = {run.run_id for run in point.job.plan if run.run_id in pending_ids}
        uncovered_ids = pending_of_point - covered_ids
        if uncovered_ids:
            points_to_launch.append(point)
            covered_ids |= uncovered_ids
    return points_to_launch


def _plan_line(states: Mapping[str, State], pending_ids: set[str], n_trainings: int, n_void: int) -> str:
    """The number of runs in each state, and how many are trainings, where the plan has other runs, too."""
    counts: Counter[Any] = Counter(states.values())
    n_running = counts[State.RUNNING]

    words = [f"{counts[state]} {state.value}" for state in (State.DONE, State.FAILED)]
    words += [f"{counts[state]} {state.value}" for state in (State.INTERRUPTED, State.DAMAGED) if counts[state]]
    words += [f"{n_running} running", f"{len(pending_ids) - n_running} to run"]
    if n_void:
        words.append(f"{n_void} never: their training diverged")

    line = f"{len(states)} runs: {', '.join(words)}"
    if 0 < n_trainings < len(states):
        line += f"; {n_trainings} of the runs are trainings"
    return line
