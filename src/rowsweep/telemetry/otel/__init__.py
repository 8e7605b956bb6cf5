"""OpenTelemetry as a back end, imported on first use where its API is installed."""
