"""What the weights have learned."""
