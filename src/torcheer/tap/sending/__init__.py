"""The parts of the sender of a watch: what is sent of each key, how much of it, and how it leaves a device."""
