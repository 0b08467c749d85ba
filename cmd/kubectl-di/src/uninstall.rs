use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, ensure};
use clap::Args;
use di_api::{Phase, names};
use di_client::{
    Cluster, Deadline, DryRun, Flavour, Job, Remains, Target, await_deletion, remains, remove,
};

use crate::{
    args::limit, dry_run::DryRunFlag, globals::Globals, output::report, setup::in_system_namespace,
    waiting::WaitUnlessTold,
};

/// Remove the orchestrator from the cluster.
///
/// The definitions stay, and with them every DIJob and AggregatorConfig, unless --delete-crds is given. Jobs that have not ended would go on
/// without anybody looking after them, so they must be deleted before, which --delete-jobs does. Where only the admission checks are
/// installed, another operator looks after them, and they stay. The namespace stays where Deployments of others are in it.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag
#[command(after_help = "Examples:
  # Show what would be deleted
  kubectl di uninstall --dry-run=client

  # Remove it, and leave the definitions and what has ended
  kubectl di uninstall

  # Remove everything, jobs and definitions too, without being asked
  kubectl di uninstall --delete-jobs --delete-crds -y")]
pub struct Uninstall {
    /// Delete all DIJobs of all namespaces first
    #[arg(long)]
    delete_jobs: bool,
    /// Delete the definitions too, and with them all AggregatorConfigs
    #[arg(long)]
    delete_crds: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    waiting: WaitUnlessTold,
    /// How long to wait in all; 0 means without limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = limit)]
    timeout: Duration,
}

/// What goes, in this order; the jobs must be gone before the rest.
struct Plan {
    jobs: Vec<Target>,
    own: Vec<Target>,
    /// What takes something of the users with it.
    last: Vec<Target>,
    /// What stays, and why.
    kept: Vec<String>,
}

impl Uninstall {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        in_system_namespace(globals)?;
        let cluster = globals.connect().await?;
        let found = remains(&cluster).await?;
        ensure!(
            !found.is_empty(),
            "DI Orchestrator is not installed in this cluster"
        );
        let flavour = found.flavour;
        let plan = self.plan(found)?;
        if self.dry_run.is_real() && !self.yes {
            ask(&plan)?;
        }
        let deadline = Deadline::after(Some(self.timeout));
        // The orchestrator ends its jobs in order, so it goes after them.
        let Some(jobs) = self.delete(&cluster, &plan.jobs, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        if let Err(error) = gone(&cluster, jobs, deadline).await {
            report(&error);
            eprintln!(
                "the orchestrator was left as it is, to end its jobs; the same command goes on from there"
            );
            return Ok(ExitCode::FAILURE);
        }
        let Some(mut going) = self.delete(&cluster, &plan.own, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        let again = match self.look_again(&cluster, flavour, &plan.last).await {
            Ok(again) => again,
            Err(error) => {
                report(&error);
                eprintln!("{}", self.so_far());
                return Ok(ExitCode::FAILURE);
            }
        };
        let plan = again.as_ref().unwrap_or(&plan);
        let Some(last) = self.delete(&cluster, &plan.last, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        going.extend(last);
        for kept in &plan.kept {
            eprintln!("{kept}");
        }
        if self.waiting.is_wanted() {
            gone(&cluster, going, deadline).await?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The plan as it is after the question and the wait: meanwhile users went on. Nothing goes last that was not `named` before; nothing is
    /// looked at where nothing was deleted.
    ///
    /// # Errors
    /// Those of [`Self::plan`].
    async fn look_again(
        &self,
        cluster: &Cluster,
        flavour: Flavour,
        named: &[Target],
    ) -> Result<Option<Plan>> {
        if !self.dry_run.is_real() {
            return Ok(None);
        }
        let mut plan = self.plan(Remains {
            // What told it may be gone.
            flavour,
            ..remains(cluster).await?
        })?;
        plan.last
            .retain(|target| named.iter().any(|one| told(one) == told(target)));
        Ok(Some(plan))
    }

    /// What is to be deleted.
    ///
    /// # Errors
    /// When something of the users would be lost, or left alone, that they did not name.
    fn plan(&self, remains: Remains) -> Result<Plan> {
        let jobs = &remains.jobs;
        let others_run_them = remains.flavour == Flavour::WebhookOnly;
        ensure!(
            others_run_them || jobs.iter().all(has_ended) || self.delete_jobs,
            "these DIJobs have not ended, and nobody would look after them: {}; delete them, or pass --delete-jobs",
            some(jobs.iter().filter(|job| !has_ended(job)))
        );
        ensure!(
            jobs.is_empty() || self.delete_jobs || !self.delete_crds,
            "these DIJobs would go with their definition: {}; delete them, or pass --delete-jobs",
            some(jobs.iter())
        );
        let left = self.left(&remains);
        let mut plan = Plan {
            jobs: Vec::new(),
            own: remains.own,
            last: Vec::new(),
            kept: Vec::new(),
        };
        if self.delete_jobs {
            plan.jobs = jobs.iter().map(Target::from).collect();
        }
        match remains.namespace {
            Some(namespace) if !left.is_empty() => {
                plan.kept.push(format!(
                    "{} kept: it has {}",
                    told(&namespace),
                    left.join(" and ")
                ));
            }
            namespace => plan.last.extend(namespace),
        }
        if self.delete_crds {
            plan.last.extend(remains.definitions);
        } else {
            let kept = remains.definitions.iter();
            plan.kept
                .extend(kept.map(|one| format!("{} kept: see --delete-crds", told(one))));
        }
        Ok(plan)
    }

    /// What is left in the orchestrator's namespace of users and of others, and would go with it.
    fn left(&self, remains: &Remains) -> Vec<String> {
        let system = names::SYSTEM_NAMESPACE;
        let (jobs, configs) = (&remains.jobs, &remains.configs);
        let mut left = Vec::new();
        if !self.delete_jobs && jobs.iter().any(|job| job.namespace() == system) {
            left.push("DIJobs".to_owned());
        }
        if !self.delete_crds && configs.iter().any(|(namespace, _)| namespace == system) {
            left.push("AggregatorConfigs".to_owned());
        }
        if !remains.others.is_empty() {
            left.push(format!("other Deployments: {}", remains.others.join(", ")));
        }
        left
    }

    /// Deletes some, and returns those that may still be there, with their UIDs; nothing when the server refused one, which is told.
    async fn delete<'a>(
        &self,
        cluster: &Cluster,
        targets: &'a [Target],
        out: &mut impl Write,
    ) -> Result<Option<Going<'a>>> {
        let mut going = Vec::new();
        for target in targets {
            if self.dry_run.get() != DryRun::Client {
                let dry_run = self.dry_run.get() == DryRun::Server;
                match remove(cluster, target, dry_run).await {
                    Ok(uid) => going.push((target, uid)),
                    Err(error) => {
                        report(&error.into());
                        eprintln!("{}", self.so_far());
                        return Ok(None);
                    }
                }
            }
            let from = match &target.namespace {
                Some(namespace) => format!(" from {namespace} namespace"),
                None => String::new(),
            };
            let deleted = format!("deleted{from}{}", self.dry_run.suffix());
            writeln!(out, "{} {deleted}", told(target))?;
        }
        out.flush()?;
        if !self.dry_run.is_real() {
            going.clear();
        }
        Ok(Some(going))
    }

    /// No partial effects without saying so.
    fn so_far(&self) -> &'static str {
        if self.dry_run.is_real() {
            "only what is named above was deleted; the same command goes on from there"
        } else {
            "nothing was deleted"
        }
    }
}

/// Objects that were deleted, with their UIDs, and may still be there.
type Going<'a> = Vec<(&'a Target, Option<String>)>;

async fn gone(cluster: &Cluster, going: Going<'_>, deadline: Deadline) -> Result<()> {
    for (target, uid) in going {
        await_deletion(cluster, target, uid.as_deref(), deadline).await?;
    }
    Ok(())
}

/// Tells what goes, and fails unless that is wanted.
fn ask(plan: &Plan) -> Result<()> {
    ensure!(
        io::stdin().is_terminal(),
        "uninstall asks before it deletes anything; where nobody can answer, pass --yes"
    );
    eprintln!("This deletes:");
    for target in plan.jobs.iter().chain(&plan.own).chain(&plan.last) {
        let all = match target.api.kind.as_str() {
            "Namespace" => " and everything in it",
            "CustomResourceDefinition" => " and every object of that kind",
            _ => "",
        };
        let within = target
            .namespace
            .iter()
            .map(|name| format!(" of namespace {name}"));
        eprintln!("  {}{}{all}", told(target), within.collect::<String>());
    }
    eprint!("Go on? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    ensure!(
        matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"),
        "nothing was deleted"
    );
    Ok(())
}

fn has_ended(job: &Job) -> bool {
    job.status.phase.is_some_and(Phase::is_terminal)
}

/// A few of many, by namespace and name.
fn some<'a>(jobs: impl Iterator<Item = &'a Job>) -> String {
    const FEW: usize = 3;
    let mut names: Vec<_> = jobs
        .map(|job| format!("{}/{}", job.namespace(), job.name()))
        .take(FEW + 1)
        .collect();
    if names.len() > FEW {
        names.truncate(FEW);
        names.push("...".to_owned());
    }
    names.join(", ")
}

fn told(target: &Target) -> String {
    let mut kind = target.api.kind.to_lowercase();
    if !target.api.group.is_empty() {
        kind = format!("{kind}.{}", target.api.group);
    }
    format!("{kind} {:?}", target.name)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use di_client::Job;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        verb: Uninstall,
    }

    fn uninstall(flags: &[&str]) -> Uninstall {
        Words::parse_from([&["uninstall"], flags].concat()).verb
    }

    fn job(phase: &str) -> Job {
        Job::from(json!({
            "metadata": {"namespace": "n", "name": phase.to_lowercase()}, "status": {"phase": phase},
        }))
    }

    /// What is left of one with a namespace and a definition, whatever their kinds are called here.
    fn remains(phases: &[&str], configs: &[&str]) -> Remains {
        let of = |name: &str| Target {
            name: name.to_owned(),
            ..Target::from(&job("x"))
        };
        Remains {
            flavour: Flavour::Whole,
            own: vec![of("own")],
            namespace: Some(of("namespace")),
            others: Vec::new(),
            definitions: vec![of("definition")],
            jobs: phases.iter().map(|phase| job(phase)).collect(),
            configs: configs
                .iter()
                .map(|namespace| ((*namespace).to_owned(), "c".to_owned()))
                .collect(),
        }
    }

    fn rest(plan: &Plan) -> Vec<&str> {
        plan.own
            .iter()
            .chain(&plan.last)
            .map(|target| target.name.as_str())
            .collect()
    }

    #[test]
    fn nothing_of_the_users_goes_unasked() {
        let plan = uninstall(&[])
            .plan(remains(&["Succeeded"], &["n"]))
            .unwrap();
        assert_eq!(rest(&plan), ["own", "namespace"]);
        assert!(plan.jobs.is_empty());
        let plan = uninstall(&[]).plan(remains(&[], &["di-system"])).unwrap();
        assert_eq!(rest(&plan), ["own"]);
        assert!(plan.kept[0].ends_with("kept: it has AggregatorConfigs"));
        let plan = uninstall(&["--delete-crds"]).plan(remains(&[], &["di-system"]));
        assert_eq!(rest(&plan.unwrap()), ["own", "namespace", "definition"]);
    }

    #[test]
    fn the_namespace_stays_where_ended_jobs_in_it_are_left() {
        let ended = |configs: &[&str]| {
            let mut remains = remains(&["Failed"], configs);
            remains.jobs.push(Job::from(json!({
                "metadata": {"namespace": "di-system", "name": "j"}, "status": {"phase": "Succeeded"},
            })));
            remains
        };
        for (configs, why) in [
            (&["n"][..], "kept: it has DIJobs"),
            (&["di-system"], "kept: it has DIJobs and AggregatorConfigs"),
        ] {
            let plan = uninstall(&[]).plan(ended(configs)).unwrap();
            assert_eq!(rest(&plan), ["own"]);
            assert!(plan.kept[0].ends_with(why), "{:?}", plan.kept);
        }
        let plan = uninstall(&["--delete-jobs"]).plan(ended(&[])).unwrap();
        assert_eq!(rest(&plan), ["own", "namespace"]);
        assert_eq!(plan.jobs.len(), 2);
    }

    #[test]
    fn where_others_run_the_jobs_they_and_what_runs_them_stay() {
        let mut remains = remains(&["Running"], &[]);
        remains.flavour = Flavour::WebhookOnly;
        remains.others = vec!["di-operator".to_owned(), "di-server".to_owned()];
        let refused = uninstall(&["--delete-crds"]).plan(remains.clone());
        assert!(refused.is_err(), "they would go with their definition");
        let plan = uninstall(&[]).plan(remains).unwrap();
        assert_eq!(rest(&plan), ["own"]);
        assert!(plan.jobs.is_empty());
        let why = "kept: it has other Deployments: di-operator, di-server";
        assert!(plan.kept[0].ends_with(why), "{:?}", plan.kept);
    }

    #[test]
    fn jobs_go_only_when_that_is_said() {
        for (flags, phases) in [
            (&[][..], &["Running"][..]),
            (&["--delete-crds"], &["Failed"]),
        ] {
            let refused = uninstall(flags).plan(remains(phases, &[]));
            let said = refused.err().map(|error| error.to_string());
            assert!(said.is_some_and(|said| said.contains("n/")), "{flags:?}");
            let flags = [flags, &["--delete-jobs"]].concat();
            let plan = uninstall(&flags).plan(remains(phases, &[])).unwrap();
            assert_eq!(plan.jobs.len(), 1, "{flags:?}");
        }
    }
}
