"""What the managers, the network and the engines share: requests, progress, transitions and signals. Not public."""
