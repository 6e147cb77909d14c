"""Making a prepared version appear whole or not at all."""
