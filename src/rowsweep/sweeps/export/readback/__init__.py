"""An export read back, with the types that it has."""
