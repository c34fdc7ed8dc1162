"""What a process that is looked at offers to a viewer: a socket, a ring of values, a description of its network."""
