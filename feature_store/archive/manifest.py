"""The manifest of a partition: which files of it count, and which offsets they cover. Pure."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from feature_store.archive.layout import FORMAT, ArchiveError, file_name, tail_name


class Kind(StrEnum):
    """What a span of offsets is."""

    FILE = "file"
    """Records, in a file that does not change any more."""
    TAIL = "tail"
    """Records, in a file that a longer one replaces."""
    EMPTY = "empty"
    """No record: all offsets are of transaction markers, of aborted records, or compacted away."""
    LOST = "lost"
    """Retention had deleted the records before they were archived."""


@dataclass(frozen=True)
class Span:
    """Offsets `first` to before `end` of a partition."""

    kind: Kind
    first: int
    end: int
    rows: int = 0
    """Records. The other offsets are holes: transaction markers, aborted records, or, in a compacted topic,
    records that compaction has removed before they were archived."""
    bytes: int = 0
    """Size of the file."""
    raw_bytes: int = 0
    """Bytes of keys and values."""
    sha256: str = ""
    """Of the file."""
    day: str = ""
    """Day of the first record's arrival (UTC)."""
    least_ms: int = 0
    """Earliest arrival."""
    most_ms: int = 0
    """Latest arrival."""

    @property
    def holes(self) -> int:
        """Number of offsets without a record; all of them are explained by the span's kind and topic."""
        return self.end - self.first - self.rows

    @property
    def name(self) -> str:
        """Name of the file, relative to the partition's directory; empty without one."""
        if self.kind is Kind.FILE:
            return file_name(self.first, self.end, self.day)
        return tail_name(self.first, self.end) if self.kind is Kind.TAIL else ""


@dataclass(frozen=True)
class Manifest:
    """The spans of a partition, in order and without a gap between them; the last one may be the tail."""

    topic: str
    partition: int
    topic_id: str
    """Kafka's id of the topic: a topic that was deleted and created again has another one."""
    is_compacted: bool
    """Whether the topic was compacted when the archive began; its holes may be compaction's then."""
    compacted_before_ms: int = 0
    """Arrival before which compaction may have removed records before the archive began; 0: it has not."""
    spans: tuple[Span, ...] = field(default=())
    begin: int = 0
    """First offset; expiry moves it."""

    @property
    def end(self) -> int:
        """Offset after the last one, the tail included."""
        return self.spans[-1].end if self.spans else self.begin

    @property
    def closed(self) -> int:
        """Offset after the last whole file: what follows is the tail."""
        return self.tail.first if self.tail else self.end

    @property
    def tail(self) -> Span | None:
        """The tail, if there is one."""
        return self.spans[-1] if self.spans and self.spans[-1].kind is Kind.TAIL else None

    @property
    def whole_from(self) -> int:
        """Offset from which on no records are lost."""
        return max((span.end for span in self.spans if span.kind is Kind.LOST), default=self.begin)

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(span.rows for span in self.spans)

    def files(self, first: int | None = None) -> Iterator[Span]:
        """Yield the spans that have a file, and offsets from `first` on."""
        return (span for span in self.spans if span.name and (first is None or span.end > first))

    def appended(self, span: Span) -> "Manifest":
        """Return the manifest with another span in place of the tail.

        Raises:
            ArchiveError: the span does not begin where the whole files end.
        """
        if span.first != self.closed or span.end <= span.first:
            raise ArchiveError(
                f"offsets {span.first} to {span.end} of {self.topic}-{self.partition} do not follow the "
                f"archive's, which end at {self.closed}; start the archiver again"
            )
        kept = self.spans[:-1] if self.tail else self.spans
        return replace(self, spans=(*kept, span))

    def without(self, count: int) -> "Manifest":
        """Return the manifest without its first `count` spans."""
        kept = self.spans[count:]
        return replace(self, spans=kept, begin=kept[0].first if kept else self.end)

    def to_json(self) -> bytes:
        """Return the manifest as JSON."""
        head = {name: value for name, value in asdict(self).items() if name != "spans"}
        # a line for each span, so that people and grep can read it
        spans = ",\n".join(json.dumps(asdict(span)) for span in self.spans)
        text = json.dumps({"format": FORMAT, **head})[:-1]
        return f'{text}, "spans": [\n{spans}\n]}}\n'.encode()

    @staticmethod
    def of_json(text: bytes, where: str) -> "Manifest":
        """Read a manifest.

        Args:
            where: the file, for errors.

        Raises:
            ArchiveError: it is damaged, or of another format.
        """
        content = parsed(text, where)
        try:
            spans = tuple(Span(**{**span, "kind": Kind(span["kind"])}) for span in content.pop("spans"))
            del content["format"]
            manifest = Manifest(**content, spans=spans)
        except (KeyError, TypeError, ValueError) as fault:
            raise ArchiveError(f"{where} is damaged ({fault!r}); restore it from a copy") from None
        at = manifest.begin
        for span in spans:
            if span.first != at or span.end <= at:
                raise ArchiveError(f"{where} is damaged (a gap at offset {at}); restore it from a copy")
            at = span.end
        return manifest


def parsed(text: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON file of the archive.

    Raises:
        ArchiveError: it is damaged, or of another format.
    """
    try:
        content = json.loads(text)
        number = content["format"]
    except (ValueError, KeyError, TypeError):
        raise ArchiveError(f"{where} is damaged (no JSON with a format); restore it from a copy") from None
    if number != FORMAT:
        raise ArchiveError(
            f"{where} has format {number}, this release reads {FORMAT}; use the release that fits"
        )
    return dict(content)
