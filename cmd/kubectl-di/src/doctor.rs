use std::{io::Write, process::ExitCode};

use anyhow::Result;
use clap::Args;
use di_client::{Finding, State, VERSION, examine};
use serde_json::{Value, json};

use crate::{globals::Globals, output, version::DataFormat};

/// Find out why the orchestrator does not do what it should, and what helps.
///
/// Looks at versions, definitions, the orchestrator's pods, webhooks and certificates, leader and replica endpoint, and at what you may do.
/// Exits with 1 when something is broken.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Look at everything
  kubectl di doctor

  # As somebody else, in another namespace
  kubectl di doctor -n team-rl --as alice

  # For scripts
  kubectl di doctor -o json")]
pub struct Doctor {
    /// Another form than text
    #[arg(short, long)]
    output: Option<DataFormat>,
}

impl Doctor {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        let cluster = globals.connect().await?;
        let findings = examine(&cluster, VERSION).await;
        let broken = findings.iter().filter(|f| f.state == State::Error).count();
        match self.output {
            Some(DataFormat::Json) => output::json(out, &data(&findings))?,
            Some(DataFormat::Yaml) => output::yaml(out, &data(&findings))?,
            None => out.write_all(text(&findings).as_bytes())?,
        }
        out.flush()?;
        Ok(if broken > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Ok => "ok",
        State::Unknown => "unknown",
        State::Warning => "warning",
        State::Error => "error",
    }
}

fn data(findings: &[Finding]) -> Value {
    let findings: Vec<_> = findings
        .iter()
        .map(|finding| {
            let mut one = json!({
                "check": finding.check,
                "state": word(finding.state),
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

fn text(findings: &[Finding]) -> String {
    let count = |state| findings.iter().filter(|f| f.state == state).count();
    let end = match (count(State::Error), count(State::Warning)) {
        (0, 0) => "\nEverything that could be looked at is well.\n".to_owned(),
        (broken, doubtful) => format!("\nBroken: {broken}. Doubtful: {doubtful}.\n"),
    };
    findings.iter().map(lines).chain([end]).collect()
}

/// A finding, with its remedy below it.
fn lines(finding: &Finding) -> String {
    let Finding {
        check,
        state,
        message,
        remedy,
    } = finding;
    let found = format!("{:<9}{check:<14}{message}\n", word(*state));
    match remedy {
        Some(remedy) => format!("{found}{:23}-> {remedy}\n", ""),
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_stand_below_what_they_are_for() {
        let finding = |state, remedy: Option<&str>| Finding {
            check: "webhooks",
            state,
            message: "m".to_owned(),
            remedy: remedy.map(str::to_owned),
        };
        let found = [finding(State::Ok, None), finding(State::Error, Some("r"))];
        assert_eq!(
            text(&found),
            "ok       webhooks      m
error    webhooks      m
                       -> r

Broken: 1. Doubtful: 0.
"
        );
        assert_eq!(data(&found)["findings"][1]["remedy"], "r");
    }
}
