"""What all packages share, and what imports none of them: time, backoff, error codes, locks and logs. Not public."""
