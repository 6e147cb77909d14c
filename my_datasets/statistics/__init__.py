"""Statistics of the values of each feature: counts, ranges and distributions, in bounded memory."""
