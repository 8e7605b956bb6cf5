"""Jobs as COPY takes them, for bulks that no live job can have the keys of."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rowsweep.jobs.values.json_form import json_text
from rowsweep.queue.records import DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rowsweep.jobs.request import NewJob

COPY_FROM: Final = 500
"""From how many jobs on a bulk is streamed; below, the two statements around it cost more than it saves."""
# The format's signature, its flags, and no extension of the header; behind the rows, a row of minus one columns.
_BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END: Final = b"\xff\xff"
_LENGTH: Final = struct.Struct("!i")
_INPUT: Final = struct.Struct("!ib")
_SMALL: Final = struct.Struct("!ih")
_INT: Final = struct.Struct("!ii")
_LONG: Final = struct.Struct("!iq")
_NULL: Final = _LENGTH.pack(-1)
_SIXTEEN: Final = _LENGTH.pack(16)
_ROW: Final = struct.pack("!h", 14) + _SIXTEEN  # its columns, and the length of the first


def can_be_copied(jobs: Sequence[NewJob]) -> bool:
    """Say whether these are many jobs, all due now, that nobody can have enqueued before."""
    return len(jobs) >= COPY_FROM and all(
        job.is_unkeyed and job.run_at is None and job.delay_seconds is None for job in jobs
    )


def rows_of(jobs: Sequence[NewJob], instant: int, encoding: str) -> bytes:
    """Answer jobs as the rows of one COPY in binary form, due at an instant in microseconds since 2000."""
    parts, last, rest = [_BEGIN], None, b""
    for job in jobs:
        same = (
            job.name,
            job.queue,
            job.priority,
            job.max_attempts,
            job.tenant_id,
            job.concurrency_key,
            job.traceparent,
            job.enqueued_by,
        )
        if same != last:  # most of a bulk have all of it in common with the one before
            last, rest = same, _rest(job, instant, encoding)
        form = json_text(job.input).encode(encoding)
        key = job.idempotency_key.encode(encoding)
        parts += (
            _ROW,
            job.id.int.to_bytes(16, "big"),
            _SIXTEEN,
            job.run_id.int.to_bytes(16, "big"),
            _INPUT.pack(len(form) + 1, 1),  # jsonb's version comes first
            form,
            _LENGTH.pack(len(key)),
            key,
            rest,
        )
    parts.append(_END)
    return b"".join(parts)


def _rest(job: NewJob, instant: int, encoding: str) -> bytes:
    """Answer the columns behind the key, in the statement's order."""
    return b"".join(
        (
            _text(job.name, encoding),
            _text(job.queue or DEFAULT_QUEUE, encoding),
            _SMALL.pack(2, job.priority),
            _text("ready", encoding),
            _INT.pack(4, job.max_attempts),
            _LONG.pack(8, instant),
            _text(job.tenant_id, encoding),
            _text(job.concurrency_key, encoding),
            _text(job.traceparent, encoding),
            _text(job.enqueued_by, encoding),
        )
    )


def _text(text: str | None, encoding: str) -> bytes:
    if text is None:
        return _NULL
    encoded = text.encode(encoding)
    return _LENGTH.pack(len(encoded)) + encoded
