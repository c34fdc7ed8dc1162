"""What differs from a reference reader on purpose, and findings that are known and not mended yet.

Each line is a format, a pattern of the finding's text, and why it is no new finding.
"""

from __future__ import annotations

import re
from typing import Final

_ON_PURPOSE: Final = (
    ("torch-save", r"^it is read; .*(hasRecord|parse the version|does not contain any files|not in a subdirectory)",
     "torch asks for a version and one folder around all files; we read only what a tensor needs"),
    ("torch-save", r"^it is read; .*(miniz error|record size|alloc_cpu|failed retrieving file)",
     "torch compares sizes in the pickle, and headers of other files; we check where each tensor lies"),
    ("torch-save", r"^it is read; .*UnicodeDecodeError", "texts that are no UTF-8 are shown as far as they can be"),
    ("torch-save", r"^it is read; .*UnpicklingError.*(allowed global|Unsupported)",
     "names that torch would call and that we write down without calling"),
    ("torch-save", r"^it is read; .*(UnpicklingError|TypeError|KeyError|AttributeError|IndexError|RuntimeError)",
     "calls and states that torch executes and that we leave out: nothing of a tensor depends on them"),
    ("gguf", r"^it is read; .*(UnicodeDecodeError|Invalid alignment|ValueError|IndexError)",
     "texts that are no UTF-8 are shown as far as they can be; only llama.cpp wants powers of 2 as alignment"),
    ("onnx", r"^it is read; .*(no name defined|DecodeError|DataType|data_type|TypeError|ValueError|Validation)",
     "types and messages that nothing we show depends on; ours are read field by field, without a schema"),
    ("safetensors", r"^it is read; .*invalid type: .* expected a string",
     "metadata that are no texts are shown as texts"),
    ("safetensors", r"^it is read; .*(floating point `-0.0`|unexpected end of hex escape|number out of range)",
     "-0 is a whole number to Python's JSON, and half of a pair a character"),
    ("config-yaml", r"^it is read; .*(expected a mapping node, but found seq|month must be|yaml.org,2002:value)",
     "a tag that says what a value is not is left out; the value is what it looks like, a date a text"),
    ("config-yaml", r"the reference .*'[0-9.]+[eE][-+]?[0-9]+'", "1e-3 is a number here, as YAML 1.2 has it"),
    ("config-toml", r"datetime", "dates of TOML are texts here, as those of YAML are"),
    ("events", r"^\.rows: .*(.)\1{5000}", "of a name, 65,536 characters are read"),
    ("events", r"^it is read; .*(bad UTF-8|Wire format was corrupt|DType|cannot reshape|OverflowError|MemoryError)",
     "parts that we do not read; texts that are no UTF-8 are shown as far as they can be"),
)  # fmt: skip
_OPEN: Final[tuple[tuple[str, str, str], ...]] = ()  # findings that are known and not mended


def explanation(format: str, text: str) -> str:
    """Why a finding is none; "" where it is one."""
    reasons = (
        reason for name, pattern, reason in (*_ON_PURPOSE, *_OPEN) if name == format and re.search(pattern, text, re.S)
    )
    return next(reasons, "")
