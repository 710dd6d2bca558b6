"""The base classes of the public consumers, and the checks of their arguments. Not public."""
