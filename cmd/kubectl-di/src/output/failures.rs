//! The failures of a job as text.

use di_api::FailureRecord;
use jiff::Timestamp;

use super::age::format_age;

/// One line about a failure, such as
/// `train-collector-x7k2p on node-1: OOMKilled (exit code 137), 3 times, last 2m ago`.
pub fn failure_line(failure: &FailureRecord, now: Timestamp) -> String {
    let FailureRecord { pod, reason, .. } = failure;
    let node = failure.node.iter().map(|node| format!(" on {node}"));
    let node = node.collect::<String>();
    let code = failure.exit_code.iter();
    let code = code.map(|code| format!(" (exit code {code})"));
    let code = code.collect::<String>();
    let age = format_age(failure.at.0, now);
    let count = match failure.count {
        ..=1 => format!("{age} ago"),
        count => format!("{count} times, last {age} ago"),
    };
    let rule = failure.rule.iter();
    let rule = rule.map(|rule| format!("; rule {rule}: {}", failure.action.as_str()));
    let rule = rule.collect::<String>();
    format!("{pod}{node}: {reason}{code}, {count}{rule}")
}

/// The last `max` log lines of a failure.
pub fn tail_lines(failure: &FailureRecord, max: usize) -> Vec<&str> {
    let lines: Vec<_> = failure.tail.iter().flat_map(|tail| tail.lines()).collect();
    lines[lines.len().saturating_sub(max)..].to_vec()
}
