"""The tour in the README: a studio, a terminal and a Python prompt, filmed while they run: `make tour`.

    python docs/_tour/tour.py [CHAPTER…] [--frames FOLDER] [--files-only] [--to FOLDER]

A real shell runs `torcheer demo`, Chromium shows its page, the pointer moves as a hand would. Waiting is left out, and
training is slowed down between two frames, so that a picture has time to be taken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from browser import FLAGS, chromium_path
from files import picture, video
from frames import Caption, new_film
from playwright.sync_api import sync_playwright
from python_scenes import PythonScenes
from recorder import Recorder
from scenes import Scenes, TrainingScenes
from shell import Shell

ROOT = Path(__file__).resolve().parents[2]
# Chapters, in order: what films it, and its caption.
CHAPTERS: dict[str, tuple[type[Scenes], Caption]] = {
    "train": (TrainingScenes, Caption("One command trains a small network on digits", "with everything on")),
    "look": (TrainingScenes, Caption("Its page shows every layer's values in 3D, live", "drag to turn it")),
    "fold": (TrainingScenes, Caption("Fold the modules you know, open the one you ask about")),
    "inspect": (TrainingScenes, Caption("Look inside a layer", "feature maps, weights, gradients, exact numbers")),
    "rewind": (TrainingScenes, Caption("Go back in time", "and live again")),
    "plot": (TrainingScenes, Caption("Plot metrics as they come", "also those of TensorBoard and Lightning runs")),
    "graph": (TrainingScenes, Caption("See the same network as a graph", "with each layer's values and faults")),
    "kill": (TrainingScenes, Caption("kill -9: the same run resumes", "and ends with the same weights, bit for bit")),
    "break_it": (TrainingScenes, Caption("Change the learning rate while it trains", "here, to a bad one")),
    "alert": (TrainingScenes, Caption("Alerts say what went wrong, where, and what to try")),
    "draw": (PythonScenes, Caption("From Python: record any model, replay it, draw it")),
    "walk": (PythonScenes, Caption("Walk through a GPT-2", "twelve equal blocks are one stack until you open it")),
    "step_back": (PythonScenes, Caption("Read a backward pass rule by rule", "with its numbers, checked")),
    "end": (PythonScenes, Caption("")),
}


def main() -> None:
    options = _options()
    if not options.files_only:
        record(options.frames, options.chapters or list(CHAPTERS))
    if options.frames_only:
        return
    filmed = {options.frames / name: caption for name, (_, caption) in CHAPTERS.items()}
    chapters = {folder: caption for folder, caption in filmed.items() if (folder / "times.json").exists()}
    options.to.mkdir(parents=True, exist_ok=True)
    video(chapters, options.to / "tour.mp4")
    picture(chapters, options.to / "tour.webp")


def record(folder: Path, names: list[str]) -> None:
    """Film some chapters, each into a folder; those of before stay."""
    with tempfile.TemporaryDirectory(prefix="tour-") as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(FLAGS))
        with Shell(Path(home), Path(sys.executable).parent) as shell:
            recorder = Recorder(browser, shell)
            for name in names:
                scenes, _ = CHAPTERS[name]
                film = recorder.film = new_film(folder / name)
                getattr(scenes(recorder), name)()
                film.write()
                print(f"{name}: {sum(film.times) / 1000:.1f} s, {len(film.times)} frames", flush=True)
        browser.close()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help=f"to film anew; all of {', '.join(CHAPTERS)} unless given"
    )
    parser.add_argument("--frames", type=Path, default=ROOT / "build/tour", help="where frames are kept")
    parser.add_argument("--frames-only", action="store_true", help="film, and leave the files as they are")
    parser.add_argument("--files-only", action="store_true", help="make the files of frames that are there")
    parser.add_argument("--to", type=Path, default=ROOT / "docs/pictures", help="where the files go")
    return parser.parse_args()


if __name__ == "__main__":
    main()
