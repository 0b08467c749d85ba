use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Finding, FindingState, VERSION, run_checks};
use serde_json::{Value, json};

use crate::{
    flags::globals::Globals,
    output::{self, format::DataFormat},
};

/// Check the orchestrator for problems, and suggest remedies.
///
/// Checks versions, custom resource definitions, pods, webhooks, certificates, leader and replica
/// endpoint of the orchestrator, its permissions to use Kueue if the cluster serves it, its gang
/// scheduler if it has one, and your permissions. The exit code is 1 if a check finds an error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Run all checks
  kubectl di doctor

  # Run the checks as another user in another namespace
  kubectl di doctor -n team-rl --as alice

  # For scripts
  kubectl di doctor -o json")]
pub struct Doctor {
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<DataFormat>,
}

impl Doctor {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let findings = run_checks(&cluster, VERSION).await;
        let errors = findings
            .iter()
            .filter(|f| f.state == FindingState::Error)
            .count();
        match self.output {
            Some(DataFormat::Json) => output::print_json(out, &to_json(&findings))?,
            Some(DataFormat::Yaml) => output::print_yaml(out, &to_json(&findings))?,
            None => out.write_all(to_text(&findings).as_bytes())?,
        }
        out.flush()?;
        Ok(if errors > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn state_name(state: FindingState) -> &'static str {
    match state {
        FindingState::Ok => "ok",
        FindingState::Unknown => "unknown",
        FindingState::Warning => "warning",
        FindingState::Error => "error",
    }
}

fn to_json(findings: &[Finding]) -> Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            let mut one = json!({
                "check": finding.check,
                "state": state_name(finding.state),
                "message": finding.message,
            });
            if let Some(remedy) = &finding.remedy {
                one["remedy"] = remedy.as_str().into();
            }
            one
        })
        .collect();
    json!({ "findings": findings })
}

fn to_text(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    let summary = match (count(FindingState::Error), count(FindingState::Warning)) {
        (0, 0) => match count(FindingState::Unknown) {
            0 => "\nAll checks passed.\n".to_owned(),
            number => format!("\nFound no problems. Checks that could not run: {number}.\n"),
        },
        (errors, warnings) => format!("\nErrors: {errors}. Warnings: {warnings}.\n"),
    };
    findings
        .iter()
        .map(finding_lines)
        .chain([summary])
        .collect()
}

/// The line of a finding, and the line of its remedy.
fn finding_lines(finding: &Finding) -> String {
    let Finding {
        check,
        state,
        message,
        remedy,
    } = finding;
    let found = format!("{:<9}{check:<14}{message}\n", state_name(*state));
    match remedy {
        Some(remedy) => format!("{found}{:23}-> {remedy}\n", ""),
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_is_printed_below_its_finding() {
        let finding = |state, remedy: Option<&str>| Finding {
            check: "webhooks",
            state,
            message: "m".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let found = [
            finding(FindingState::Ok, None),
            finding(FindingState::Error, Some("r")),
        ];
        assert_eq!(
            to_text(&found),
            "ok       webhooks      m
error    webhooks      m
                       -> r

Errors: 1. Warnings: 0.
"
        );
        assert_eq!(to_json(&found)["findings"][1]["remedy"], "r");
    }

    #[test]
    fn summary_without_problems_counts_checks_that_could_not_run() {
        let finding = |state| Finding {
            check: "webhooks",
            state,
            message: "m".to_owned(),
            remedy: None,
        };
        let all = to_text(&[finding(FindingState::Ok)]);
        assert!(all.ends_with("\nAll checks passed.\n"), "{all}");
        let some = to_text(&[finding(FindingState::Ok), finding(FindingState::Unknown)]);
        assert!(some.ends_with("Checks that could not run: 1.\n"), "{some}");
    }
}
