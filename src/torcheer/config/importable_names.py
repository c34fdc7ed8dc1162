"""Which parts of torch and its kin a config may name.

A list of what is open rather than of what is dangerous: torch has some two thousand modules, among them ones that
unpickle, download, compile, start processes or run a text as code, and each release adds more. Open are those whose
public classes and functions were read and do none of that with the plain values that a config can give them. What is
missing here costs a user one `--trust`; what was missing from a list of dangers would cost him his machine.
"""

from __future__ import annotations

OPEN_PARTS = {
    "torcheer": """training.collators training.datasets training.metrics training.preprocessors
        training.adapters training.hooks training.output_devices training.postprocessors training.stop_conditions
        training.spec.transforms
        autograd.nn autograd.losses autograd.optim""",
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

# Why some are not open: of an open and a closed part of a name, the longer one decides.
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
    """Whether what is defined under a dotted name of these packages may be named."""
    return deciding(name) in OPEN


def leads_to_open(module: str) -> bool:
    """Whether a module is open, or holds an open one and so may show what is defined there."""
    return is_open(module) or any(part.startswith(f"{module}.") for part in OPEN)


def open_inside(module: str) -> set[str]:
    """The words that lead from a module to what is open."""
    start = f"{module}."
    return {part.removeprefix(start).split(".")[0] for part in OPEN if part.startswith(start)}


def reason(name: str) -> str:
    """Why a name is not open."""
    part = deciding(name)
    if part in CLOSED:
        return f"{part} is closed to configs: {CLOSED[part]}"
    return f"{name} is not among the parts of {name.split('.')[0]} that are open to configs"


def deciding(name: str) -> str:
    """The longest part of a dotted name that the tables know, or ""."""
    return next((part for part in prefixes(name) if part in OPEN or part in CLOSED), "")


def prefixes(name: str) -> list[str]:
    """The name itself, then what it lies in, out to its package."""
    words = name.split(".")
    return [".".join(words[:count]) for count in range(len(words), 0, -1)]
