"""Tables: delimited text, JSON Lines, Parquet, Feather, and in memory."""
