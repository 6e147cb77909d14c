"""Downloads files over HTTP: resumes, falls back to mirrors and verifies."""
