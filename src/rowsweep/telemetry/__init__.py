"""Events in; log lines, metrics and spans out."""
