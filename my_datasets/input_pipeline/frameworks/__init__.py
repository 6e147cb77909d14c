"""Plans and sources for frameworks other than TensorFlow."""
