"""From fetchable partitions to records: requests, buffer, collecting."""
