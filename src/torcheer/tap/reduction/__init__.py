"""Values reduced on their device, to be fetched as statistics."""
