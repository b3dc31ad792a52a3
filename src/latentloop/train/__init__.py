"""From a configuration to weights."""
