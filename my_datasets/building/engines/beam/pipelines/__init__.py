"""The three pipelines of a build, and the stages that run them."""
