"""Arrow and Parquet: a row per value, its bytes in the last column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.archive.exchange.guards import believable, missing, understood
from torcheer.archive.exchange.value_manifest import (
    KEY,
    MARK,
    Content,
    Facts,
    Frames,
    Packing,
    checked,
    in_frames,
    manifest_in,
    parse,
)
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample

_BATCH_ROWS, _BATCH_BYTES = 1024, 64 << 20
_READ_ROWS = 16  # of Parquet at a time: rows of a dictionary may be larger than their file
_PARQUET_BYTES = 1 << 31  # of one cell
_SMALL = (*Facts._fields, "crc32")


def write_arrow(file: Path, packing: Packing) -> None:
    """An Arrow IPC file, which is also what Feather is."""
    arrow = _pyarrow(file)
    schema = _schema(arrow, packing)
    with arrow.OSFile(str(file), "wb") as out, arrow.ipc.new_file(out, schema) as writer:
        for batch in _batches(arrow, schema, packing):
            writer.write_batch(batch)


def write_parquet(file: Path, packing: Packing) -> None:
    """A Parquet file, a row group per batch, with checksums of its pages."""
    arrow = _pyarrow(file)
    from pyarrow import parquet

    large = next((one for one in packing.facts if one.bytes >= _PARQUET_BYTES), None)
    if large is not None:
        raise BadArgument(
            f"{large.layer!r} has {large.bytes} bytes, and Parquet stops at 2 GB; export to .arrow or .npz"
        )
    schema = _schema(arrow, packing)
    options = {
        "use_dictionary": ["layer", "variable", "type"],
        "write_statistics": ["step", "layer", "variable", "item"],
    }
    with parquet.ParquetWriter(str(file), schema, write_page_checksum=True, **options) as writer:
        for batch in _batches(arrow, schema, packing):
            writer.write_table(arrow.Table.from_batches([batch]), row_group_size=len(batch))


def _pyarrow(file: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise missing("pyarrow", file) from None
    return pyarrow


def _schema(arrow: Any, packing: Packing) -> Any:
    kinds = {"step": arrow.int64(), "item": arrow.int64(), "shape": arrow.list_(arrow.int64())}
    fields = [(name, kinds.get(name, arrow.string())) for name in _SMALL]
    return arrow.schema([*fields, ("data", arrow.large_binary())], metadata={**MARK, KEY: packing.manifest()})


def _batches(arrow: Any, schema: Any, packing: Packing) -> Iterator[Any]:
    """Rows in groups that fit in memory; a large value stands alone and is not copied."""
    places: list[int] = []
    size = 0
    for place, facts in enumerate(packing.facts):
        if places and (size + facts.bytes > _BATCH_BYTES or len(places) == _BATCH_ROWS):
            yield _batch(arrow, schema, packing, places)
            places, size = [], 0
        places.append(place)
        size += facts.bytes
    if places:
        yield _batch(arrow, schema, packing, places)


def _batch(arrow: Any, schema: Any, packing: Packing, places: list[int]) -> Any:
    parts = [packing.bits(place) for place in places]
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    whole = parts[0] if len(parts) == 1 else b"".join(parts)
    buffers = [None, arrow.py_buffer(ends), arrow.py_buffer(whole)]
    data = arrow.Array.from_buffers(arrow.large_binary(), len(parts), buffers)
    rows = [{**packing.facts[place]._asdict(), "crc32": packing.checks[place]} for place in places]
    try:
        columns = [arrow.array([row[name] for row in rows], schema.field(name).type) for name in _SMALL]
    except (UnicodeEncodeError, OverflowError, arrow.ArrowException) as error:
        raise BadArgument(f"a name or number of the archive has no place in a table: {error}; export to .npz") from None
    return arrow.record_batch([*columns, data], schema=schema)


@contextmanager
def read_arrow(file: Path) -> Iterator[Content]:
    """What one of our Arrow files holds."""
    arrow = _pyarrow(file)
    with understood(file):
        reader = arrow.ipc.open_file(arrow.memory_map(str(file)))
        batches = (partial(reader.get_batch, place) for place in range(reader.num_record_batches))
        content = _content(file, reader.schema, batches)
    yield content


@contextmanager
def read_parquet(file: Path) -> Iterator[Content]:
    """What one of our Parquet files holds."""
    _pyarrow(file)
    from pyarrow import parquet

    with understood(file):
        reader = parquet.ParquetFile(str(file), page_checksum_verification=True, thrift_string_size_limit=1 << 30)
        groups = range(reader.num_row_groups)
        batches = (one for group in groups for one in reader.iter_batches(_READ_ROWS, row_groups=[group]))
        content = _content(file, reader.schema_arrow, iter(lambda: lambda: next(batches), None))
    with reader:
        yield content


def _content(file: Path, schema: Any, batches: Iterator[Callable[[], Any]]) -> Content:
    lacking = [name for name in (*Facts._fields, "data") if name not in schema.names]
    if lacking:
        raise BadArgument(
            f"{file} has no column {', '.join(lacking)}; it has {', '.join(schema.names) or 'none'}. "
            "Only tables with the columns that export writes can be imported"
        )
    samples = _samples(file, batches)
    metadata = {
        key.decode(errors="replace"): text.decode(errors="replace") for key, text in (schema.metadata or {}).items()
    }
    manifest = manifest_in(metadata, file)
    if manifest is None and "crc32" in schema.names:
        raise ArchiveDamaged(
            f"{file} has lost what export wrote beside its rows: which steps there are, and what they say. "
            "To import the rows as they are, leave out the column crc32"
        )
    if manifest is None:
        return Content({"kind": "table", "from": file.name}, _by_step(samples))
    found = parse(manifest, file)
    return Content(found["about"], in_frames(found["frames"], samples, file))


def _by_step(samples: Iterator[Sample]) -> Frames:
    for _, group in groupby(samples, lambda sample: sample.step):
        yield {}, group


def _samples(file: Path, batches: Iterator[Callable[[], Any]]) -> Iterator[Sample]:
    unpacked = 0
    for load in batches:
        with understood(file):
            try:
                batch = load()
            except StopIteration:
                return
            batch.validate(full=True)  # offsets of a hostile file would be followed as they are
            unpacked += batch.nbytes
            believable(unpacked, file.stat().st_size, file)
            names = [name for name in _SMALL if name in batch.schema.names]
            rows = batch.select(names).to_pylist()
            data = [cell.as_buffer() for cell in batch.column("data")]
        for row, cell in zip(rows, data, strict=True):
            yield checked(row, memoryview(cell if cell is not None else b""), file)
