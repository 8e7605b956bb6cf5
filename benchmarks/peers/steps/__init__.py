"""Libraries of memoised steps that are measured alike."""
