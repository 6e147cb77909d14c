"""The `movie_sentiment` dataset."""
