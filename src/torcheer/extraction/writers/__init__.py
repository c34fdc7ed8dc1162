"""Writers of an extraction: shards, the threads that fill them, worker processes."""
