"""Tables: delimited text, JSON Lines, Parquet, Feather, and tables in memory."""
