"""The problem itself: graphs, their arithmetic, the oracle, text and splits. No torch."""
