"""Exports: tables as files, part by part, with the types of the catalog."""
