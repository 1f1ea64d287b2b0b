"""Hydra multiruns that resume: everything is composed and checked first, and only unfinished runs are launched."""

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
from typing import Any, TextIO

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fca.cli.application import SweepConfig, hydra_words, typed_words
from fca.cli.compose import Composer
from fca.cli.configure import Job, NotDownloaded, data_of, job_of, not_here
from fca.cli.execute import POLL_S, execute, find_void_ids, keep_items, record_failure, record_orphans, unfinished
from fca.cli.notices import gathered, shared
from fca.cli.outcome import outcome, swept_columns
from fca.cli.pace import Pace, first_of_each_kind, kind_of, seconds_of, works_of
from fca.cli.show import show_failures
from fca.cli.status import as_time
from fca.cli.waiting import Waiting, why_waiting
from fca.cli.weights import Weights
from fca.data.content import shared_listings
from fca.plugins import use_plugins
from fca.progress import ProgressLines, on_terminal
from fca.store import ENDED_EARLY, SETTLED, State, Store, claims
from fca.store.claims import repeating
from fca.store.columns import DIVERGED, FLAG
from fca.subset import NoSuchSubset
from fca.types import FcaError, ImageData, Run, choices_in_words
from fca.validation import check_values

KEYS_OF_SWEEP = ("outputs", "plugins")  # and sweep.KEY: keys that cannot differ between its runs
PROGRAMS = {"submitit_slurm": ("srun", "sbatch")}  # that a launcher needs
LOOK_S = 1.0
ANSWERS_S = 5.0
MOST_FRUITLESS = 3  # launches in a row without any finished run, after which the sweep gives up


class LostJob(Exception):
    """A job of a cluster ended without a record of its end; the message is the reason, as far as it is known."""


@contextmanager
def progress(
    store: Store,
    runs: Sequence[Run],
    total: int,
    waiting_for: Callable[[], str],
    on_estimate: Callable[[float | None], None],
) -> Iterator[None]:
    """Show how many of `total` runs are done and failed, and the time to go, while somebody does `runs` in the body.

    waiting_for: the reason why no run is in progress; it is printed if that takes long.
    on_estimate: called with each estimate of the seconds to go, None where there is none.
    """
    watched = _WatchedRuns(store, runs)
    idle = Waiting(waiting_for)
    is_working = True

    counts = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    failures = TextColumn("[red]{task.fields[failed]}[/red]")
    times = TimeElapsedColumn(), TextColumn("{task.fields[to_go]}")
    n_done_before = total - len(watched.unsettled)
    lines = ProgressLines("runs", total, n_done_before, paced=False)
    with Progress(*counts, failures, *times, disable=not on_terminal()) as bar:
        bar_task = bar.add_task("runs", total=total, completed=n_done_before, failed="", to_go="")

        def look() -> None:
            is_running = watched.look()
            idle.look(at_work=is_running or not is_working)

            seconds = watched.seconds_to_go()
            on_estimate(seconds)
            to_go = "" if seconds is None else f"about {as_time(seconds)} to go"
            n_settled = total - len(watched.unsettled)
            note = watched.note()
            bar.update(bar_task, completed=n_settled, failed=note, to_go=to_go)
            lines.show(n_settled, ", ".join(filter(None, (note, to_go))), last=not is_working)

        try:
            with repeating(look, LOOK_S):
                yield
        finally:
            is_working = False
            look()


class _WatchedRuns:
    """The states of runs that others do, as each look finds them.

    unsettled: ids of runs that may still be done.    void: ids of runs that need a training that diverged.
    """

    def __init__(self, store: Store, runs: Sequence[Run]) -> None:
        self.store = store
        self.unsettled = {run.run_id for run in runs}
        self.ended_early: dict[str, State] = {}
        self.void: set[str] = set()
        self.running_for_s: dict[str, float] = {}
        self.pace = Pace(works_of(runs))
        self.children: dict[str | None, list[str]] = {}
        for run in runs:
            self.children.setdefault(run.parent, []).append(run.run_id)

    def look(self) -> bool:
        """Read the states of all unsettled runs; returns whether any of them runs or was settled since."""
        is_active = not self.unsettled
        self.running_for_s = {}
        for run_id in list(self.unsettled):
            state = self.store.state(run_id)
            if state is State.RUNNING:
                is_active = True
                self._note_start(run_id)
            if state in SETTLED:
                is_active = True
                self._settle(run_id, state)
            if state in ENDED_EARLY:
                self.ended_early[run_id] = state

        for run_id in self.void & self.unsettled:
            self.unsettled.discard(run_id)
            self.pace.finish(run_id, None)
        return is_active

    def _note_start(self, run_id: str) -> None:
        claim = claims.holder(self.store.folder(run_id))
        if claim is not None:
            self.running_for_s[run_id] = time.time() - claim.get("started", time.time())

    def _settle(self, run_id: str, state: State) -> None:
        self.unsettled.discard(run_id)
        row = self.store.row_if_whole(run_id) if state is State.DONE else None
        self.pace.finish(run_id, None if row is None else seconds_of(row))
        if row is not None and row.get(FLAG) == DIVERGED:
            self.void.update(_descendants(run_id, self.children))

    def seconds_to_go(self) -> float | None:
        """An estimate for all unsettled runs; None without one."""
        if not self.unsettled:
            return None
        return self.pace.to_go(time.monotonic(), self.running_for_s)

    def note(self) -> str:
        """How many runs failed, were interrupted or can never be done; empty if none."""
        counts = Counter(state.value for state in self.ended_early.values())
        notes = [f"{number} {state}" for state, number in sorted(counts.items())]
        if self.void:
            notes.append(f"{len(self.void)} never: their training diverged")
        return ", ".join(notes)


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


class SkippedPoints:
    """The points of a grid that are skipped, as their data set has no subset of the size, while that of others has."""

    def __init__(self) -> None:
        self.errors: list[NoSuchSubset] = []
        self.sizes_by_reason: dict[str, list[str]] = {}
        self.n_planned = 0

    @contextmanager
    def unless_drawn(self, config: DictConfig) -> Iterator[None]:
        """Plan a point in the body; it is skipped if its data set has too few classes for such a subset."""
        try:
            yield
            self.n_planned += 1
        except NoSuchSubset as error:
            data = data_of(config)
            ncl = config.subset.ncl
            is_wrong_everywhere = ncl <= 0 or 1 <= ncl <= len(data.classes)
            if is_wrong_everywhere:
                raise
            self._skip(error, data, ncl)

    def _skip(self, error: NoSuchSubset, data: ImageData, ncl: float) -> None:
        self.errors.append(error)
        reason = f"{data.name} has {len(data.classes)} classes, "
        if ncl < 1:
            reason += f"of which subset.ncl={ncl} is {error.args[1]}"
        else:
            reason += "fewer than subset.ncl="

        sizes = self.sizes_by_reason.setdefault(reason, [])
        if ncl > 1 and str(ncl) not in sizes:
            sizes.append(str(ncl))

    def line(self) -> str | None:
        """How many points were skipped, and why; None if none. Raises the first error if all points were."""
        if not self.errors:
            return None
        if not self.n_planned:
            raise self.errors[0]
        reasons = "; ".join(reason + choices_in_words(sizes) for reason, sizes in self.sizes_by_reason.items())
        total = self.n_planned + len(self.errors)
        return f"skipped {len(self.errors)} of {total} configurations: {reasons}"


def _equal_draws(points: Sequence[Configuration]) -> str | None:
    """The numbers of seeds and of different subsets, where several seeds draw the same classes; None if none do.

    Such seeds share their runs, so that a sweep has fewer runs than configurations.
    """
    seeds_of_draw: dict[tuple[str, str], set[int]] = {}
    subsets_of_draw: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for point in points:
        subset = point.job.values["subset"]
        data = point.job.context.data
        if subset["ncl"] is None:
            continue
        draw = f"subset.ncl={subset['ncl']} of the {len(data.classes)} classes of {data.name}"
        key = (data.fingerprint + str(subset["sampler"]), draw)
        seeds_of_draw.setdefault(key, set()).add(subset["seed"])
        subsets_of_draw.setdefault(key, set()).add(point.job.context.subset.classes)

    notes = []
    for (fingerprint, draw), subsets in subsets_of_draw.items():
        n_seeds = len(seeds_of_draw[fingerprint, draw])
        if len(subsets) < n_seeds:
            n_subsets = f"{len(subsets)} different subsets" if len(subsets) > 1 else "1 subset"
            notes.append(f"{draw}: {n_seeds} seeds, {n_subsets}")
    return "; ".join(notes) or None


class ResumingSweep:
    """The body of the sweeper plugin (hydra_plugins/fca).

    params: the axes of an experiment file.    n_fruitless: launches in a row without any finished run.
    """

    def __init__(self, params: Mapping[str, str] | None = None) -> None:
        self.params = dict(params or {})
        self.n_fruitless = 0

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

    @shared_listings()
    def sweep(self, arguments: list[str]) -> None:
        """Plan the whole grid, print the state of its runs, launch the unfinished ones; exit code 1 if a run failed."""
        if self.config.sweep.print:
            self._print_commands(arguments)
            return
        with shared():
            self._sweep(arguments)

    def _sweep(self, arguments: list[str]) -> None:
        with gathered():
            points = self._configurations(arguments)
        store = points[0].job.context.store
        runs = {run.run_id: run for point in points for run in point.job.plan}
        states = {run_id: store.state(run_id) for run_id in runs}
        pending, void_ids = self._pending_and_void(store, runs, states)
        _print_plan(points, runs, states, pending, void_ids)

        self._prepare(points, runs, states, pending)
        self._do(points, runs, pending)

        axes = swept_columns([point.overrides for point in points])
        print(*outcome(store, list(runs.values()), axes), sep="\n")
        if show_failures(store, runs):
            raise SystemExit(1)

    def _prepare(
        self,
        points: Sequence[Configuration],
        runs: Mapping[str, Run],
        states: Mapping[str, State],
        pending: set[str],
    ) -> None:
        """Clear old claims and failures, complete lists of images, and connect to the tracker if there is work."""
        store = points[0].job.context.store
        for run_id in runs:
            claims.clear(store.folder(run_id))  # of a killed sweep, perhaps just after it had stored the row
        done_ids = {run_id for run_id, state in states.items() if state is State.DONE}
        for point in points:
            keep_items(point.job, done_ids)
        for run_id in pending:
            store.forgive(run_id)

        hydra = self.config.hydra
        group = hydra.runtime.choices.get("experiment") or Path(hydra.sweep.dir).name
        os.environ.setdefault("WANDB_RUN_GROUP", group)  # the workers inherit it
        if pending:
            points[0].job.context.tracker.connect()

    def _do(self, points: Sequence[Configuration], runs: Mapping[str, Run], pending: set[str]) -> None:
        """Do the pending runs, in as many launches as that takes, while progress is shown and weights are removed."""
        store = points[0].job.context.store
        weights = Weights(point.job for point in points)
        pending_runs = [run for run_id, run in runs.items() if run_id in pending]
        with (
            claims.announced(store.outputs, {run_id: runs[run_id].parent for run_id in pending}) as announced,
            progress(store, pending_runs, len(runs), self._waiting_for, announced.estimate),
            repeating(weights.remove_unneeded, LOOK_S),
        ):
            while pending:
                self._work(points, pending)
                pending = _wait(store, pending)
                pending -= find_void_ids(store, (run for run in runs.values() if run.run_id in pending))
        weights.remove_unneeded()

    def _pending_and_void(
        self, store: Store, runs: Mapping[str, Run], states: Mapping[str, State]
    ) -> tuple[set[str], set[str]]:
        """Ids of the runs that are to be done, and of those that can never be done (see `find_void_ids`)."""
        states_to_do = {State.ABSENT, State.DAMAGED, State.INTERRUPTED, State.RUNNING}
        if self.config.sweep.retry:
            states_to_do.add(State.FAILED)

        to_do = [run for run_id, run in runs.items() if states[run_id] in states_to_do]
        void_ids = find_void_ids(store, to_do)
        return {run.run_id for run in to_do} - void_ids, void_ids

    def _print_commands(self, arguments: list[str]) -> None:
        """Print a command for each configuration with unfinished runs; downloads nothing."""
        not_downloaded: list[NotDownloaded] = []
        with gathered():
            points = self._configurations(arguments, not_downloaded)
        pending: set[str] = set()
        if points:
            store = points[0].job.context.store
            runs = {run.run_id: run for point in points for run in point.job.plan}
            states = {run_id: store.state(run_id) for run_id in runs}
            pending, _ = self._pending_and_void(store, runs, states)
        _print_line(_equal_draws(points), file=sys.stderr)

        commands = [point.job.command for point in _launches(points, pending)]
        commands += [missing.command for missing in not_downloaded]
        for command in commands:
            print(command)
        if not commands:
            print("note: every run of these is done: no command is left to print", file=sys.stderr)
        if not_downloaded:
            print(not_here([missing.dataset for missing in not_downloaded]), file=sys.stderr)

    def _waiting_for(self) -> str:
        """The reason why no run is in progress."""
        return why_waiting(self.config.hydra.runtime.choices.get("hydra/launcher"), self.launcher)

    def _work(self, points: Sequence[Configuration], pending: set[str]) -> None:
        """Launch one job per configuration with heavy pending runs; then do the light runs in this process."""
        launches = [
            point
            for point in _launches(points, pending)
            if any(run.run_id in pending and not run.light for run in point.job.plan)
        ]
        if launches:
            kinds = [{kind_of(run) for run in point.job.plan if run.run_id in pending} for point in launches]
            self._launch(first_of_each_kind(launches, kinds), pending)

        for point in points:
            if any(run.run_id in pending and run.light for run in point.job.plan):
                execute(point.job, alone=False)
        points[0].job.context.tracker.close()  # one for all points

    def _launch(self, launches: Sequence[Configuration], pending: set[str]) -> None:
        """Have the launcher do these jobs. A worker that dies costs only its present run; the others remain pending.

        Raises the launcher's error, or exits, if launches fail again and again without any finished run.
        """
        store = launches[0].job.context.store
        params = getattr(self.launcher, "params", {})
        if isinstance(params, dict) and params.get("timeout_from_rows"):
            params["timeout_min"] = _time_limit(launches, pending, self.config.hydra.launcher.timeout_min)

        jobs: Sequence[Any] = ()
        try:
            with _noting_exit_codes() as exit_codes:
                jobs = self.launcher.launch([point.overrides for point in launches], initial_job_idx=0)
        except Exception as error:
            self._survive(error, launches, pending, exit_codes)
        finally:
            for run_id in pending:
                claims.clear(store.folder(run_id))

        for point, job in zip(launches, jobs, strict=False):  # none if the launcher itself failed
            try:
                _ = job.return_value  # raises the error of a job that ended outside of its runs
            except LostJob as loss:
                _record_loss(point, str(loss))

    def _survive(
        self,
        error: Exception,
        launches: Sequence[Configuration],
        pending: set[str],
        exit_codes: Mapping[int, int],
    ) -> None:
        """Record the runs of dead workers, so that the sweep goes on with the others; otherwise raise or exit."""
        store = launches[0].job.context.store
        if not exit_codes:
            _wait(store, pending)  # jobs on other machines go on
        record_dead_workers(launches, exit_codes, f"the worker died: {str(error).partition('.')[0]}")

        has_settled_runs = any(store.state(run_id) in SETTLED for run_id in pending)
        self.n_fruitless = 0 if has_settled_runs else self.n_fruitless + 1
        if self.n_fruitless and not exit_codes:
            raise self._cannot_start(error) from error
        if self.n_fruitless == MOST_FRUITLESS:
            first_code = next(iter(exit_codes.values()))
            reason = describe_exit(first_code)
            print(f"error: {MOST_FRUITLESS} times, workers died before they began ({reason})", file=sys.stderr)
            raise SystemExit(1) from error

    def _cannot_start(self, error: Exception) -> Exception:
        """The error of a launcher that did nothing, as an error of the user's; its empty folders are removed."""
        folder = Path(self.config.hydra.sweep.dir)
        folders = (folder, *folder.parents[:2]) if folder.parent.name == ".hydra" else (folder,)
        with suppress(OSError):  # one that is not empty stays, and so do its parents
            for empty_folder in folders:
                empty_folder.rmdir()

        names_a_file = isinstance(error, OSError) and error.filename is not None
        if isinstance(error, FcaError) or names_a_file:
            return error
        name = self.config.hydra.runtime.choices["hydra/launcher"]
        reason = " ".join(str(error).split())
        allowed = f"a launcher that can start ({type(error).__name__}: {reason[:300]})"
        return FcaError("hydra/launcher", name, allowed, "correct hydra.launcher.KEY, or take hydra/launcher=basic")

    def _configurations(
        self, arguments: list[str], not_downloaded: list[NotDownloaded] | None = None
    ) -> list[Configuration]:
        """Every point of the grid, composed, checked and planned; without subsets for which a data set is too small.

        not_downloaded: receives the points of data sets that are not here, so that nothing is downloaded.
        """
        axes = self._axes(arguments)
        n_values_of_word = {word: len(axis) for axis in axes.values() for value in axis for word in hydra_words(value)}
        composer = Composer(self.loader, n_values_of_word)
        self.context.config_loader = composer

        points = []
        skipped = SkippedPoints()
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
        _print_line(skipped.line(), file=sys.stderr)
        return points

    def _axes(self, arguments: list[str]) -> dict[str, list[str]]:
        """Key -> its overrides; the command line takes precedence over the experiment's axes, key by key."""
        words = [f"{key}={value}" for key, value in self.params.items()] + arguments
        overrides = OverridesParser.create(config_loader=self.loader).parse_overrides(words)
        axes = {override.get_key_element(): override for override in overrides}
        check_values(SweepConfig, self.config.sweep, "sweep")

        head = self.config.sweep.head
        largest = self.config.sweep.max
        size_of_axis = {key: min(_size(override), head or math.inf) for key, override in axes.items()}
        size = math.prod(size_of_axis.values())
        if size > largest:
            long_axes = ", ".join(f"{key} {length:,}" for key, length in size_of_axis.items() if length > 1)
            step = f"take fewer values ({long_axes}), or set sweep.max={size}"
            raise FcaError("configurations of the sweep", f"{size:,}", f"at most sweep.max={largest:,}", step)
        return {key: _values(override, head) for key, override in axes.items()}


def _check_launcher(hydra: DictConfig, *, starts: bool) -> None:
    """Raise FcaError for a launcher that cannot work here, before the sweep is planned.

    starts: whether it will start anything; printing commands needs no cluster.
    """
    name = hydra.runtime.choices.get("hydra/launcher")
    launcher = hydra.launcher
    if not isinstance(launcher, DictConfig):
        raise FcaError("hydra.launcher", launcher, "what hydra/launcher=NAME brings", "choose a launcher by its name")
    if launcher.get("n_jobs") == 0:
        raise FcaError("hydra.launcher.n_jobs", 0, "1 or more, or -1 for one a core", "take one of these")
    if name == "joblib":
        _check_joblib(launcher)
    if name == "gpus":
        _check_gpus(launcher)
    if name == "ray":
        _check_ray(launcher, starts=starts)

    missing = [program for program in PROGRAMS.get(name, ()) if shutil.which(program) is None]
    if starts and missing:
        allowed = f"a machine that has {' and '.join(PROGRAMS[name])}; {' and '.join(missing)} not found"
        raise FcaError("hydra/launcher", name, allowed, "go to a machine of the cluster, or take hydra/launcher=joblib")


def _check_joblib(launcher: DictConfig) -> None:
    if launcher.get("backend") not in (None, "loky"):
        allowed = "loky, or null: Hydra's launcher has no other"
        raise FcaError("hydra.launcher.backend", launcher.backend, allowed, "leave it out")


def _check_gpus(launcher: DictConfig) -> None:
    is_list_of_gpus = OmegaConf.is_list(launcher.gpus) and len(launcher.gpus) > 0
    if launcher.gpus != "auto" and not is_list_of_gpus:
        allowed = "auto, or a list of GPUs as nvidia-smi numbers them"
        raise FcaError("hydra.launcher.gpus", launcher.gpus, allowed, "write it as hydra.launcher.gpus=[0,2]")


def _check_ray(launcher: DictConfig, *, starts: bool) -> None:
    if not isinstance(launcher.ray, DictConfig):
        raise FcaError("hydra.launcher.ray", launcher.ray, "init and remote", "set their keys")
    init = OmegaConf.select(launcher, "ray.init")
    if starts and isinstance(init, DictConfig):
        _prepare_ray(init)


def _prepare_ray(init: DictConfig) -> None:
    """Let Ray connect to its address, if any. Raises FcaError if that does not answer: Ray would wait for ever."""
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
        init.setdefault("object_store_memory", None)  # the launcher would set it, which Ray refuses beside an address


def _size(override: Override) -> int:
    """The number of values of an axis, without making a list of them. Raises FcaError for an axis without values."""
    if not override.is_sweep_override():
        return 1
    key, _, typed = str(override.input_line).partition("=")
    if key in KEYS_OF_SWEEP or key.startswith("sweep."):
        raise FcaError(key, typed, "one value for the whole sweep", "give one")
    if not override.is_discrete_sweep():
        raise FcaError(key, typed, "a list or a range", "write it as 1,2,3 or range(1,4)")

    values = override.value()
    if isinstance(values, RangeSweep):
        start: Any = values.start
        stop: Any = values.stop
        step: Any = values.step
        if not step or not all(map(math.isfinite, (start, stop, step))):
            raise FcaError(key, typed, "a range with finite ends and a step", "write it as range(1,4)")
        size = math.ceil((stop - start) / step)
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


def _wait(store: Store, run_ids: set[str]) -> set[str]:
    """Wait for runs that other sweeps are doing; returns those that were abandoned and are to be done again."""
    while any(store.state(run_id) is State.RUNNING for run_id in run_ids):
        time.sleep(POLL_S)
    return {run_id for run_id in run_ids if store.state(run_id) in (State.ABSENT, State.DAMAGED)}


@contextmanager
def _noting_exit_codes() -> Iterator[dict[int, int]]:
    """Process id -> exit code of the joblib workers that died, noted before joblib ends the others of their pool."""
    from joblib.externals.loky.process_executor import _ExecutorManagerThread as Pool

    exit_codes: dict[int, int] = {}
    kill_workers = Pool.kill_workers

    def note_then_kill(pool: Any, reason: str = "") -> None:
        for pid, process in pool.processes.items():
            if process.exitcode is not None:
                exit_codes[pid] = process.exitcode
        kill_workers(pool, reason)

    Pool.kill_workers = note_then_kill
    try:
        yield exit_codes
    finally:
        Pool.kill_workers = kill_workers


def record_dead_workers(launches: Sequence[Configuration], exit_codes: Mapping[int, int], message: str) -> None:
    """Record, for every dead worker, its present run: the first that is not done of those it had claimed.

    exit_codes: of the workers that died, by process id; empty if they are not known.    message: the cause in that
    case.
    """
    recorded_pids: set[int] = set()
    for point in launches:
        store = point.job.context.store
        for run in point.job.plan:
            if store.state(run.run_id) is State.DONE:
                continue

            stale_claim = claims.clear(store.folder(run.run_id))  # frees the run for another worker
            if stale_claim is None:
                continue

            pid = stale_claim["pid"]
            is_dead = not exit_codes or pid in exit_codes
            if is_dead and pid not in recorded_pids:
                recorded_pids.add(pid)
                cause = describe_exit(exit_codes[pid]) if exit_codes else message
                record_failure(point.job, run, cause, None, interrupted=True)
                record_orphans(point.job, point.job.plan)


def describe_exit(exit_code: int) -> str:
    """How a worker ended, by its exit code.

    >>> describe_exit(3), describe_exit(-9)
    ('the worker ended with exit code 3', 'the worker was killed by SIGKILL (out of memory?)')
    """
    if exit_code >= 0:
        return f"the worker ended with exit code {exit_code}"
    number = -exit_code
    guess = " (out of memory?)" if number == signal.SIGKILL else ""
    return f"the worker was killed by {signal.Signals(number).name}{guess}"


def _record_loss(point: Configuration, message: str) -> None:
    """Record, for a lost job, the first of its runs that nobody did, and those that need it."""
    store = point.job.context.store
    plan = point.job.plan
    _wait(store, {run.run_id for run in plan})  # its claim may be that of a host that is gone
    pending = unfinished(store, plan)
    if pending:
        record_failure(point.job, pending[0], message, None, interrupted=True)
        record_orphans(point.job, pending[1:])


def _time_limit(launches: Sequence[Configuration], pending: set[str], timeout_min: int) -> int:
    """Minutes for a job: 3 times the longest stored training of the same models and data, plus 5; at most timeout_min.

    timeout_min itself if some model of the launches was never trained on its data.
    """
    rows = launches[0].job.context.store.rows("task == 'train'")
    longest_s: Any = rows.groupby(["dataset", "model"])["train_s"].max() if len(rows) else {}

    trainings = [run for point in launches for run in point.job.plan if run.task == "train" and run.run_id in pending]
    seconds = [longest_s.get((run.metadata["dataset"], run.metadata["model"])) for run in trainings]
    if not seconds or None in seconds:
        return timeout_min
    return min(timeout_min, math.ceil(max(seconds) * 3 / 60) + 5)


def _launches(points: Sequence[Configuration], pending: set[str]) -> list[Configuration]:
    """The configurations with pending runs that no earlier one covers: a run shared by many is launched once."""
    covered: set[str] = set()
    launches = []
    for point in points:
        uncovered = {run.run_id for run in point.job.plan if run.run_id in pending} - covered
        if uncovered:
            launches.append(point)
            covered |= uncovered
    return launches


def _print_plan(
    points: Sequence[Configuration],
    runs: Mapping[str, Run],
    states: Mapping[str, State],
    pending: set[str],
    void_ids: set[str],
) -> None:
    """Print the state of a plan, the classes that subsets name, and seeds that draw the same classes."""
    n_trainings = sum(run.task == "train" for run in runs.values())
    chosen_classes = dict.fromkeys(point.job.chosen_classes for point in points)
    _print_line(_plan_line(states, pending, n_trainings, len(void_ids)))
    for line in chosen_classes:
        _print_line(line)
    _print_line(_equal_draws(points))


def _print_line(line: str | None, file: TextIO | None = None) -> None:
    if line is not None:
        print(line, file=file, flush=True)


def _plan_line(states: Mapping[str, State], pending: set[str], n_trainings: int, n_void: int) -> str:
    """The number of runs of a plan in each state, and of trainings if there are other runs as well.

    n_void: runs that need the weights of a training that diverged.
    """
    counts: Counter[Any] = Counter(states.values())
    words = [f"{counts[state]} {state.value}" for state in (State.DONE, State.FAILED)]
    words += [f"{counts[state]} {state.value}" for state in (State.INTERRUPTED, State.DAMAGED) if counts[state]]
    words += [f"{counts[State.RUNNING]} running", f"{len(pending) - counts[State.RUNNING]} to run"]
    if n_void:
        words.append(f"{n_void} never: their training diverged")

    trainings = ""
    if 0 < n_trainings < len(states):
        trainings = f"; {n_trainings} of the runs are trainings"
    return f"{len(states)} runs: {', '.join(words)}{trainings}"
