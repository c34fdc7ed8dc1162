"""Arrow and Parquet files: one row per value, with its bytes in the last column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from torcheer.archive.exchange.guards import check_unpacked_size, missing_package, read_errors
from torcheer.archive.exchange.value_manifest import (
    KEY,
    MADE_BY,
    ExportSource,
    Frames,
    ImportContent,
    ValueInfo,
    decode_value,
    group_into_frames,
    parse_manifest,
    pop_manifest,
)
from torcheer.errors import ArchiveDamaged, BadArgument
from torcheer.records import Sample

_BATCH_ROWS, _BATCH_BYTES = 1024, 64 << 20
_READ_ROWS = 16  # Parquet rows read at a time: dictionary-encoded rows may be larger than their file
_PARQUET_BYTES = 1 << 31  # maximum of one cell
_COLUMNS = (*ValueInfo._fields, "crc32")


def write_arrow(file: Path, source: ExportSource) -> None:
    """Write an Arrow IPC file, which is also the Feather format."""
    arrow = _import_pyarrow(file)
    schema = _schema(arrow, source)
    with arrow.OSFile(str(file), "wb") as out, arrow.ipc.new_file(out, schema) as writer:
        for batch in _make_batches(arrow, schema, source):
            writer.write_batch(batch)


def write_parquet(file: Path, source: ExportSource) -> None:
    """Write a Parquet file with one row group per batch and page checksums."""
    arrow = _import_pyarrow(file)
    from pyarrow import parquet

    large = next((info for info in source.infos if info.bytes >= _PARQUET_BYTES), None)
    if large is not None:
        raise BadArgument(
            f"{large.layer!r} has {large.bytes} bytes, and Parquet stops at 2 GB; export to .arrow or .npz"
        )
    schema = _schema(arrow, source)
    options = {
        "use_dictionary": ["layer", "variable", "type"],
        "write_statistics": ["step", "layer", "variable", "item"],
    }
    with parquet.ParquetWriter(str(file), schema, write_page_checksum=True, **options) as writer:
        for batch in _make_batches(arrow, schema, source):
            writer.write_table(arrow.Table.from_batches([batch]), row_group_size=len(batch))


def _import_pyarrow(file: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise missing_package("pyarrow", file) from None
    return pyarrow


def _schema(arrow: Any, source: ExportSource) -> Any:
    kinds = {"step": arrow.int64(), "item": arrow.int64(), "shape": arrow.list_(arrow.int64())}
    fields = [(name, kinds.get(name, arrow.string())) for name in _COLUMNS]
    return arrow.schema([*fields, ("data", arrow.large_binary())], metadata={**MADE_BY, KEY: source.manifest()})


def _make_batches(arrow: Any, schema: Any, source: ExportSource) -> Iterator[Any]:
    """Yield record batches that fit in memory.

    A large value has its own batch and is not copied.
    """
    places: list[int] = []
    size = 0
    for place, info in enumerate(source.infos):
        if places and (size + info.bytes > _BATCH_BYTES or len(places) == _BATCH_ROWS):
            yield _make_batch(arrow, schema, source, places)
            places, size = [], 0
        places.append(place)
        size += info.bytes
    if places:
        yield _make_batch(arrow, schema, source, places)


def _make_batch(arrow: Any, schema: Any, source: ExportSource, places: list[int]) -> Any:
    parts = [source.read_bytes(place) for place in places]
    offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    content = parts[0] if len(parts) == 1 else b"".join(parts)
    buffers = [None, arrow.py_buffer(offsets), arrow.py_buffer(content)]
    data = arrow.Array.from_buffers(arrow.large_binary(), len(parts), buffers)
    rows = [{**source.infos[place]._asdict(), "crc32": source.crcs[place]} for place in places]
    try:
        columns = [arrow.array([row[name] for row in rows], schema.field(name).type) for name in _COLUMNS]
    except (UnicodeEncodeError, OverflowError, arrow.ArrowException) as error:
        raise BadArgument(f"a name or number of the archive has no place in a table: {error}; export to .npz") from None
    return arrow.record_batch([*columns, data], schema=schema)


@contextmanager
def read_arrow(file: Path) -> Iterator[ImportContent]:
    """Read an Arrow file that export wrote."""
    arrow = _import_pyarrow(file)
    with read_errors(file):
        reader = arrow.ipc.open_file(arrow.memory_map(str(file)))
        batches = (partial(reader.get_batch, place) for place in range(reader.num_record_batches))
        content = _read_content(file, reader.schema, batches)
    yield content


@contextmanager
def read_parquet(file: Path) -> Iterator[ImportContent]:
    """Read a Parquet file that export wrote."""
    _import_pyarrow(file)
    from pyarrow import parquet

    with read_errors(file):
        reader = parquet.ParquetFile(str(file), page_checksum_verification=True, thrift_string_size_limit=1 << 30)
        groups = range(reader.num_row_groups)
        batches = (batch for group in groups for batch in reader.iter_batches(_READ_ROWS, row_groups=[group]))
        content = _read_content(file, reader.schema_arrow, iter(lambda: lambda: next(batches), None))
    with reader:
        yield content


def _read_content(file: Path, schema: Any, batches: Iterator[Callable[[], Any]]) -> ImportContent:
    missing = [name for name in (*ValueInfo._fields, "data") if name not in schema.names]
    if missing:
        raise BadArgument(
            f"{file} has no column {', '.join(missing)}; it has {', '.join(schema.names) or 'none'}. "
            "Only tables with the columns that export writes can be imported"
        )
    samples = _read_samples(file, batches)
    metadata = {
        key.decode(errors="replace"): text.decode(errors="replace") for key, text in (schema.metadata or {}).items()
    }
    manifest = pop_manifest(metadata, file)
    if manifest is None and "crc32" in schema.names:
        raise ArchiveDamaged(
            f"{file} has lost what export wrote beside its rows: which steps there are, and what they say. "
            "To import the rows as they are, leave out the column crc32"
        )
    if manifest is None:
        return ImportContent({"kind": "table", "from": file.name}, _group_by_step(samples))
    parsed = parse_manifest(manifest, file)
    return ImportContent(parsed["about"], group_into_frames(parsed["frames"], samples, file))


def _group_by_step(samples: Iterator[Sample]) -> Frames:
    for _, group in groupby(samples, lambda sample: sample.step):
        yield {}, group


def _read_samples(file: Path, batches: Iterator[Callable[[], Any]]) -> Iterator[Sample]:
    unpacked = 0
    for load in batches:
        with read_errors(file):
            try:
                batch = load()
            except StopIteration:
                return
            batch.validate(full=True)  # pyarrow follows the offsets of a hostile file unchecked
            unpacked += batch.nbytes
            check_unpacked_size(unpacked, file.stat().st_size, file)
            names = [name for name in _COLUMNS if name in batch.schema.names]
            rows = batch.select(names).to_pylist()
            data = [cell.as_buffer() for cell in batch.column("data")]
        for row, cell in zip(rows, data, strict=True):
            yield decode_value(row, memoryview(cell if cell is not None else b""), file)
