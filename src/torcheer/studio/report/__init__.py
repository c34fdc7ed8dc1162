"""Reports: a run or a recorded pass as one HTML file, the studio's own page with what it would have been sent."""
