"""The commands `torcheer init`, `train`, `evaluate`, `infer`, `check`, `schema`, `show` and `export`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torcheer.config import Config, read
from torcheer.disk import is_url, require_unix, shown
from torcheer.errors import BadArgument, BadConfig
from torcheer.history.error_notes import annotate
from torcheer.ranks import world_size
from torcheer.terminal import add_json, folded, is_terminal, tell
from torcheer.terminal.command_parser import CommandParser
from torcheer.training.loop.stop_signals import STOPPED
from torcheer.wire.page_address import ADDRESS_OPTIONS

if TYPE_CHECKING:
    from torcheer.training.control import Control
    from torcheer.training.loop.events import Event
    from torcheer.training.session import Session
    from torcheer.training.spec import Built

RESULTS = ("metrics", "captures", "profile", "tensorboard", "wandb")
MADE_BY_TRAIN = "torcheer train"


def main(command: str, arguments: Sequence[str], *, then: Callable[[], object] | None = None) -> int:
    """Run a command and return its exit status; `then` is called when training is complete."""
    if sys.stdout is None:  # closed by the parent process on purpose: discard the output
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    parser = make_parser(command)
    parser.set_defaults(then=then, arguments=_without(arguments, "--nproc", "--max-restarts", "--hang-timeout"))
    return COMMANDS[command][0](parser.parse_intermixed_args(arguments))


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    _, summary, epilog, options = COMMANDS[command]
    parser = CommandParser(
        prog=f"torcheer {command}",
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, settings in options.items():
        parser.add_argument(*option.split(), **settings)
    add_json(parser)
    return parser


def _without(arguments: Sequence[str], *options: str) -> list[str]:
    """Arguments of a command line without some options and their values."""
    kept: list[str] = []
    skips = False
    for argument in arguments:
        if not skips and argument.partition("=")[0] not in options:
            kept.append(argument)
        skips = argument in options
    return kept


def init(chosen: argparse.Namespace) -> int:
    """Begin a session."""
    built = _begin(read(chosen.config), _changes(chosen), chosen.trust)
    home = built.session.directory
    for note in built.notes:
        print(note)
    _say_differences(built)
    tell(session_dir=home, notes=built.notes)
    print(f"A session is ready under {home}; train it with: torcheer train {home}")
    return 0


def _say_differences(built: Built, said: Sequence[str] = ()) -> None:
    """Print to stderr what is different from TorchAssistant here, and was not said before."""
    from torcheer.training.spec.torchassistant.differences import PAGE

    unsaid = [difference for difference in built.differences if difference not in said]
    if unsaid:
        tell(differences=unsaid)
        lines = [f"Different from TorchAssistant here ({PAGE}):", *(f"- {each}" for each in unsaid)]
        print(folded("\n".join(lines)), file=sys.stderr, flush=True)


def _begin(config: Config, changes: Sequence[str], trusted: Sequence[str], made_by: str = "torcheer init") -> Built:
    """Build a session and write all of its directory, checkpoint 0 included."""
    from torcheer.disk import write_file
    from torcheer.runlog.run_folder import begin_run
    from torcheer.training.loop.events import CheckpointSaved
    from torcheer.training.observe.run_contents import count_models
    from torcheer.training.spec import begin, understand, with_changes

    built = begin(understand(with_changes(config, changes)), trusted=trusted)
    session = built.session
    assert session.directory is not None
    if not session.is_main:
        return built
    begin_run(session.directory, made_by=made_by, config_hash=_hash(config))
    write_file(session.directory / "static" / "models.json", count_models(session.models).encode())
    if session.ranks is not None:  # all of them save it when they train
        return built
    events = session.run(progress=False)
    for event in events:
        if isinstance(event, CheckpointSaved):
            break
    events.close()  # type: ignore[attr-defined]
    return built


def _hash(config: Config) -> str:
    """Return the hash that detects a changed config file.

    Changes of the command line are not part of it.
    """
    return hashlib.sha256(json.dumps(config.data, sort_keys=True).encode()).hexdigest()


def _changes(chosen: argparse.Namespace) -> list[str]:
    """Return the KEY=VALUE changes of the command line."""
    device = [f"device={chosen.device}"] if chosen.device else []
    return [*getattr(chosen, "changes", ()), *device, *_leave_out_change(chosen)]


def _leave_out_change(chosen: argparse.Namespace) -> list[str]:
    """Return the change that --leave-out means: these samples beside those that the session leaves out already."""
    from torcheer.disk import read_json

    samples: Any = dict[str, list[int]]()
    for text in getattr(chosen, "leave_out", None) or ():
        loader, _, numbers = text.rpartition(":")
        try:
            samples.setdefault(loader, []).extend(int(number) for number in numbers.split(","))
        except ValueError:
            raise BadArgument(f"--leave-out {text}: write the samples as 17,4032 or LOADER:17,4032") from None
    if not samples:
        return []
    path = Path(chosen.path)
    home = path if path.is_dir() else Path(str(read(path).data.get("session_dir", "")))
    known = (read_json(home / "spec.json") or {}).get("exclude_samples") or {}
    known = known if isinstance(known, dict) else {"": known}
    if "" in {**known, **samples} and len({**known, **samples}) > 1:
        raise BadArgument("--leave-out: this session leaves out samples of several loaders: write LOADER:17,4032")
    merged = {name: sorted({*known.get(name, ()), *samples.get(name, ())}) for name in {**known, **samples}}
    return [f"exclude_samples={json.dumps(merged.get('', merged))}"]


def train(chosen: argparse.Namespace) -> int:
    """Begin or resume training, until it is complete or a stop is requested; on several ranks, where there are."""
    if chosen.overfit_one_batch:
        from torcheer.training.finders.cli import overfit

        return overfit(chosen)
    if chosen.nproc:
        from torcheer.training.parallel.launch import launch

        _check_before_launch(chosen)
        return launch(chosen.nproc, chosen.arguments, restarts=chosen.max_restarts, hang_secs=chosen.hang_timeout)
    from torcheer.training.parallel.launch import take_over_slurm

    take_over_slurm()
    return _train(chosen) if world_size() == 1 else _train_as_rank(chosen)


def _check_before_launch(chosen: argparse.Namespace) -> None:
    """Raise for a config that no rank could read: once, and before any of them starts."""
    from torcheer.training.spec import understand, with_changes

    if not is_url(chosen.path) and not (path := _resolve_path(chosen.path)).is_dir():
        understand(with_changes(read(path), _changes(chosen)))


def _train_as_rank(chosen: argparse.Namespace) -> int:
    """Train as one of several ranks: the first owns the run directory, the others follow it."""
    from torcheer.training.parallel.follower import end_after_loss, follow, is_lost_rank
    from torcheer.training.parallel.launch import join_launcher, tell_launcher

    join_launcher()
    from torcheer.training.parallel.process_group import join_ranks, leave

    ranks = join_ranks(chosen.device or "auto")
    assert ranks is not None
    status = 0
    try:
        if ranks.is_main:
            status = _train(chosen)
            ranks.from_main(None)  # there is no next run
            tell_launcher(status=status)
        else:
            follow(_open_session(chosen)[0], chosen)
        ranks.wait()
    except RuntimeError as error:
        if not is_lost_rank(error):
            raise
        end_after_loss(ranks.rank, leave)
    # A stop is no failure, which torchrun would answer by another start.
    leave(0 if status == STOPPED and "TORCHELASTIC_RUN_ID" in os.environ else status)
    return status


def _train(chosen: argparse.Namespace) -> int:
    from torcheer.training.control.start_studio import open_control, run_viewer

    if chosen.studio:
        require_unix("--studio, which shows a session while it trains,")
    built, notes = _open_session(chosen)
    home = built.session.directory
    assert built.session.checkpoints is not None and home is not None
    said = built.differences
    with built.session.checkpoints.locked():
        notes += built.session.resume()
        _say_differences(built, said)
        control, problem = open_control(built, is_wanted=not chosen.no_control, is_paused=chosen.paused)
        with control or nullcontext(), run_viewer(chosen, control, home) as viewer:
            status = _train_runs(built, chosen, [*notes, *problem], control)
            if viewer and chosen.then is None:
                print(f"Look at it again with: torcheer studio {home}")
    return status


def _train_runs(built: Built, chosen: argparse.Namespace, notes: list[str], control: Control | None) -> int:
    """Train, and restart as often as the studio requests it; return the exit status."""
    from torcheer.training.control.start_studio import start_next_run
    from torcheer.training.spec.builders.static_state import write_static

    assert built.session.directory is not None
    if _changes(chosen):  # only now: a change that does not fit the checkpoint is not saved
        _list_changes(built)
        write_static(built.session.directory, built.static)
        built.spec.save(built.session.directory)
    while True:
        status = _train_once(built, chosen, notes, control)
        if control is None or not control.is_restart_requested:
            return status
        built, notes = start_next_run(control, built, chosen.trust)


def _list_changes(built: Built) -> None:
    """Add the values of the config that differ from the session's to what is said of its resuming."""
    from torcheer.training.spec.read.key_addresses import shortened, single_values

    resumed, home = built.session.resumed, built.session.directory
    if resumed is None or home is None:
        return
    before, now = (
        dict(single_values({**data, "source": None})) for data in (read(home / "spec.json").data, built.spec.data)
    )
    said = {name.rpartition(".")[2].partition("[")[0] for name in resumed.changes}  # as the checkpoint has them
    differ = {key: (before.get(key), now.get(key)) for key in {**before, **now} if before.get(key) != now.get(key)}
    new = {shortened(key): pair for key, pair in differ.items() if key.rpartition(".")[2] not in said}
    built.session.resumed = resumed._replace(changes={**resumed.changes, **new})


def _train_once(built: Built, chosen: argparse.Namespace, notes: list[str], control: Control | None) -> int:
    """Run a session once, with progress shown."""
    from torcheer.training.loop.stop_signals import stop_on_signals
    from torcheer.training.observe.progress_lines import ProgressLines, make_view, show
    from torcheer.training.parallel.launch import tell_launcher

    session = built.session
    if chosen.notify:
        session.options = replace(session.options, notify=chosen.notify)
    if chosen.limit_secs:
        session.options = replace(session.options, limit_secs=chosen.limit_secs)
    with stop_on_signals(session):
        tell_launcher(process=os.getpid(), session_dir=str(session.directory))  # from here on a signal saves
        if control is not None:  # only now: who sees the session may stop it
            control.take(session, built)
        try:
            view = make_view(session, plain=chosen.plain)
            if not isinstance(view, ProgressLines):  # plain lines are exactly the seed's
                view.say(f"Run directory: {session.directory}\n{session.summary()}")
            stopped = show(session, _events_with_notes(session, notes), view)
            if stopped is None:
                _say_done(session, chosen, control)
        except KeyboardInterrupt:
            return _say_stopped(session, "ended at once")
        except Exception as error:  # mostly user code; the session has noted what is saved
            annotate(error, go_on_with=f"torcheer train {session.directory}")
            raise
    if stopped is not None and (control is None or not control.is_restart_requested):
        return _say_stopped(session, stopped.reason)
    return 0


def _say_done(session: Session, chosen: argparse.Namespace, control: Control | None) -> None:
    """Print where the results are; with --stay, keep serving the studio."""
    assert session.directory is not None
    results = [name for name in RESULTS if (session.directory / name).is_dir()]
    results.append(f"checkpoints/{session.place.step}")
    tell(session_dir=session.directory, results=results, completed=True, **_place_facts(session))
    stages = [{"epochs": len(rows), "ended_by": session.end_reason(stage)} for stage, rows in enumerate(session.rows)]
    tell(stages=stages)
    print(f"Results are under {session.directory}: {', '.join(results)}")
    if chosen.then is not None:
        chosen.then()
    if control is not None:
        if chosen.stay:
            print("The studio stays open; Ctrl-C ends it", flush=True)
        control.finish(stays=chosen.stay)


def _place_facts(session: Session) -> dict[str, Any]:
    """How far a session is, and the columns of its last epoch."""
    rows = [row for stage in session.rows for row in stage]
    return {"epoch": session.place.epoch, "step": session.place.step, "values": rows[-1] if rows else {}}


def _open_session(chosen: argparse.Namespace) -> tuple[Built, list[str]]:
    """Open the session of SESSION_DIR or CONFIG; return it with notes for the user."""
    from torcheer.runlog.run_folder import read_run
    from torcheer.training.spec import reopen, understand, with_changes

    if is_url(chosen.path):
        home, changes = _home_of(chosen.path, chosen), _changes(chosen)
        _, note = _is_new(home, chosen.path)
        return reopen(home, changes=changes, trusted=chosen.trust), [note] if note else []
    path, changes = _resolve_path(chosen.path), _changes(chosen)
    if path.is_dir():
        return reopen(path, changes=changes, trusted=chosen.trust), []
    config = read(path)
    data = understand(with_changes(config, changes)).data
    home = Path(data["session_dir"])
    is_new, note = _is_new(home, data.get("copy_to", ""), begins_anew=True)
    if is_new:
        built = _begin(config, changes, chosen.trust, made_by=MADE_BY_TRAIN)
        if built.session.is_main:
            _say_differences(built)
        return built, [*_folder_note(path, home), *filter(None, [note]), *built.notes]
    previous = _overridden(home)  # the same command again: its keys may have moved in the session
    new = [change for change in changes if previous.get(change.partition("=")[0]) != change]
    built = reopen(home, changes=new, trusted=chosen.trust)
    notes = [*_folder_note(path, home), *filter(None, [note])]
    if (home / "run.json").exists() and read_run(home)["config"] not in ("", _hash(config)):
        notes.append(
            f"{path} has changed since this session began; it goes on as it was begun. Change it with KEY=VALUE, or "
            "begin another one under another session_dir"
        )
    return built, notes


def _folder_note(config: Path, home: Path) -> list[str]:
    """Where the run directory is, for those who give the command outside the config's folder and look for it there."""
    if home.is_absolute() or config.parent.resolve() == Path.cwd():
        return []
    return [f"the run directory is {home.absolute()}: session_dir belongs to the folder that you are in"]


def _is_new(home: Path, url: str, *, begins_anew: bool = False) -> tuple[bool, str]:
    """Whether there is no session yet, here or at the URL that it is copied to; what was done about it.

    As rank 0 finds: it fetches. One that failed before its first step is begun anew where the caller can: what was
    mended since then, in the config or in the code, would not fit it.
    """
    from torcheer.training.checkpoints.run_directory import fetch_run, forget_untrained, is_elsewhere, locked
    from torcheer.training.parallel.process_group import join_ranks

    ranks, note = join_ranks(), ""
    if (ranks is None or ranks.is_main) and is_elsewhere(home, url):
        with locked(home):
            note = fetch_run(home, url)
    elif (ranks is None or ranks.is_main) and begins_anew and not url and _was_begun_by_training(home):
        with locked(home):
            note = forget_untrained(home)
    is_new = not (home / "spec.json").exists()
    return (is_new if ranks is None else bool(ranks.from_main(is_new))), note


def _was_begun_by_training(home: Path) -> bool:
    """Whether `torcheer train` began the session; what `torcheer init` prepared is kept."""
    from torcheer.runlog.run_folder import read_run

    return (home / "run.json").exists() and read_run(home)["made_by"] == MADE_BY_TRAIN


def _home_of(url: str, chosen: argparse.Namespace) -> Path:
    """Return the run directory of a session at a URL: that of the command line, or of its own config."""
    from torcheer.training.checkpoints.run_directory import read_remote_spec

    given = [change.partition("=")[2] for change in _changes(chosen) if change.startswith("session_dir=")]
    return Path(given[-1] if given else read_remote_spec(url)["session_dir"])


def _overridden(home: Path) -> dict[str, str]:
    """Return the last KEY=VALUE change of each key in a session."""
    from torcheer.training.spec.read.description import part

    overrides = part(read(home / "spec.json").data, ("source", "overrides"))
    return {str(change).partition("=")[0]: str(change) for change in (overrides if isinstance(overrides, list) else ())}


def _resolve_path(text: str) -> Path:
    """Return the path of a session directory or a config; raise where there is none."""
    if is_url(text):
        raise BadArgument(f"{shown(text)} is a URL; fetch it first: torcheer train URL goes on with it")
    path = Path(text)
    if not path.exists() and not path.suffix:
        raise BadArgument(f"{path}: there is no such session directory; a config has a name such as {path}.json")
    return path


def _events_with_notes(session: Session, notes: Sequence[str]) -> Iterator[Event]:
    """Yield notes as alerts, then the events of a session."""
    from torcheer.training.loop.events import Alert, Resumed

    for note in notes:
        yield Alert(note)
    for event in session.run(progress=False):
        if type(event) is Resumed:
            tell(resumed={"step": event.step, "steps_again": event.repeated, "changes": event.changes})
        yield event


def _say_stopped(session: Session, reason: str) -> int:
    """Print what is saved; a closed terminal (SIGHUP) is no error."""
    from torcheer.training.checkpoints.saved_steps import newest_complete, saved_text

    assert session.checkpoints is not None
    newest = newest_complete(session.checkpoints.folder)
    go_on = f"torcheer train {session.directory}"
    if newest is not None and int(newest.name) == session.place.step and not session.is_mid_round:
        text = f"Saved in {newest}; go on with: {go_on}"
    else:
        text = f"{saved_text(session)} Go on with: {go_on}"
    tell(session_dir=session.directory, completed=False, reason=reason, **_place_facts(session))
    with suppress(OSError):
        print(folded(f"Stopped: {reason}. {text}"), file=sys.stderr)
    return STOPPED


def evaluate(chosen: argparse.Namespace) -> int:
    """Print the columns of pipelines in evaluation mode."""
    from torcheer.terminal import Progress
    from torcheer.training.observe.progress_lines import values_text

    built = _reopen(chosen)
    data = built.spec.data
    stages = [name for stage in data["train"]["stages"] for name in stage.get("validation_pipelines", ())]
    pipelines = data.get("validation_pipelines") or list(dict.fromkeys(stages)) or None
    with Progress("evaluating", built.session.batches_in(pipelines), "batches") as progress:
        values = built.session.evaluate(pipelines, batches=data.get("eval_steps"), on_progress=progress.add)
    tell(values=values)
    print(values_text(values))
    return 0


def infer(chosen: argparse.Namespace) -> int:
    """Run inputs through the inference pipeline of a config; without any, those that are typed, line by line."""
    from torcheer.training.inference.inference_run import answer_lines
    from torcheer.training.inference.inference_run import infer as run
    from torcheer.training.spec import inference

    built = _reopen(chosen)
    settings = inference(built)
    if not chosen.inputs:
        is_answered = answer_lines(built.session, settings, _typed_lines())
        return 0 if is_answered or is_terminal(sys.stdin) else 1
    print(f"Running inference on: {chosen.inputs}", flush=True)
    run(built.session, settings, chosen.inputs)
    return 0


def _typed_lines() -> Iterator[str]:
    """Yield what is typed at a prompt until Ctrl-D, or the lines of a pipe."""
    if not is_terminal(sys.stdin):
        yield from sys.stdin
        return
    with suppress(ImportError):
        import readline  # noqa: F401  # arrow keys at the prompt
    print("Type an input and press Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield input("> ")
        except EOFError:
            print(file=sys.stderr)
            return


def _reopen(chosen: argparse.Namespace) -> Built:
    """Reopen the session of a directory or config, with the weights of a checkpoint."""
    from torcheer.training.spec import reopen, with_changes

    path, changes = _resolve_path(chosen.path), _changes(chosen)
    if path.is_dir():
        built = reopen(path, changes=changes, trusted=chosen.trust)
    else:
        config = with_changes(read(path), changes)
        home = config.data.get("session_dir")
        if not isinstance(home, str):
            raise BadConfig(f"{path}: session_dir, the folder of the session, is missing or not a string")
        built = reopen(home, config, trusted=chosen.trust)
    built.session.restore_weights(_state(built.session.checkpoints, chosen.best))
    return built


def _state(store: Any, best: bool) -> dict[str, Any]:
    """Read the state of the newest or the best checkpoint; print its path to stderr."""
    from torcheer.training.checkpoints.checkpoint_folders import read_checkpoint

    if best:
        path = store.best()
        if path is None:
            raise BadArgument(
                f"{store.directory} keeps no best checkpoint: train with keep_best=COLUMN, such as 'val loss'"
            )
        state, problems = read_checkpoint(path), []
    else:
        state, path, problems = store.newest(with_rows=False)
    if state is None:
        raise BadArgument(
            f"there is no checkpoint under {store.directory}; train it with: torcheer train {store.directory}"
        )
    tell(checkpoint=path)
    for line in (*problems, f"Using {path}"):
        print(folded(line), file=sys.stderr)
    return state


def check(chosen: argparse.Namespace) -> int:
    """Print everything that is wrong with a config."""
    from torcheer.training.spec import checked, with_changes

    result = checked(with_changes(read(chosen.path), chosen.changes), trusted=chosen.trust, imports=chosen.imports)
    tell(ok=not result.problems, problems=result.problems, notes=result.notes, not_checked=result.not_checked)
    if chosen.expand and not result.problems:
        tell(long_form=json.loads(result.long_form))
        print(result.long_form)
    else:
        verdict = (
            ["ok, but not checked:", *(f"- {text}" for text in result.not_checked)] if result.not_checked else ["ok"]
        )
        print("\n".join(result.problems or [*verdict, *result.notes]))
    return 1 if result.problems else 0


def schema(chosen: argparse.Namespace) -> int:
    """Print what configs may say: for editors, or for people."""
    from torcheer.training.spec.read.config_reference import config_reference
    from torcheer.training.spec.read.config_schema import config_schema

    text = config_reference() if chosen.markdown else json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"
    print(text, end="")
    return 0


def show(chosen: argparse.Namespace) -> int:
    """Print what a session directory holds."""
    from torcheer.archive.exchange.guards import total_bytes
    from torcheer.terminal import Progress
    from torcheer.training.observe.run_contents import describe_run

    folder = chosen.path / "checkpoints"
    with Progress(f"verifying {folder}", total_bytes(folder) if folder.is_dir() else 0) as progress:
        lines = describe_run(chosen.path, progress.add)
    tell(lines=lines)
    print("\n".join(lines))
    return 0


def export(chosen: argparse.Namespace) -> int:
    """Write weights or a program, or a run's log to another tracker."""
    from torcheer.training.checkpoints.model_export import export_kind, export_program, export_weights

    if chosen.to:
        return _export_log(chosen)
    export_kind(chosen.file)
    if chosen.file.exists() and not chosen.overwrite:
        raise BadArgument(f"{chosen.file} is there already; --overwrite replaces it")
    if not chosen.path.is_dir():
        raise BadArgument(f"{chosen.path} is no session directory")
    if chosen.file.suffix == ".safetensors":
        written = export_weights(_state(_checkpoint_store(chosen.path), chosen.best), chosen.file, chosen.model)
    else:
        written = export_program(_reopen(chosen).session, chosen.file, chosen.model)
    tell(file=chosen.file, written=written)
    print(f"wrote {chosen.file}: {written}")
    return 0


def _export_log(chosen: argparse.Namespace) -> int:
    from torcheer.terminal import Progress
    from torcheer.training.trackers.log_export import export_run, export_size

    if chosen.file.is_dir() and any(chosen.file.iterdir()) and not chosen.overwrite:
        raise BadArgument(f"{chosen.file} is there already, and not empty; --overwrite writes into it")
    total = export_size(chosen.path) if chosen.path.is_dir() else 0
    with Progress(f"exporting {chosen.path}", total, "steps and samples") as progress:
        written = export_run(chosen.path, chosen.to, chosen.file, on_progress=progress.add)
    print(f"wrote {written}")
    return 0


def _checkpoint_store(directory: Path) -> Any:
    """Open the checkpoints of a session without importing its code."""
    from torcheer.disk import read_json
    from torcheer.training.checkpoints.checkpoint_folders import CheckpointStore

    return CheckpointStore(directory, keep_best=(read_json(directory / "spec.json") or {}).get("keep_best", ""))


def _secs(text: str) -> float:
    """Parse a duration for argparse."""
    secs = float(text)
    if not secs > 0:
        raise argparse.ArgumentTypeError(f"{text} is no time that training could take")
    return secs


def _count(text: str) -> int:
    """Parse a number of processes for argparse."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number of processes")
    return count


def _local_folder(text: str) -> Path:
    """Parse the path of a session directory for argparse."""
    if is_url(text):
        raise argparse.ArgumentTypeError(f"{shown(text)} is a URL; fetch it first: torcheer train URL goes on with it")
    return Path(text)


_CONFIG = {"metavar": "CONFIG", "help": "a JSON, YAML or TOML file"}
_EITHER = {"metavar": "SESSION_DIR|CONFIG", "help": "a run directory, or a JSON, YAML or TOML file"}
_TRAINED = {"metavar": "SESSION_DIR|CONFIG|URL", "help": "a run directory, a JSON, YAML or TOML file, or a run's URL"}
_SESSION = {"type": _local_folder, "metavar": "SESSION_DIR", "help": "a run directory"}
_CHANGES = {"changes": {"nargs": "*", "default": [], "metavar": "KEY=VALUE", "help": "override a config value: seed=3"}}
_TRUST = {"--trust": {"action": "append", "default": [], "metavar": "PACKAGE", "help": "allow classes of this package"}}
_DEVICE = {"--device": {"metavar": "NAME", "default": "", "help": "auto, cpu, cuda or cuda:1"}}
_BEST = {
    "--best": {
        "action": "store_true",
        "help": "use the best checkpoint by keep_best (of equals the first), not the newest",
    }
}
_STUDIO: dict[str, dict[str, Any]] = {
    "--studio": {"action": "store_true", "help": "open the studio; its URL is printed first"},
    **ADDRESS_OPTIONS,
    "--no-browser": {"action": "store_true", "help": "print the studio's URL without opening it"},
    "--paused": {"action": "store_true", "help": "wait for Train in the studio before the first step"},
    "--stay": {"action": "store_true", "help": "keep the studio open after training, until Ctrl-C"},
    "--no-control": {"action": "store_true", "help": "do not let a studio attach"},
}
_BUILT: dict[str, dict[str, Any]] = {**_TRUST, **_DEVICE}
_OVER = "CONFIG overrides the session's: session_dir, {}."

# name -> (function, one line of help, epilog, arguments)
COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], str, str, dict[str, dict[str, Any]]]] = {
    "init": (init, "create a training session: its directory with checkpoint 0", "", {
        "config": _CONFIG, **_CHANGES, **_BUILT,
    }),
    "train": (
        train, "start or resume training; a config creates the session if there is none",
        f"On Ctrl-C, SIGTERM or SIGHUP it saves and exits with status {STOPPED}; run it again to resume. Ctrl-C twice "
        "exits immediately.", {
            "path": _TRAINED, **_CHANGES, **_BUILT,
            "--limit-secs": {"type": _secs, "metavar": "N", "help": "save and stop after N seconds"},
            "--leave-out": {"action": "append", "metavar": "SAMPLES", "help": "exclude samples: 17,40 or LOADER:17,40"},
            "--notify": {"metavar": "TARGET", "help": "command or URL to notify of alerts, a crash, the end"},
            "--nproc": {"type": _count, "default": 0, "metavar": "N", "help": "train on N processes (torchrun)"},
            "--max-restarts": {"type": int, "default": 0, "metavar": "N", "help": "restarts on failure; with --nproc"},
            "--hang-timeout": {"type": _secs, "metavar": "SECS", "help": "end a job that hangs so long; with --nproc"},
            "--overfit-one-batch": {"action": "store_true", "help": "can it overfit one batch? saves nothing"},
            "--plain": {"action": "store_true", "help": "plain progress lines instead of the live view"},
            **_STUDIO,
        },
    ),
    "evaluate": (
        evaluate, "print the metrics of a trained session",
        _OVER.format("validation_pipelines, other data"), {"path": _EITHER, **_CHANGES, **_BUILT, **_BEST},
    ),
    "infer": (infer, "run inference with a trained pipeline", _OVER.format("inference_pipeline, inputs_meta, …"), {
        "path": _EITHER,
        "inputs": {
            "nargs": "*", "default": [], "metavar": "INPUT",
            "help": "inputs for the model; interactive without any",
        },
        **_BUILT, **_BEST,
    }),
    "check": (check, "list the mistakes in a config, and what was not checked, without running your code", "", {
        "path": _CONFIG, **_CHANGES, **_TRUST,
        "--import": {"dest": "imports", "action": "store_true",
            "help": "import the named code, which runs it, and check what its source cannot tell"},
        "--expand": {"action": "store_true", "help": "print the long form, with all defaults, as JSON"},
    }),
    "schema": (schema, "print the JSON Schema of configs, for checking and completion in editors",
        "In a YAML config: # yaml-language-server: $schema=torcheer.schema.json", {
        "--markdown": {"action": "store_true", "help": "print the config reference as Markdown instead"},
    }),
    "show": (show, "print the contents of a session directory", "", {"path": _SESSION}),
    "export": (export, "export a model to a file, or a run's log to another tracker",
        "FILE ends in .safetensors (weights), .pt2 (a torch.export program) or .onnx; with --to it is a folder.", {
        "path": _SESSION, "file": {"type": Path, "metavar": "FILE", "help": "the suffix selects the format"},
        "--to": {"choices": ("tensorboard", "wandb", "mlflow"), "help": "export the run's log to this tracker"},
        "--model": {"metavar": "NAME", "help": "which model, if there are several"},
        "--overwrite": {"action": "store_true", "help": "overwrite an existing file"}, **_BUILT, **_BEST,
    }),
}  # fmt: skip
