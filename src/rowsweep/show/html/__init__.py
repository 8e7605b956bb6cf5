"""Views as HTML without script: for notebooks, live and saved, and wherever else markup is shown."""
