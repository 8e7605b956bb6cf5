"""The command line: parse, call the app, hand the answer to show."""
