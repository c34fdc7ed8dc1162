"""What the values of one history say: where NaN and infinity begin, what is uninitialised memory."""
