"""Admission: whether a claimed job may run now, under the limiter and the caps it declares."""
