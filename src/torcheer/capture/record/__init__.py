"""The recorder and what it knows of torch's functions: from calls to rows, from rows to Ops."""
