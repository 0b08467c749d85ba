//! The position in a followed log, which continues after its stream breaks.
//!
//! Logs are followed with timestamps. A new stream starts at the second of the last line, so it
//! repeats some lines, which the cursor drops. If it does not repeat the last line, the kubelet has
//! rotated the log meanwhile, and lines may be missing: only the current file can be read.
//! See docs/decisions/0035.

use std::{
    str,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::core::subresource::LogParams;

use super::run::Run;

/// The read position in the log of one run.
pub(super) struct LogCursor {
    pub run: Run,
    pub pod: String,
    /// Consecutive streams that soon ended without a new line.
    pub failed_attempts: u32,
    /// The request of the first stream.
    params: LogParams,
    /// Time when the first stream was opened, once a stream has ended without an error.
    followed_since: Option<Instant>,
    first_opened: Option<Instant>,
    /// Time when the stream was opened, by the monotonic clock and, to compare log timestamps, by
    /// the system clock.
    opened: Instant,
    opened_at: Timestamp,
    rechecked: Option<Instant>,
    last: Option<LastLine>,
    /// The last text without a timestamp: a message of the kubelet.
    message: Option<Vec<u8>>,
    /// Number of lines with the last timestamp that the stream has repeated. `None` once it has
    /// passed them.
    repeated: Option<usize>,
    has_new_lines: bool,
    splitter: TimestampSplitter,
}

/// The newest line that was read.
struct LastLine {
    at: Timestamp,
    /// Number of lines with this timestamp.
    count: usize,
    /// Whether the stream has repeated it, so that the next line is known to follow it.
    is_repeated: bool,
}

/// What to do with a piece of a log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// It is new.
    New(Vec<u8>),
    /// It is new, but lines between this time and the piece may be missing.
    AfterGap(Timestamp, Vec<u8>),
    /// It was read before.
    Repeated,
    /// Open the log again: the kubelet may have skipped a file.
    Recheck,
}

/// A stream that lasted this long was healthy.
const STABLE_AFTER: Duration = Duration::from_secs(10);
const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// The kubelet checks the size of logs every 10 s, so a file that it skips has the lines of at
/// least this time. See `containerLogMonitorInterval`.
const MIN_SKIPPED: SignedDuration = SignedDuration::from_secs(10);
/// A log with rare lines is not opened again at each of them.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);
/// For lines that were written while a stream was opened.
const OVERLAP: Duration = Duration::from_secs(2);

impl LogCursor {
    pub fn new(run: Run, pod: String, params: LogParams) -> Self {
        Self {
            run,
            pod,
            failed_attempts: 0,
            params,
            followed_since: None,
            first_opened: None,
            opened: Instant::now(),
            opened_at: Timestamp::now(),
            rechecked: None,
            last: None,
            message: None,
            repeated: None,
            has_new_lines: false,
            splitter: TimestampSplitter::default(),
        }
    }

    /// Prepares for a new stream, and returns its request.
    pub fn start_stream(&mut self, pause: Duration) -> LogParams {
        self.opened = Instant::now() + pause;
        self.opened_at = Timestamp::now();
        self.first_opened.get_or_insert(self.opened);
        self.repeated = self.last.as_ref().map(|_| 0);
        if let Some(last) = &mut self.last {
            last.is_repeated = false;
        }
        self.has_new_lines = false;
        self.splitter = TimestampSplitter::default();
        let mut params = LogParams {
            timestamps: true,
            ..self.params.clone()
        };
        if let Some(last) = &self.last {
            // The API takes whole seconds.
            params.since_time = Timestamp::from_second(last.at.as_second()).ok();
            (params.since_seconds, params.tail_lines) = (None, None);
        } else if let Some(since) = self.followed_since {
            // The log had no line yet.
            let seconds = (since.elapsed() + OVERLAP).as_secs();
            params.since_seconds = i64::try_from(seconds).ok();
            (params.since_time, params.tail_lines) = (None, None);
        }
        params
    }

    /// Reads a line, or a piece of one.
    pub fn read(&mut self, piece: Vec<u8>) -> Piece {
        let starts_line = self.splitter.is_at_start;
        let (at, text) = self.splitter.split(&piece);
        let bytes = if self.params.timestamps { piece } else { text };
        match at {
            Some(at) => self.read_line(at, bytes),
            // It has no timestamp, or belongs to a line that has begun before.
            None if !starts_line && self.repeated.is_some() => Piece::Repeated,
            None if !starts_line => Piece::New(bytes),
            None if self.message.as_ref() == Some(&bytes) => Piece::Repeated,
            None => {
                self.message = Some(bytes.clone());
                Piece::New(bytes)
            }
        }
    }

    fn read_line(&mut self, at: Timestamp, bytes: Vec<u8>) -> Piece {
        let Some(last) = &mut self.last else {
            self.last = Some(LastLine::new(at));
            return self.read_new(bytes);
        };
        if let Some(repeated) = &mut self.repeated {
            if at < last.at {
                return Piece::Repeated;
            }
            if at == last.at && *repeated < last.count {
                *repeated += 1;
                last.is_repeated = true;
                return Piece::Repeated;
            }
        }
        let is_repeating = self.repeated.take().is_some();
        let (gap_start, is_known) = (last.at, last.is_repeated);
        let is_long = at.duration_since(last.at) >= MIN_SKIPPED;
        // Older lines are in the file that was current when the stream was opened.
        let is_due = self
            .rechecked
            .is_none_or(|at| at.elapsed() > RECHECK_INTERVAL);
        if !is_repeating && is_long && !is_known && at > self.opened_at && is_due {
            self.rechecked = Some(Instant::now());
            return Piece::Recheck;
        }
        if at == last.at {
            last.count += 1;
        } else if at > last.at {
            *last = LastLine::new(at);
        }
        match self.read_new(bytes) {
            Piece::New(bytes) if is_repeating && !is_known => Piece::AfterGap(gap_start, bytes),
            piece => piece,
        }
    }

    fn read_new(&mut self, bytes: Vec<u8>) -> Piece {
        self.has_new_lines = true;
        self.failed_attempts = 0;
        Piece::New(bytes)
    }

    /// Records that the log could be read.
    pub fn mark_readable(&mut self) {
        self.followed_since = self.first_opened;
    }

    /// Whether the log could be read at any time.
    pub fn was_readable(&self) -> bool {
        self.followed_since.is_some() || self.last.is_some()
    }

    /// Whether the stream has new lines.
    pub fn has_new_lines(&self) -> bool {
        self.has_new_lines
    }

    /// Counts a stream that has ended, and returns the pause before the next one.
    pub fn count_attempt(&mut self) -> Duration {
        if self.opened.elapsed() > STABLE_AFTER {
            self.failed_attempts = 0;
        }
        let pause = MIN_PAUSE.saturating_mul(1 << self.failed_attempts.min(8));
        self.failed_attempts += 1;
        pause.min(MAX_PAUSE)
    }
}

impl LastLine {
    fn new(at: Timestamp) -> Self {
        Self {
            at,
            count: 1,
            is_repeated: false,
        }
    }
}

/// Splits the timestamps off the lines of a log.
struct TimestampSplitter {
    is_at_start: bool,
    /// Number of bytes since the last timestamp of the line.
    chunk: usize,
}

/// Container runtimes write longer lines in chunks of 8 or 16 KiB. Kubelets before 1.27 put a
/// timestamp before each.
const MAX_CHUNK_BYTES: usize = 8 * 1024;
/// Maximum length of a timestamp, as in `2026-01-31T12:00:00.123456789+01:00`.
const MAX_TIMESTAMP_BYTES: usize = 35;

impl Default for TimestampSplitter {
    fn default() -> Self {
        Self {
            is_at_start: true,
            chunk: 0,
        }
    }
}

impl TimestampSplitter {
    /// Returns the timestamp, if a line starts here, and the text without timestamps.
    fn split(&mut self, piece: &[u8]) -> (Option<Timestamp>, Vec<u8>) {
        let (mut at, mut rest) = (None, piece);
        if self.is_at_start {
            self.chunk = 0;
            (at, rest) = split_timestamp(piece);
        }
        let mut text = Vec::with_capacity(rest.len());
        while self.chunk + rest.len() > MAX_CHUNK_BYTES {
            let (chunk, next) = rest.split_at(MAX_CHUNK_BYTES - self.chunk);
            text.extend_from_slice(chunk);
            (_, rest) = split_timestamp(next);
            self.chunk = 0;
        }
        text.extend_from_slice(rest);
        self.chunk += rest.len();
        self.is_at_start = piece.ends_with(b"\n");
        (at, text)
    }
}

fn split_timestamp(text: &[u8]) -> (Option<Timestamp>, &[u8]) {
    let mut start = text.iter().take(MAX_TIMESTAMP_BYTES + 1);
    let end = start.position(|byte| *byte == b' ');
    let parsed = end.and_then(|end| {
        let at = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
        Some((Some(at), &text[end + 1..]))
    });
    parsed.unwrap_or((None, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_cursor() -> LogCursor {
        let run = ("u".to_owned(), "c".to_owned(), 0);
        LogCursor::new(run, "p".to_owned(), LogParams::default())
    }

    /// Opens a new stream with lines at these milliseconds, and returns what is new of it.
    fn read_stream(cursor: &mut LogCursor, lines: &[(i64, &str)]) -> Vec<String> {
        cursor.start_stream(Duration::ZERO);
        let read = lines.iter().filter_map(|(millisecond, text)| {
            let at = Timestamp::from_millisecond(*millisecond).unwrap();
            match cursor.read(format!("{at} {text}\n").into_bytes()) {
                Piece::New(bytes) => Some(String::from_utf8(bytes).unwrap().trim().to_owned()),
                Piece::AfterGap(from, bytes) => {
                    let text = String::from_utf8(bytes).unwrap();
                    Some(format!(
                        "gap from {}: {}",
                        from.as_millisecond(),
                        text.trim()
                    ))
                }
                Piece::Repeated => None,
                Piece::Recheck => Some("recheck".to_owned()),
            }
        });
        read.collect()
    }

    #[test]
    fn overlapping_streams_yield_each_line_once() {
        let mut cursor = new_cursor();
        let all = [
            (1_000, "a"),
            (1_500, "b"),
            (1_500, "b"),
            (1_500, "b"),
            (1_900, "c"),
        ];
        assert_eq!(read_stream(&mut cursor, &all[..2]), ["a", "b"]);
        assert_eq!(read_stream(&mut cursor, &all[..3]), ["b"]);
        assert_eq!(read_stream(&mut cursor, &all), ["b", "c"]);
        assert_eq!(read_stream(&mut cursor, &all), [""; 0]);
        assert!(!cursor.has_new_lines());
    }

    #[test]
    fn new_stream_without_last_line_reports_gap() {
        let mut cursor = new_cursor();
        assert_eq!(
            read_stream(&mut cursor, &[(1_000, "a"), (1_500, "b")]),
            ["a", "b"]
        );
        let params = cursor.start_stream(Duration::ZERO);
        assert_eq!(params.since_time, Timestamp::from_second(1).ok());
        assert!(params.timestamps);
        let rotated = [(1_600, "d"), (1_700, "e")];
        assert_eq!(
            read_stream(&mut cursor, &rotated),
            ["gap from 1500: d", "e"]
        );
    }

    #[test]
    fn long_silence_after_opening_is_checked_once() {
        let mut cursor = new_cursor();
        let now = Timestamp::now().as_millisecond() + 60_000;
        let lines = [(now, "a"), (now + 9_000, "b"), (now + 20_000, "c")];
        assert_eq!(read_stream(&mut cursor, &lines), ["a", "b", "recheck"]);
        assert_eq!(read_stream(&mut cursor, &lines), ["c"], "in the same file");
        let old = [(1_000, "a"), (90_000, "b")];
        assert_eq!(read_stream(&mut new_cursor(), &old), ["a", "b"]);
    }

    #[test]
    fn timestamps_inside_long_lines_are_removed() {
        let time = "2026-01-31T12:00:00.000000001Z ";
        let chunk = "x".repeat(MAX_CHUNK_BYTES);
        let line = format!("{time}{chunk}{time}{chunk}{time}end {time}\n");
        for piece_length in [line.len(), MAX_CHUNK_BYTES + time.len(), 60_000] {
            let mut splitter = TimestampSplitter::default();
            let pieces = line.as_bytes().chunks(piece_length);
            let text: Vec<u8> = pieces.flat_map(|piece| splitter.split(piece).1).collect();
            let expected = format!("{chunk}{chunk}end {time}\n");
            assert!(text == expected.as_bytes(), "pieces of {piece_length}");
        }
        let mut splitter = TimestampSplitter::default();
        assert_eq!(splitter.split(b"no time\n"), (None, b"no time\n".to_vec()));
    }

    #[test]
    fn message_of_kubelet_is_read_once_and_is_no_line() {
        let mut cursor = new_cursor();
        let message = b"unable to retrieve container logs".to_vec();
        cursor.start_stream(Duration::ZERO);
        assert_eq!(cursor.read(message.clone()), Piece::New(message.clone()));
        assert!(!cursor.has_new_lines());
        cursor.start_stream(Duration::ZERO);
        assert_eq!(cursor.read(message), Piece::Repeated);
    }

    #[test]
    fn stream_after_one_without_lines_has_no_limit_of_lines() {
        let mut cursor = new_cursor();
        cursor.params.tail_lines = Some(0);
        assert_eq!(cursor.start_stream(Duration::ZERO).tail_lines, Some(0));
        assert_eq!(
            cursor.start_stream(Duration::ZERO).tail_lines,
            Some(0),
            "after an error"
        );
        cursor.mark_readable();
        let params = cursor.start_stream(Duration::ZERO);
        assert_eq!((params.tail_lines, params.since_seconds), (None, Some(2)));
    }

    #[test]
    fn pauses_grow_without_new_lines() {
        let mut cursor = new_cursor();
        let pauses: Vec<_> = (0..6).map(|_| cursor.count_attempt().as_millis()).collect();
        assert_eq!(pauses, [500, 1000, 2000, 4000, 5000, 5000]);
        assert_eq!(read_stream(&mut cursor, &[(1_000, "a")]), ["a"]);
        assert_eq!(cursor.count_attempt(), MIN_PAUSE);
    }
}
