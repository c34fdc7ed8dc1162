"""The format on disk: segments, index frames, codecs and seals, with its writer and reader."""
