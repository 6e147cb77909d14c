"""What the values of each feature are like: counts, ranges, distributions, in bounded memory."""
