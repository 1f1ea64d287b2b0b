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

KEYS_WITH_ONE_VALUE = ("outputs", "plugins")  # they cannot differ between the runs of a sweep, nor can sweep.KEY
PROGRAMS_OF_LAUNCHER = {"submitit_slurm": ("srun", "sbatch")}  # launcher -> the programs that it needs
LOOK_EVERY_S = 1.0
RAY_ANSWERS_WITHIN_S = 5.0
MAX_FRUITLESS_LAUNCHES = 3  # launches in a row without any finished run, after which the sweep gives up


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
    """While the body runs, show how many of the `total` runs are done and failed, and the time to go.

    Workers in other processes, or on other machines, do the runs, so a thread reads the states of the runs from the
    store. A terminal gets a progress bar, other output a line from time to time.

    runs:        the runs that are pending at the start.
    total:       the number of all runs of the sweep.
    waiting_for: returns the reason why no run is in progress; the reason is printed when that state lasts long.
    on_estimate: is called every LOOK_EVERY_S seconds with the estimated seconds to go; with None if there is no
                 estimate.
    """
    watched = _WatchedRuns(store, runs)  # its `unsettled` are the runs that may still be done
    idle = Waiting(waiting_for)  # prints the reason, if nothing is at work for long
    body_is_running = True

    count_columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    failure_column = TextColumn("[red]{task.fields[failed]}[/red]")
    time_columns = TimeElapsedColumn(), TextColumn("{task.fields[to_go]}")
    n_done_before = total - len(watched.unsettled)
    lines = ProgressLines("runs", total, n_done_before, paced=False)  # `watched` has a better estimate of the time
    with Progress(*count_columns, failure_column, *time_columns, disable=not on_terminal()) as bar:
        bar_task = bar.add_task("runs", total=total, completed=n_done_before, failed="", to_go="")

        def look() -> None:
            """Read the states of the runs (`watched`), and update what is shown and the estimate of the time to go.

            A terminal shows the progress bar `bar`, other output `lines`. If no run is at work for long, `idle` prints
            the reason.
            """
            is_active = watched.look()
            idle.look(at_work=is_active or not body_is_running)  # after the body, nothing is waited for

            seconds = watched.seconds_to_go()
            on_estimate(seconds)  # for `fca status` in other processes
            to_go = "" if seconds is None else f"about {as_time(seconds)} to go"
            n_settled = total - len(watched.unsettled)
            failed = watched.note()  # "2 failed", or empty
            bar.update(bar_task, completed=n_settled, failed=failed, to_go=to_go)
            failed_and_to_go = ", ".join(text for text in (failed, to_go) if text)
            lines.show(n_settled, failed_and_to_go, last=not body_is_running)

        try:
            with repeating(look, LOOK_EVERY_S):
                yield
        finally:
            body_is_running = False
            look()  # the thread may have missed the last runs


class _WatchedRuns:
    """The states of runs that other processes do, as the latest look found them.

    unsettled:     ids of the runs that may still be done.
    ended_early:   id -> state of each run that failed or was interrupted.
    void:          ids of the runs that can never be done, since they need the weights of a training that diverged.
    running_for_s: id of each run in progress -> seconds since it was claimed.
    pace:          estimates the time to go from the durations of finished runs.
    children:      id of a run -> ids of the runs that need it; None -> ids of the runs that need none.
    """

    def __init__(self, store: Store, runs: Sequence[Run]) -> None:
        """Start to watch these runs of a store; none of them is settled (done, failed or interrupted) yet.

        Light runs, such as scores from stored predictions, take no time worth estimating; `works_of` leaves them out.
        """
        self.store = store
        self.unsettled = {run.run_id for run in runs}
        self.ended_early: dict[str, State] = {}  # runs that failed or were interrupted
        self.void: set[str] = set()  # runs that can never be done, since they need a training that diverged
        self.running_for_s: dict[str, float] = {}  # run in progress -> seconds since it was claimed
        self.pace = Pace(works_of(runs))  # estimates the time to go from the kind and number of classes of each run
        self.children: dict[str | None, list[str]] = {}  # run -> the runs that need it; None -> those that need none
        for run in runs:
            self.children.setdefault(run.parent, []).append(run.run_id)

    def look(self) -> bool:
        """Read the states of all unsettled runs: those that are not yet done, failed or interrupted.

        Returns whether the sweep is active: a run is in progress, a run ended since the last look, or no run is left.
        The caller reports a sweep that stays inactive, but one without a run left waits for nothing.
        """
        is_active = not self.unsettled  # no run is left
        self.running_for_s = {}  # filled by `_note_start`
        for run_id in list(self.unsettled):  # a copy, since `_settle` removes ids
            state = self.store.state(run_id)
            if state is State.RUNNING:
                is_active = True
                self._note_start(run_id)
            if state in SETTLED:  # done, failed or interrupted
                is_active = True
                self._settle(run_id, state)
            if state in ENDED_EARLY:  # failed or interrupted
                self.ended_early[run_id] = state

        # if a training has diverged, `_settle` has made the runs that need its weights void: no worker will do them
        for run_id in self.void & self.unsettled:
            self.unsettled.discard(run_id)
            self.pace.finish(run_id, None)  # None: it has no duration that would improve the estimate
        return is_active

    def _note_start(self, run_id: str) -> None:
        """Note for how long a run has been in progress, by its claim."""
        claim = claims.holder(self.store.folder(run_id))
        if claim is not None:  # None: the run ended this moment
            self.running_for_s[run_id] = time.time() - claim.get("started", time.time())

    def _settle(self, run_id: str, state: State) -> None:
        """Note that a run ended.

        The duration of a run that is done improves the estimate. If the run is a training that diverged, the runs that
        need its weights become void: they can never be done.
        """
        self.unsettled.discard(run_id)
        row = self.store.row_if_whole(run_id) if state is State.DONE else None  # a damaged row is None as well
        self.pace.finish(run_id, None if row is None else seconds_of(row))
        if row is not None and row.get(FLAG) == DIVERGED:
            self.void.update(_descendants(run_id, self.children))

    def seconds_to_go(self) -> float | None:
        """The estimated seconds until all unsettled runs are done; None if there are none, or no estimate yet."""
        if not self.unsettled:
            return None
        return self.pace.to_go(time.monotonic(), self.running_for_s)

    def note(self) -> str:
        """How many runs failed, were interrupted or can never be done, such as "2 failed"; empty if none."""
        counts = Counter(state.value for state in self.ended_early.values())
        notes = [f"{number} {state}" for state, number in sorted(counts.items())]
        if self.void:
            notes.append(f"{len(self.void)} never: their training diverged")
        return ", ".join(notes)


def _descendants(run_id: str, children: Mapping[str | None, Sequence[str]]) -> Iterator[str]:
    """Yield the ids of all runs that need this one, directly or through other runs.

    children: id of a run -> ids of the runs that need it directly.
    """
    for child in children.get(run_id, ()):
        yield child
        yield from _descendants(child, children)


@dataclass(frozen=True)
class Configuration:
    """One point of the grid: its overrides in Hydra's grammar, and the job that they configure."""

    overrides: list[str]
    job: Job


class SkippedPoints:
    """The points of a grid that are skipped because their data set has fewer classes than `subset.ncl`.

    Such points are no mistake in a grid over several data sets, since other data sets have more classes.
    """

    def __init__(self) -> None:
        self.errors: list[NoSuchSubset] = []
        self.sizes_by_reason: dict[str, list[str]] = {}  # reason -> values of subset.ncl that end its sentence
        self.n_planned = 0

    @contextmanager
    def skipping_if_too_small(self, config: DictConfig) -> Iterator[None]:
        """Skip a point, which the body plans, if its data set has too few classes for the size of its subset.

        Planning raises NoSuchSubset for a size that cannot be drawn. For a data set with too few classes, this error is
        suppressed, and the point is noted as skipped. For a size that no data set allows (a subset has 2 classes or
        more), the error is raised.
        config: the configuration of the point.
        """
        try:
            yield
            self.n_planned += 1
        except NoSuchSubset as error:
            data = data_of(config)
            ncl = config.subset.ncl  # the number of classes; below 1, a share of the classes of the data set
            has_enough_classes = 1 <= ncl <= len(data.classes)
            # the data set is not to blame: no data set allows such a number, 1 or -3 for example
            if ncl <= 0 or has_enough_classes:
                raise
            self._skip(error, data, ncl)

    def _skip(self, error: NoSuchSubset, data: ImageData, ncl: float) -> None:
        """Note a skipped point under the reason, so that `line` has one sentence for all points with the same reason.

        error: raised because the subset of the point cannot be drawn.
        data:  the images of the point.
        ncl:   its number of classes; below 1, a share of the classes of the data set.
        """
        self.errors.append(error)
        reason = f"{data.name} has {len(data.classes)} classes, "
        if ncl < 1:
            n_drawn = error.args[1]  # the value that the error names: the number of classes to which the share rounds
            reason += f"of which subset.ncl={ncl} is {n_drawn}"
            self.sizes_by_reason.setdefault(reason, [])  # this sentence is complete
        else:
            reason += "fewer than subset.ncl="  # `line` adds the sizes
            sizes = self.sizes_by_reason.setdefault(reason, [])
            if str(ncl) not in sizes:  # points with other seeds may have the same size
                sizes.append(str(ncl))

    def line(self) -> str | None:
        """How many points were skipped, and why; None if no point was skipped.

        Raises the first error if all points were skipped, since the sweep then has nothing to do.
        """
        if not self.errors:
            return None
        if not self.n_planned:
            raise self.errors[0]
        reasons = "; ".join(reason + choices_in_words(sizes) for reason, sizes in self.sizes_by_reason.items())
        total = self.n_planned + len(self.errors)
        return f"skipped {len(self.errors)} of {total} configurations: {reasons}"


def _line_about_equal_draws(points: Sequence[Configuration]) -> str | None:
    """A line about draws of classes in which several subset seeds give the same classes; None if there are none.

    Seeds with the same classes share their runs. So the line explains why the sweep has fewer runs than configurations.
    A draw is a data set, the number of classes (ncl) and the way of drawing them (sampler). For each draw with such
    seeds, the line has the number of seeds and the number of different subsets.
    points: the points of the grid.
    """
    seeds_of_draw: dict[tuple[str, str], set[int]] = {}
    subsets_of_draw: dict[tuple[str, str], set[tuple[int, ...]]] = {}
    for point in points:
        subset = point.job.values["subset"]
        data = point.job.context.data
        if subset["ncl"] is None:  # nothing is drawn
            continue
        draw_text = f"subset.ncl={subset['ncl']} of the {len(data.classes)} classes of {data.name}"
        # the text may be the same for two samplers, or for two versions of a data set, which are different draws
        data_and_sampler = data.fingerprint + str(subset["sampler"])
        key = (data_and_sampler, draw_text)
        seeds_of_draw.setdefault(key, set()).add(subset["seed"])
        subsets_of_draw.setdefault(key, set()).add(point.job.context.subset.classes)

    notes = []
    for key, subsets in subsets_of_draw.items():
        _, draw_text = key
        n_seeds = len(seeds_of_draw[key])
        if len(subsets) < n_seeds:
            n_subsets = f"{len(subsets)} different subsets" if len(subsets) > 1 else "1 subset"
            notes.append(f"{draw_text}: {n_seeds} seeds, {n_subsets}")
    return "; ".join(notes) or None  # no note, no line


class ResumingSweep:
    """The sweeper plugin's methods; the class that Hydra finds is in hydra_plugins/fca.

    params:      the axes of an experiment file, key -> values as typed (hydra.sweeper.params).
    n_fruitless: the number of launches in a row, up to the latest, without any finished run.
    """

    def __init__(self, params: Mapping[str, str] | None = None) -> None:
        self.params = dict(params or {})
        self.n_fruitless = 0

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Check and make the launcher; Hydra calls this before `sweep`.

        task_function: does one job, given its configuration.
        config: the configuration before any axis is applied.
        Raises FcaError for a launcher that cannot work here.
        """
        self.config = config
        use_plugins(config.plugins)
        prints_only = OmegaConf.select(config, "sweep.print")  # the launcher will start nothing
        _check_launcher(config.hydra, starts=not prints_only)
        self.context = hydra_context  # shared with the launcher; `_configurations` replaces its loader
        self.loader: Any = hydra_context.config_loader
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    @shared_listings()  # the workers use the lists of files that planning made
    def sweep(self, arguments: list[str]) -> None:
        """Plan the whole grid, print the state of its runs, launch the unfinished runs; exit code 1 if a run failed.

        With sweep.print=true, only print a command for each configuration that has unfinished runs.
        arguments: the overrides of the command line; some have several values.
        """
        if self.config.sweep.print:
            self._print_commands(arguments)
            return
        with shared():  # a warning that several workers have is printed once, with its count
            self._plan_and_run(arguments)

    def _plan_and_run(self, arguments: list[str]) -> None:
        """Plan the grid, do its pending runs, and print the outcome; exit code 1 if a run failed.

        arguments: the overrides of the command line.
        """
        with gathered():  # warnings about planning are printed once, with their count
            points = self._configurations(arguments)
        store = points[0].job.context.store  # all points have the same store, since no sweep may vary `outputs`
        runs = {run.run_id: run for point in points for run in point.job.plan}  # each once: points may share runs
        states = {run_id: store.state(run_id) for run_id in runs}
        # void: runs that can never be done, since they need the weights of a training that diverged
        pending, void_ids = self._find_pending_and_void(store, runs, states)
        _print_plan(points, runs, states, pending, void_ids)

        self._prepare_store_and_tracker(points, runs, states, pending)
        self._run_pending(points, runs, pending)

        axes = swept_columns([point.overrides for point in points])  # for a table with a line for each combination
        print(*outcome(store, list(runs.values()), axes), sep="\n")
        failed_ids = show_failures(store, runs)  # prints the failures
        if failed_ids:
            raise SystemExit(1)

    def _prepare_store_and_tracker(
        self,
        points: Sequence[Configuration],
        runs: Mapping[str, Run],
        states: Mapping[str, State],
        pending: set[str],
    ) -> None:
        """Prepare the store and the tracker for the pending runs.

        This removes the claims of dead workers and the records of earlier failures. If the list of the images of a data
        set is lost, it is written again, since finished runs cannot be read without it. The tracker (such as W&B)
        connects only if there is a run to do.

        points: the configurations of the grid, each with its planned job.
        runs, states: run id -> run, and run id -> its state.
        pending: ids of the runs that will be done.
        """
        store = points[0].job.context.store
        for run_id in runs:
            # if a worker died; also of a finished run, as it may have died just after it had stored the row
            claims.clear(store.folder(run_id))
        done_ids = {run_id for run_id, state in states.items() if state is State.DONE}
        for point in points:
            keep_items(point.job, done_ids)  # writes lists of images again
        for run_id in pending:
            store.forgive(run_id)  # otherwise a failed run would count as settled and would not be repeated

        hydra = self.config.hydra
        # without an experiment, the name of the sweep's folder
        group = hydra.runtime.choices.get("experiment") or Path(hydra.sweep.dir).name
        os.environ.setdefault("WANDB_RUN_GROUP", group)  # W&B groups the runs of a sweep; the workers inherit it
        if pending:
            points[0].job.context.tracker.connect()

    def _run_pending(self, points: Sequence[Configuration], runs: Mapping[str, Run], pending: set[str]) -> None:
        """Launch the pending runs until all of them have ended. Meanwhile, show progress and remove unneeded weights.

        Runs that another sweep is doing are waited for.
        points:  the configurations of the grid, each with its planned job.
        runs:    all runs of this sweep, by id.
        pending: ids of the runs to do.
        """
        store = points[0].job.context.store
        weights = Weights(point.job for point in points)  # removes weights that no unfinished run needs
        pending_runs = [run for run_id, run in runs.items() if run_id in pending]
        parent_of_pending = {run_id: runs[run_id].parent for run_id in pending}
        with (
            claims.announced(store.outputs, parent_of_pending) as announced,  # for `fca status` in other processes
            progress(store, pending_runs, len(runs), self._reason_for_waiting, announced.estimate),
            repeating(weights.remove_unneeded, LOOK_EVERY_S),
        ):
            while pending:  # a worker that dies, here or in another sweep, leaves runs for the next launch
                self._launch_pending(points, pending)
                pending = _wait_for_running(store, pending)  # the runs that are to be done again
                runs_left = [run for run_id, run in runs.items() if run_id in pending]
                pending -= find_void_ids(store, runs_left)  # void: they need the weights of a training that diverged
        weights.remove_unneeded()

    def _find_pending_and_void(
        self, store: Store, runs: Mapping[str, Run], states: Mapping[str, State]
    ) -> tuple[set[str], set[str]]:
        """The ids of the runs to do, and the ids of void runs, which need the weights of a training that diverged.

        Runs that another process is doing are included, since its worker may die. Failed runs are included only if
        sweep.retry is set.
        runs, states: run id -> run, and run id -> its state.
        """
        states_to_do = {State.ABSENT, State.DAMAGED, State.INTERRUPTED, State.RUNNING}
        if self.config.sweep.retry:
            states_to_do.add(State.FAILED)

        to_do = [run for run_id, run in runs.items() if states[run_id] in states_to_do]
        void_ids = find_void_ids(store, to_do)
        return {run.run_id for run in to_do} - void_ids, void_ids

    def _print_commands(self, arguments: list[str]) -> None:
        """Print a command for each configuration with unfinished runs; start and download nothing.

        Without the images, the runs of a configuration are unknown. So a configuration whose data set is not
        downloaded yet is always printed.
        arguments: the overrides of the command line.
        """
        not_downloaded: list[NotDownloaded] = []
        with gathered():  # warnings of all configurations are printed once, at its end
            points = self._configurations(arguments, not_downloaded)
        pending: set[str] = set()
        if points:
            store = points[0].job.context.store
            runs = {run.run_id: run for point in points for run in point.job.plan}
            states = {run_id: store.state(run_id) for run_id in runs}
            pending, _ = self._find_pending_and_void(store, runs, states)
        # several subset seeds may draw the same classes; then this line explains why there are fewer commands
        _print_line(_line_about_equal_draws(points), file=sys.stderr)  # stdout has only commands

        commands = [point.job.command for point in _configurations_to_launch(points, pending)]
        commands += [missing.command for missing in not_downloaded]
        for command in commands:
            print(command)
        if not commands:
            print("note: every run of these is done: no command is left to print", file=sys.stderr)
        if not_downloaded:
            print(not_here([missing.dataset for missing in not_downloaded]), file=sys.stderr)

    def _reason_for_waiting(self) -> str:
        """The reason why the launcher has no run in progress, in words."""
        return why_waiting(self.config.hydra.runtime.choices.get("hydra/launcher"), self.launcher)

    def _launch_pending(self, points: Sequence[Configuration], pending: set[str]) -> None:
        """Launch one job for each configuration with heavy pending runs; then do the light runs in this process.

        Light runs, such as scores from stored predictions, take milliseconds, less than a worker takes to start. All
        other runs are heavy.
        points: all configurations of the grid, each with its planned job.
        pending: ids of the runs to do.
        """
        configurations_with_heavy_runs = [
            point
            for point in _configurations_to_launch(points, pending)
            if any(run.run_id in pending and not run.light for run in point.job.plan)
        ]
        if configurations_with_heavy_runs:
            kinds_of_jobs = [  # for each job, the kinds of its runs: equal for runs that take equally long
                {kind_of(run) for run in point.job.plan if run.run_id in pending}
                for point in configurations_with_heavy_runs
            ]
            # runs of every kind come early, so that the time to go can be estimated soon
            self._launch(first_of_each_kind(configurations_with_heavy_runs, kinds_of_jobs), pending)

        for point in points:
            if any(run.run_id in pending and run.light for run in point.job.plan):
                # alone=False: does not wait for runs that another worker has claimed, and records errors
                execute(point.job, alone=False)
        points[0].job.context.tracker.close()  # passes on the rows of the light runs; all points have the same tracker

    def _launch(self, launches: Sequence[Configuration], pending: set[str]) -> None:
        """Have the launcher do these jobs, and record the runs at which workers died.

        A worker that dies costs only its present run; its other runs remain pending. On a cluster, a job may be lost,
        which means that it ended without a record of its end: its first unfinished run is recorded as interrupted.
        launches: one configuration for each job.
        pending: ids of the runs to do.
        Raises the launcher's error if it started no worker; exits if workers died MAX_FRUITLESS_LAUNCHES times in a row
        before any run ended. Raises the error of a job that failed outside of its runs, such as at its start.
        """
        store = launches[0].job.context.store
        launcher_keys = getattr(self.launcher, "params", {})  # of submitit's launcher; others have no such attribute
        if isinstance(launcher_keys, dict) and launcher_keys.get("timeout_from_rows"):
            # the time limit of each job follows from earlier trainings
            launcher_keys["timeout_min"] = _job_minutes(launches, pending, self.config.hydra.launcher.timeout_min)

        job_returns: Sequence[Any] = ()
        try:
            with _noting_exit_codes() as exit_codes:
                job_returns = self.launcher.launch([point.overrides for point in launches], initial_job_idx=0)
        except Exception as error:
            self._record_launcher_error(error, launches, pending, exit_codes)
        finally:
            for run_id in pending:
                claims.clear(store.folder(run_id))  # of workers that died

        for point, job_return in zip(launches, job_returns, strict=False):  # no job_returns if the launcher failed
            try:
                _ = job_return.return_value  # raises the error of the job itself; errors of its runs are in the store
            except LostJob as loss:
                _record_loss(point, str(loss))

    def _record_launcher_error(
        self,
        error: Exception,
        launches: Sequence[Configuration],
        pending: set[str],
        exit_codes: Mapping[int, int],
    ) -> None:
        """Record the runs at which workers died, so that the sweep goes on with the other runs.

        A launch is fruitless if no run ended and no worker died at a run. If it is, and no exit codes are known, no
        worker began, and the error is raised. If workers of joblib died, the sweep launches again; this exits after
        MAX_FRUITLESS_LAUNCHES fruitless launches in a row (`n_fruitless`).

        error:      raised by the launcher.
        launches:   the configurations that it had to do.
        pending:    ids of the runs to do.
        exit_codes: process id -> exit code of each worker of joblib that died; empty for other launchers.
        """
        store = launches[0].job.context.store
        if not exit_codes:
            _wait_for_running(store, pending)  # jobs on other machines go on without the launcher: wait for their end
        first_sentence = str(error).partition(".")[0]
        record_dead_workers(launches, exit_codes, f"the worker died: {first_sentence}")

        # settled: done, failed or interrupted; the runs at which workers died have just been recorded as interrupted
        has_settled_runs = any(store.state(run_id) in SETTLED for run_id in pending)
        is_fruitless = not has_settled_runs
        self.n_fruitless = self.n_fruitless + 1 if is_fruitless else 0
        if is_fruitless and not exit_codes:  # no worker began, so that another launch would fail as well
            self._remove_empty_folders()
            raise self._as_user_error(error) from error
        if self.n_fruitless == MAX_FRUITLESS_LAUNCHES:  # else a sweep whose workers always die would never end
            first_code = next(iter(exit_codes.values()))
            reason = describe_exit(first_code)
            print(f"error: {MAX_FRUITLESS_LAUNCHES} times, workers died before they began ({reason})", file=sys.stderr)
            raise SystemExit(1) from error

    def _as_user_error(self, error: Exception) -> Exception:
        """The error of a launcher that started nothing, as one that names hydra/launcher and the next step.

        An error that already names a key or a file is returned as it is.
        """
        names_a_file = isinstance(error, OSError) and error.filename is not None
        if isinstance(error, FcaError) or names_a_file:
            return error
        name = self.config.hydra.runtime.choices["hydra/launcher"]
        reason = " ".join(str(error).split())
        allowed = f"a launcher that can start ({type(error).__name__}: {reason[:300]})"
        return FcaError("hydra/launcher", name, allowed, "correct hydra.launcher.KEY, or take hydra/launcher=basic")

    def _remove_empty_folders(self) -> None:
        """Remove the folders of the sweep that a launcher made before it failed, if they are empty."""
        sweep_folder = Path(self.config.hydra.sweep.dir)
        folders = [sweep_folder]
        if sweep_folder.parent.name == ".hydra":  # the default is OUTPUTS/.hydra/NAME; all three may be new
            folders += sweep_folder.parents[:2]
        with suppress(OSError):  # one that is not empty stays, and so do its parents
            for folder in folders:
                folder.rmdir()

    def _configurations(
        self, arguments: list[str], not_downloaded: list[NotDownloaded] | None = None
    ) -> list[Configuration]:
        """Every point of the grid, composed, checked and planned.

        Points whose data set has too few classes for their subset are left out, with a line on stderr.

        An override KEY=VALUE is called a word here. `hydra_words` translates a word that only fca understands, such as
        shift=corruption/fog/3, into the words, possibly several, that Hydra reads instead.

        arguments:      the overrides of the command line.
        not_downloaded: a list to which an error is added for each point whose data set is not on this machine;
                        nothing is downloaded then. None: such data sets are downloaded.
        """
        axes = self._axes(arguments)
        # The composer composes once what is equal in all points. A word is equal in all points if its axis has 1 value.
        n_values_of_word: dict[str, int] = {}  # Hydra's word -> number of values of its axis
        for words_of_axis in axes.values():
            for typed_word in words_of_axis:
                for word in hydra_words(typed_word):
                    n_values_of_word[word] = len(words_of_axis)
        composer = Composer(self.loader, n_values_of_word)
        self.context.config_loader = composer  # the launcher composes each job with it, too

        points = []
        skipped = SkippedPoints()
        for typed_words_of_point in itertools.product(*axes.values()):
            overrides = [word for typed_word in typed_words_of_point for word in hydra_words(typed_word)]
            config = composer.point(self.config, overrides)  # to be used at once: the next call may change this object
            # for the command that repeats this point. `typed_words` adds hydra.searchpath if the user typed it, since
            # `axes` has only the overrides of fca's own keys
            words_of_command = typed_words(self.config.hydra, overrides)
            try:
                with skipped.skipping_if_too_small(config):
                    job = job_of(config, words_of_command, download=not_downloaded is None)
                    points.append(Configuration(overrides, job))
            except NotDownloaded as missing:
                assert not_downloaded is not None  # otherwise job_of downloads
                not_downloaded.append(missing)
        _print_line(skipped.line(), file=sys.stderr)
        return points

    def _axes(self, arguments: list[str]) -> dict[str, list[str]]:
        """The axes of the grid: key -> its overrides KEY=VALUE, one for each value.

        A key of the command line replaces the same key of the experiment. With sweep.head, only the first values of
        each axis are kept.
        Raises FcaError for more than sweep.max points, before any list of values is made: range(0,10**9) would fill the
        memory.
        arguments: the overrides of the command line.
        """
        words_of_experiment = [f"{key}={value}" for key, value in self.params.items()]
        words = words_of_experiment + arguments
        overrides = OverridesParser.create(config_loader=self.loader).parse_overrides(words)
        axes = {override.get_key_element(): override for override in overrides}  # of one key, the last override counts
        check_values(SweepConfig, self.config.sweep, "sweep")

        head = self.config.sweep.head  # None: all values
        largest = self.config.sweep.max
        size_of_axis = {key: min(_axis_size(override), head or math.inf) for key, override in axes.items()}
        size = math.prod(size_of_axis.values())
        if size > largest:
            long_axes = ", ".join(f"{key} {length:,}" for key, length in size_of_axis.items() if length > 1)
            step = f"take fewer values ({long_axes}), or set sweep.max={size}"
            raise FcaError("configurations of the sweep", f"{size:,}", f"at most sweep.max={largest:,}", step)
        return {key: _axis_words(override, head) for key, override in axes.items()}


def _check_launcher(hydra: DictConfig, *, starts: bool) -> None:
    """Raise FcaError for a launcher that cannot work here, before the sweep is planned.

    hydra:  the node `hydra` of the configuration.
    starts: whether the launcher will start anything; otherwise commands are printed, which needs no cluster.
    """
    name = hydra.runtime.choices.get("hydra/launcher")
    launcher = hydra.launcher
    if not isinstance(launcher, DictConfig):  # somebody typed a plain value
        raise FcaError("hydra.launcher", launcher, "what hydra/launcher=NAME brings", "choose a launcher by its name")
    if launcher.get("n_jobs") == 0:
        raise FcaError("hydra.launcher.n_jobs", 0, "1 or more, or -1 for one a core", "take one of these")
    if name == "joblib":
        _check_joblib(launcher)
    if name == "gpus":
        _check_gpus(launcher)
    if name == "ray":
        _check_ray(launcher, starts=starts)

    programs = PROGRAMS_OF_LAUNCHER.get(name, ())
    missing = [program for program in programs if shutil.which(program) is None]
    if starts and missing:
        allowed = f"a machine that has {' and '.join(programs)}; {' and '.join(missing)} not found"
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
    """Raise FcaError for a node `ray` that has no keys.

    starts: whether jobs are to start; then the address of a cluster is checked, too.
    """
    if not isinstance(launcher.ray, DictConfig):
        raise FcaError("hydra.launcher.ray", launcher.ray, "init and remote", "set their keys")
    init = OmegaConf.select(launcher, "ray.init")
    if starts and isinstance(init, DictConfig):
        _prepare_ray(init)


def _prepare_ray(init: DictConfig) -> None:
    """Prepare the arguments of ray.init to connect to the address of a cluster, if there is one.

    Raises FcaError if nothing answers at the address, since Ray would wait for ever.
    init: the node hydra.launcher.ray.init of the configuration, with these arguments; is changed in place.
    """
    address = init.get("address") or os.environ.get("RAY_ADDRESS", "")
    host, _, port = str(address).removeprefix("ray://").rpartition(":")
    if not port.isdecimal():  # no address, auto or local: Ray finds or starts the cluster itself
        return
    try:
        socket.create_connection((host, int(port)), RAY_ANSWERS_WITHIN_S).close()
    except (OSError, OverflowError) as error:  # OverflowError: a port that is too large
        step = "look at `ray status` there; without an address, Ray starts on this machine"
        raise FcaError("hydra.launcher.ray.init.address", address, f"a cluster that answers ({error})", step) from error
    with open_dict(init):
        init.setdefault("object_store_memory", None)  # the launcher would set it, which Ray refuses beside an address


def _axis_size(override: Override) -> int:
    """The number of values of an axis, found without a list of them, which might fill the memory.

    Raises FcaError for an axis without values or with endless values, and for a key that must not differ in a sweep.
    """
    if not override.is_sweep_override():
        return 1
    key, _, typed = str(override.input_line).partition("=")
    if key in KEYS_WITH_ONE_VALUE or key.startswith("sweep."):
        raise FcaError(key, typed, "one value for the whole sweep", "give one")
    if not override.is_discrete_sweep():  # such as interval(0,1)
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
        size = sum(1 for _ in override.sweep_iterator())  # a list, whose values were all typed
    if size < 1:  # a range whose step leads away from its end
        raise FcaError(key, typed, "one value or more", "write it as 1,2,3 or range(1,4)")
    return size


def _axis_words(override: Override, head: int | None) -> list[str]:
    """The overrides KEY=VALUE of an axis, one for each value.

    head: how many to take at most; None: all.
    """
    key = override.get_key_element()
    if not override.is_sweep_override():
        return [f"{key}={override.get_value_element_as_str()}"]
    return [f"{key}={value}" for value in itertools.islice(override.sweep_string_iterator(), head)]


def _wait_for_running(store: Store, run_ids: set[str]) -> set[str]:
    """Wait until no worker, of this or another sweep, is doing these runs.

    Returns the ids of the runs that are to be done again: their worker died, or their files are damaged.
    """
    while any(store.state(run_id) is State.RUNNING for run_id in run_ids):
        time.sleep(POLL_S)
    return {run_id for run_id in run_ids if store.state(run_id) in (State.ABSENT, State.DAMAGED)}


@contextmanager
def _noting_exit_codes() -> Iterator[dict[int, int]]:
    """Collect, while the body runs, the exit codes of joblib's workers that died: process id -> exit code.

    When one worker dies, joblib kills the other workers of its pool. After that, the exit codes no longer show which
    worker died by itself. So they are noted in joblib's method that kills the workers, before it does.
    """
    from joblib.externals.loky.process_executor import _ExecutorManagerThread as Pool  # slow to import

    exit_codes: dict[int, int] = {}
    kill_workers = Pool.kill_workers

    def note_then_kill(pool: Any, reason: str = "") -> None:
        for pid, process in pool.processes.items():
            if process.exitcode is not None:  # None: it is alive
                exit_codes[pid] = process.exitcode
        kill_workers(pool, reason)

    Pool.kill_workers = note_then_kill  # joblib has no hook here
    try:
        yield exit_codes
    finally:
        Pool.kill_workers = kill_workers


def record_dead_workers(launches: Sequence[Configuration], exit_codes: Mapping[int, int], message: str) -> None:
    """For each dead worker, record the run that it was doing as interrupted, and also the runs that need this run.

    The worker was doing the first unfinished run of those that it had claimed, since it does them one after the other.

    launches:   the configurations of the jobs.
    exit_codes: process id -> exit code of the workers that died; empty if they are not known. Then every process that
                left a claim counts as dead.
    message:    the cause to record if the exit codes are not known.
    """
    recorded_pids: set[int] = set()
    for point in launches:
        store = point.job.context.store
        for run in point.job.plan:
            if store.state(run.run_id) is State.DONE:
                continue

            # removes the claim of a worker that no longer lives, which frees the run; the claim of a live worker stays
            stale_claim = claims.clear(store.folder(run.run_id))
            if not stale_claim:  # None, or {} for a file that was written in part and names no process
                continue

            pid = stale_claim["pid"]
            # when a worker dies, joblib kills the other workers as well, which are not to blame
            is_dead = not exit_codes or pid in exit_codes
            if is_dead and pid not in recorded_pids:  # one run for each worker: it had not begun its later runs
                recorded_pids.add(pid)
                cause = describe_exit(exit_codes[pid]) if exit_codes else message
                record_failure(point.job, run, cause, trace=None, interrupted=True)
                record_orphans(point.job, point.job.plan)  # the runs that need this one


def describe_exit(exit_code: int) -> str:
    """How a worker ended, by its exit code, which is -n after signal n.

    >>> describe_exit(3), describe_exit(-9)
    ('the worker ended with exit code 3', 'the worker was killed by SIGKILL (out of memory?)')
    """
    if exit_code >= 0:
        return f"the worker ended with exit code {exit_code}"
    number = -exit_code
    guess = " (out of memory?)" if number == signal.SIGKILL else ""
    return f"the worker was killed by {signal.Signals(number).name}{guess}"


def _record_loss(point: Configuration, message: str) -> None:
    """Record the first unfinished run of a lost job as interrupted, and the runs that need it.

    A job of a cluster is lost if it ended without a record of its end.
    point: the configuration of the job.
    message: the reason why the job was lost.
    """
    store = point.job.context.store
    plan = point.job.plan
    _wait_for_running(store, {run.run_id for run in plan})  # the claims of a host that is gone stay for two minutes
    pending = unfinished(store, plan)
    if pending:
        record_failure(point.job, pending[0], message, None, interrupted=True)
        record_orphans(point.job, pending[1:])


def _job_minutes(launches: Sequence[Configuration], pending: set[str], timeout_min: int) -> int:
    """The time limit of each job in minutes: 3 times the longest stored training of the same models and data, plus 5.

    The factor and the 5 minutes are a margin; a job that needs more time is queued again. The limit is `timeout_min` at
    most. It is `timeout_min` if the jobs train nothing, or if the store has no training of one of the models on its
    data set.
    launches: one configuration for each job.
    pending: ids of the runs to do; other runs do not count.
    """
    rows = launches[0].job.context.store.rows("task == 'train'")
    longest_s: Any = {}  # (dataset, model) -> seconds of the longest training
    if len(rows):
        longest_s = rows.groupby(["dataset", "model"])["train_s"].max()

    trainings = [run for point in launches for run in point.job.plan if run.task == "train" and run.run_id in pending]
    seconds = [longest_s.get((run.metadata["dataset"], run.metadata["model"])) for run in trainings]
    if not seconds or None in seconds:  # None: no training of this model and data set is stored
        return timeout_min
    return min(timeout_min, math.ceil(max(seconds) * 3 / 60) + 5)


def _configurations_to_launch(points: Sequence[Configuration], pending: set[str]) -> list[Configuration]:
    """The configurations to launch: each has a pending run that no earlier configuration has.

    So a run that several configurations share is launched once.
    points: all configurations, each with its planned job.
    pending: ids of the runs to do.
    """
    covered_ids: set[str] = set()
    launches = []
    for point in points:
        uncovered_ids = {run.run_id for run in point.job.plan if run.run_id in pending} - covered_ids
        if uncovered_ids:
            launches.append(point)
            covered_ids |= uncovered_ids
    return launches


def _print_plan(
    points: Sequence[Configuration],
    runs: Mapping[str, Run],
    states: Mapping[str, State],
    pending: set[str],
    void_ids: set[str],
) -> None:
    """Print how many runs are in each state, the classes that subset.classes lists, and seeds with equal classes.

    runs, states: run id -> run, and run id -> its state.
    pending: ids of the runs to do.
    void_ids: ids of the runs that can never be done, since they need a training that diverged.
    """
    n_trainings = sum(run.task == "train" for run in runs.values())
    _print_line(_plan_line(states, pending, n_trainings, len(void_ids)))

    # each line once; None, of which nothing is printed, where subset.classes lists no classes
    class_lines = dict.fromkeys(point.job.chosen_classes for point in points)
    for line in class_lines:
        _print_line(line)
    _print_line(_line_about_equal_draws(points))


def _print_line(line: str | None, file: TextIO | None = None) -> None:
    if line is not None:
        print(line, file=file, flush=True)


def _plan_line(states: Mapping[str, State], pending: set[str], n_trainings: int, n_void: int) -> str:
    """A line with the number of runs of a plan in each state, and of trainings if there are other runs as well.

    states: run id -> state of the run.
    pending: ids of the runs to do, including runs that are in progress elsewhere.
    n_trainings: the number of trainings in the plan.
    n_void: the number of runs that need a training that diverged.
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
