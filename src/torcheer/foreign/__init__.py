"""Files that other programs wrote: their parsers, and the process that can be lost in which they run."""
