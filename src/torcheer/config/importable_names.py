"""Allowlist of the parts of torch and related packages that a config may name.

An allowlist rather than a denylist: torch has some two thousand modules, among them ones that unpickle, download,
compile, start processes or run a text as code, and each release adds more. Open are those whose public classes and
functions were read and do none of that with the plain values that a config can pass. A gap in this list costs a user
one `--trust`; a gap in a denylist could cost the machine.
"""

from __future__ import annotations

OPEN_PARTS = {
    "torcheer": """training.collators training.datasets training.metrics training.preprocessors
        training.adapters training.hooks training.output_devices training.postprocessors training.stop_conditions
        training.spec.transforms integrations.hub_folder
        autograd.nn autograd.losses autograd.optim""",
    "torcheer_originals": "torchassistant",
    "torch": """nn.functional nn.grad nn.init nn.modules nn.parameter nn.utils optim functional
        utils.data.dataloader utils.data.dataset utils.data.distributed utils.data.sampler utils.data._utils.collate
        distributions fft linalg special _C._nn _C._fft _C._linalg _C._special""",
    "torchvision": "datasets models ops transforms tv_tensors",
    "torchmetrics": """aggregation classification clustering collections detection metric nominal regression retrieval
        segmentation shape wrappers audio.pit audio.sdr audio.snr audio._deprecated
        image.psnr image.ssim image._deprecated
        text.bleu text.cer text.chrf text.edit text.mer text.perplexity text.wer text.wil text.wip text._deprecated
        functional.classification functional.clustering functional.detection functional.nominal functional.pairwise
        functional.regression functional.retrieval functional.segmentation functional.shape
        functional.image.psnr functional.image.ssim""",
}
PACKAGES = frozenset(OPEN_PARTS)
OPEN = frozenset(f"{package}.{part}" for package, parts in OPEN_PARTS.items() for part in parts.split())

# Why some parts are not open; where a name has an open and a closed prefix, the longer one decides.
CLOSED = {
    "torch.from_file": "it opens, and makes, files",
    "torch.load": "it reads pickles, which run code",
    "torch.save": "it writes files",
    "torch.serialization": "it reads pickles, which run code",
    "torch.compile": "it compiles code",
    "torch.hub": "it downloads code and runs it",
    "torch.classes": "it loads native libraries",
    "torch.ops": "it loads native libraries",
    "torch.jit": "it loads and compiles programs",
    "torch.export": "it loads programs",
    "torch.package": "it imports code from files",
    "torch.fx": "it makes code from text",
    "torch.onnx": "it writes files and runs exporters",
    "torch.distributed": "it sends pickles to other processes",
    "torch.multiprocessing": "it starts processes",
    "torch.testing": "it runs code and reads files",
    "torch.profiler": "it writes files",
    "torch.cuda": "it compiles kernels and writes files",
    "torch.utils.benchmark": "it runs text as code",
    "torch.utils.bundled_inputs": "it makes code from text",
    "torch.utils.collect_env": "it starts processes",
    "torch.utils.cpp_extension": "it compiles and runs C++",
    "torch.utils.data.datapipes": "it opens files and addresses",
    "torch.utils.model_zoo": "it downloads pickles",
    "torch.utils.tensorboard": "it writes files",
    "torchvision.datasets.lsun": "it reads a pickle from the working directory",
    "torchvision.datasets.utils": "it downloads and unpacks files",
    "torchvision.datasets.video_utils": "it reads files in other processes",
    "torchvision.io": "it reads and writes files",
    "torchvision.models._api": "it looks models and weights up by a second name",
    "torchvision.models.feature_extraction": "it makes code from a model",
    "torchvision.utils": "it writes files",
    "torchmetrics.audio": "some of it downloads models",
    "torchmetrics.image": "some of it downloads models",
    "torchmetrics.multimodal": "it downloads models together with their code",
    "torchmetrics.text": "some of it downloads models",
    "torchmetrics.text._deprecated._SacreBLEUScore": "it downloads models",
}


def is_open(name: str) -> bool:
    """Return whether a config may name what is defined under a dotted name of these packages."""
    return deciding_prefix(name) in OPEN


def contains_open(module: str) -> bool:
    """Return whether a module is open, or contains an open one and may re-export its names."""
    return is_open(module) or any(part.startswith(f"{module}.") for part in OPEN)


def open_children(module: str) -> set[str]:
    """Return the next words in the names of the open modules below a module."""
    start = f"{module}."
    return {part.removeprefix(start).split(".")[0] for part in OPEN if part.startswith(start)}


def closed_reason(name: str) -> str:
    """Explain why a name is not open."""
    part = deciding_prefix(name)
    if part in CLOSED:
        return f"{part} is closed to configs: {CLOSED[part]}"
    return f"{name} is not among the parts of {name.split('.')[0]} that are open to configs"


def deciding_prefix(name: str) -> str:
    """Return the longest prefix of a dotted name that is in the tables, or ""."""
    return next((part for part in prefixes(name) if part in OPEN or part in CLOSED), "")


def prefixes(name: str) -> list[str]:
    """List the name itself, then its parents, up to its package."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(len(words), 0, -1)]
