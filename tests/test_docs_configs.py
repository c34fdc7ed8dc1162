"""docs/configs.md: every config on the page trains with the code beside it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from seams import assemble, check, understand

from torcheer import cli
from torcheer.config import override, read
from torcheer.training.datasets import ImageFolder

pytestmark = pytest.mark.usefixtures("one_thread")
PAGE = (Path(__file__).parents[1] / "docs" / "configs.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def block(section: str, language: str) -> str:
    return "".join(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[:1])


def write_photos(folder: Path, count: int = 12) -> None:
    from PIL import Image

    for number in range(count):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (250, 0, 0) if number % 2 else (0, 0, 250)).save(path)


@pytest.mark.parametrize("title", [title for title, text in SECTIONS.items() if block(text, "yaml")])
def test_a_config_of_the_page_trains(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = block(SECTIONS[title], "yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.py").write_text(block(SECTIONS[title], "python"))
    (tmp_path / "config.yaml").write_text(text)
    write_photos(tmp_path / "photos")
    if "torchvision" in text:
        try:
            from torchvision.models import resnet18
        except (ImportError, RuntimeError):  # its operators are of another torch
            pytest.skip("torchvision cannot be imported here")
        torch.save(resnet18().state_dict(), "resnet18.pth")
    config = override(read("config.yaml"), ["epochs=1"])
    assert check(config, imports=True) == []
    session = assemble(understand(config)).session
    list(session.run(progress=False))
    assert len(session.rows[0]) == 1


def test_images_are_scaled_and_normalised(tmp_path: Path) -> None:
    write_photos(tmp_path / "photos", 4)
    folder = ImageFolder(str(tmp_path / "photos"), size=[8, 10], mean=0.5, std=0.5)
    image, label = folder[0]
    assert (len(folder), folder.classes, tuple(image.shape), label) == (4, ["cat", "dog"], (3, 8, 10), 0)
    assert torch.equal(image[0], torch.full((8, 10), -1.0)) and image[2].min() > 0.9
    assert ImageFolder(str(tmp_path / "photos"), channels=1)[3][0].shape == (1, 224, 224)


@pytest.mark.parametrize(("made", "said"), [("", "no folders"), ("cat", "the folders cat without images")])
def test_a_folder_without_images_says_what_is_needed(tmp_path: Path, made: str, said: str) -> None:
    (tmp_path / made).mkdir(exist_ok=True)
    with pytest.raises(ValueError, match=f"has {said}; it needs a folder for each class"):
        ImageFolder(str(tmp_path))


FIRST = (Path(__file__).parents[1] / "docs" / "first-configs.md").read_text()
FIRST_SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", FIRST, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("title", FIRST_SECTIONS)
def test_a_first_config_is_checked_trained_evaluated_and_answers(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "torchvision" in FIRST_SECTIONS[title]:
        try:
            import torchvision.models  # noqa: F401
        except (ImportError, RuntimeError):  # its operators are of another torch
            pytest.skip("torchvision cannot be imported here")
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r'^```\w+ title="(.+?)"\n(.*?)```', FIRST_SECTIONS[title], re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(text)
        if "for " in text and "import Image" in text:
            exec(compile(text, name, "exec"), {})
    commands = re.findall(r"^\$ torcheer (.+)$", FIRST_SECTIONS[title], re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["check", "train", "evaluate", "infer"]
    for command in commands:
        words = shlex.split(command)
        assert cli.main([*words, "epochs=1"] if words[0] == "train" else words) == 0
    answers = capsys.readouterr().out.rpartition("Running inference on: ")[2].splitlines()[1:]
    documented = FIRST_SECTIONS[title].rpartition("Running inference on: ")[2].split("```")[0].splitlines()[1:]
    assert len(answers) == len(documented)
