"""Model files from elsewhere: their tensors and, where there is one, their graph. Nothing in a file is ever run."""

from torcheer.modelfiles.file_tensor import FileTensor
from torcheer.modelfiles.model_file import ENDINGS, ModelFile, is_model_file, open_model_file

__all__ = ["ENDINGS", "FileTensor", "ModelFile", "is_model_file", "open_model_file"]
