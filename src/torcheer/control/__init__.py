"""What a loop under control shows and accepts: counters, parameters, actions."""
