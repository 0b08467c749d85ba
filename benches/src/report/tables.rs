use std::fmt::Write;

use crate::harness::{
    machine::Machine,
    stats::{Findings, Series, Verdict, quantile, spread},
};

/// The machine of a run.
pub fn machine(machine: &Machine) -> String {
    let rows = [
        ("Processor", machine.processor.clone()),
        ("Memory", machine.memory.clone()),
        ("Kernel", machine.kernel.clone()),
        ("Compiler", format!("{}, release profile", machine.rustc)),
        ("Commit", machine.commit.clone()),
        ("Servers", machine.servers.clone()),
        ("When", machine.when.clone()),
        ("Load average, before and after", machine.load.join(", ")),
    ];
    rows.iter()
        .fold("| | |\n|---|---|\n".to_owned(), |text, (name, value)| {
            text + &format!("| {name} | {value} |\n")
        })
}

/// The targets, and whether they were met.
pub fn verdicts(found: &Findings) -> String {
    let mut text = "| | target | measured | met |\n|---|---|---|---|\n".to_owned();
    for verdict in &found.verdicts {
        let met = match verdict {
            Verdict { history: true, .. } => "history",
            Verdict { met: true, .. } => "yes",
            Verdict { met: false, .. } => "**no**",
        };
        let (benchmark, target, measured) =
            (&verdict.benchmark, &verdict.target, &verdict.measured);
        writeln!(text, "| {benchmark} | {target} | {measured} | {met} |").ok();
    }
    text
}

/// One table for each thing that a benchmark measured: a row for each case, a column for each subject.
pub fn measurements(found: &Findings, benchmark: &str) -> String {
    let mut text = String::new();
    for what in whats(found, benchmark) {
        let of: Vec<&Series> = series(found, benchmark, &what).collect();
        let subjects = distinct(of.iter().map(|series| &series.subject));
        writeln!(text, "\n{}, {}:\n", capital(&what), of[0].unit).ok();
        writeln!(text, "| | {} |", subjects.join(" | ")).ok();
        writeln!(text, "|---|{}", "---|".repeat(subjects.len())).ok();
        for case in distinct(of.iter().map(|series| &series.case)) {
            let cells = subjects.iter().map(|subject| {
                let series = of.iter().find(|s| s.case == case && s.subject == *subject);
                series.map_or(String::new(), |series| cell(series))
            });
            let cells: Vec<_> = cells.collect();
            writeln!(text, "| {case} | {} |", cells.join(" | ")).ok();
        }
    }
    text
}

/// The measurements of a benchmark, in order.
pub fn whats(found: &Findings, benchmark: &str) -> Vec<String> {
    let of = found
        .series
        .iter()
        .filter(|series| series.benchmark == benchmark);
    distinct(of.map(|series| &series.what))
}

/// The series of one thing that was measured.
pub fn series<'a>(
    found: &'a Findings,
    benchmark: &'a str,
    what: &'a str,
) -> impl Iterator<Item = &'a Series> {
    found
        .series
        .iter()
        .filter(move |s| s.benchmark == benchmark && s.what == what)
}

/// Each value once, in the order of appearance.
pub fn distinct<'a>(all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for one in all {
        if !found.contains(one) {
            found.push(one.clone());
        }
    }
    found
}

fn cell(series: &Series) -> String {
    let of = spread(&series.values);
    let mut text = number(of.median);
    if series.values.len() > 1 {
        text += &format!(" ({} to {})", number(of.least), number(of.most));
    }
    // For one measurement per repetition, many repetitions show the same.
    let p99 = if series.values.len() >= 100 {
        let mut sorted = series.values.clone();
        sorted.sort_by(f64::total_cmp);
        quantile(&sorted, 0.99)
    } else {
        spread(&series.p99).median
    };
    if !p99.is_nan() {
        text += &format!("; p99 {} ms", number(p99));
    }
    text
}

fn number(value: f64) -> String {
    match value.abs() {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
