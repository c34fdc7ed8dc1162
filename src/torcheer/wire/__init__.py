"""Bytes and messages to another process: the ring, sockets, the viewer's process."""
