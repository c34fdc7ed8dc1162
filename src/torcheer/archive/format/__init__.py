"""The format on disk: segments, index frames, codecs, seals; a writer and a reader of it."""
