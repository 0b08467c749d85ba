use std::{
    io::{self, BufRead, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use clap::Args;
use di_api::{Phase, names};
use di_client::{
    Cluster, Deadline, DryRun, InstallVariant, Job, Leftovers, ObjectRef, delete_leftover,
    find_leftovers, find_orchestrator, wait_for_deletion,
};

use crate::{
    flags::{dry_run::DryRunFlag, globals::Globals, parsers::parse_timeout, wait::WaitByDefault},
    output::{quoted_name, report_error},
    verbs::setup::check_system_namespace,
};

/// Remove the orchestrator from the cluster.
///
/// The custom resource definitions are kept, with every DIJob and AggregatorConfig, unless
/// --delete-crds is given. Jobs that have not ended must be deleted first, because nothing would
/// manage them; --delete-jobs does so. If only the admission webhooks are installed, jobs are kept,
/// because another operator manages them. The namespace is kept if it has other Deployments.
#[derive(Debug, Args)]
#[allow(clippy::struct_excessive_bools)] // each is a flag
#[command(after_help = "Examples:
  # Print the objects that would be deleted
  kubectl di uninstall --dry-run=client

  # Remove the orchestrator; keep the definitions and ended jobs
  kubectl di uninstall

  # Remove everything including jobs and definitions, without confirmation
  kubectl di uninstall --delete-jobs --delete-crds -y")]
pub struct Uninstall {
    /// Delete all DIJobs in all namespaces first
    #[arg(long)]
    delete_jobs: bool,
    /// Also delete the custom resource definitions, and with them all AggregatorConfigs
    #[arg(long)]
    delete_crds: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    dry_run: DryRunFlag,
    #[command(flatten)]
    waiting: WaitByDefault,
    /// The length of time to wait before giving up. Zero means no limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_timeout)]
    timeout: Duration,
}

/// The objects to delete, in this order; all jobs must be deleted before the rest.
struct DeletionPlan {
    jobs: Vec<ObjectRef>,
    own: Vec<ObjectRef>,
    /// Objects with user data: the namespace and the definitions.
    last: Vec<ObjectRef>,
    /// The messages for objects that are kept.
    kept: Vec<String>,
}

impl Uninstall {
    pub async fn run(self, globals: &Globals, out: &mut impl Write) -> Result<ExitCode> {
        check_system_namespace(globals)?;
        let cluster = globals.connect().await?;
        if let Some(release) = find_orchestrator(&cluster).await?.helm_release() {
            bail!(
                "Helm manages the orchestrator; to uninstall it: {}",
                release.uninstall_command()
            );
        }
        let found = find_leftovers(&cluster).await?;
        ensure!(
            !found.is_empty(),
            "DI Orchestrator is not installed in this cluster"
        );
        let variant = found.variant;
        let plan = self.build_plan(found)?;
        if self.dry_run.is_real() && !self.yes {
            confirm_plan(&plan)?;
        }
        let deadline = Deadline::after(Some(self.timeout));
        // The orchestrator must finish the deletion of its jobs, so it is deleted after them.
        let Some(jobs) = self.delete_targets(&cluster, &plan.jobs, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        if let Err(error) = wait_for_deletions(&cluster, jobs, deadline).await {
            report_error(&error);
            eprintln!(
                "the orchestrator is not deleted until its jobs are; run the same command to continue"
            );
            return Ok(ExitCode::FAILURE);
        }
        let Some(mut pending) = self.delete_targets(&cluster, &plan.own, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        let new_plan = match self.replan(&cluster, variant, &plan.last).await {
            Ok(new_plan) => new_plan,
            Err(error) => {
                report_error(&error);
                eprintln!("{}", self.partial_result());
                return Ok(ExitCode::FAILURE);
            }
        };
        let plan = new_plan.as_ref().unwrap_or(&plan);
        let Some(last) = self.delete_targets(&cluster, &plan.last, out).await? else {
            return Ok(ExitCode::FAILURE);
        };
        pending.extend(last);
        for kept in &plan.kept {
            eprintln!("{kept}");
        }
        if self.waiting.is_wanted() {
            wait_for_deletions(&cluster, pending, deadline).await?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Builds the plan again after the confirmation and the wait, as users may have created
    /// objects.
    ///
    /// The last step deletes only objects that were `named` in the confirmed plan. A dry run needs
    /// no new plan.
    ///
    /// # Errors
    /// See [`Self::build_plan`].
    async fn replan(
        &self,
        cluster: &Cluster,
        variant: InstallVariant,
        named: &[ObjectRef],
    ) -> Result<Option<DeletionPlan>> {
        if !self.dry_run.is_real() {
            return Ok(None);
        }
        let mut plan = self.build_plan(Leftovers {
            // The Deployment that the variant was read from may be deleted already.
            variant,
            ..find_leftovers(cluster).await?
        })?;
        plan.last.retain(|target| {
            named
                .iter()
                .any(|one| quoted_name(one) == quoted_name(target))
        });
        Ok(Some(plan))
    }

    /// Decides which objects are deleted.
    ///
    /// # Errors
    /// Jobs would be lost or left unmanaged, and the flag that allows it is not set.
    fn build_plan(&self, remains: Leftovers) -> Result<DeletionPlan> {
        let jobs = &remains.jobs;
        let others_run_them = remains.variant == InstallVariant::WebhookOnly;
        ensure!(
            others_run_them || jobs.iter().all(is_finished) || self.delete_jobs,
            "these DIJobs have not ended and would no longer be managed: {}; delete them, or pass --delete-jobs",
            first_names(jobs.iter().filter(|job| !is_finished(job)))
        );
        ensure!(
            jobs.is_empty() || self.delete_jobs || !self.delete_crds,
            "these DIJobs would be deleted with their definition: {}; delete them, or pass --delete-jobs",
            first_names(jobs.iter())
        );
        let left = self.left_in_namespace(&remains);
        let mut plan = DeletionPlan {
            jobs: Vec::new(),
            own: remains.own,
            last: Vec::new(),
            kept: Vec::new(),
        };
        if self.delete_jobs {
            plan.jobs = jobs.iter().map(ObjectRef::from).collect();
        }
        match remains.namespace {
            Some(namespace) if !left.is_empty() => {
                plan.kept.push(format!(
                    "{} kept: it has {}",
                    quoted_name(&namespace),
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
                .extend(kept.map(|one| format!("{} kept: see --delete-crds", quoted_name(one))));
        }
        Ok(plan)
    }

    /// The other objects in the namespace, which would be deleted with it.
    fn left_in_namespace(&self, remains: &Leftovers) -> Vec<String> {
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

    /// Deletes objects and returns those to wait for, with their UIDs.
    ///
    /// Returns none if the server rejected a deletion; the error is printed then.
    async fn delete_targets<'a>(
        &self,
        cluster: &Cluster,
        targets: &'a [ObjectRef],
        out: &mut impl Write,
    ) -> Result<Option<PendingDeletions<'a>>> {
        let mut pending = Vec::new();
        for target in targets {
            if self.dry_run.get() != DryRun::Client {
                let dry_run = self.dry_run.get() == DryRun::Server;
                match delete_leftover(cluster, target, dry_run).await {
                    Ok(uid) => pending.push((target, uid)),
                    Err(error) => {
                        report_error(&error.into());
                        eprintln!("{}", self.partial_result());
                        return Ok(None);
                    }
                }
            }
            let from = match &target.namespace {
                Some(namespace) => format!(" from {namespace} namespace"),
                None => String::new(),
            };
            let deleted = format!("deleted{from}{}", self.dry_run.message_suffix());
            writeln!(out, "{} {deleted}", quoted_name(target))?;
        }
        out.flush()?;
        if !self.dry_run.is_real() {
            pending.clear();
        }
        Ok(Some(pending))
    }

    /// Describes a partial result.
    fn partial_result(&self) -> &'static str {
        if self.dry_run.is_real() {
            "only the objects above were deleted; run the same command to continue"
        } else {
            "nothing was deleted"
        }
    }
}

/// Objects that are being deleted, with their UIDs.
type PendingDeletions<'a> = Vec<(&'a ObjectRef, Option<String>)>;

async fn wait_for_deletions(
    cluster: &Cluster,
    pending: PendingDeletions<'_>,
    deadline: Deadline,
) -> Result<()> {
    for (target, uid) in pending {
        wait_for_deletion(cluster, target, uid.as_deref(), deadline).await?;
    }
    Ok(())
}

/// Prints the plan and asks for confirmation; fails unless the user confirms.
fn confirm_plan(plan: &DeletionPlan) -> Result<()> {
    ensure!(
        io::stdin().is_terminal(),
        "uninstall asks for confirmation, but standard input is not a terminal; pass --yes to skip it"
    );
    eprintln!("This deletes:");
    for target in plan.jobs.iter().chain(&plan.own).chain(&plan.last) {
        let contents = match target.api.kind.as_str() {
            "Namespace" => " and everything in it",
            "CustomResourceDefinition" => " and every object of that kind",
            _ => "",
        };
        let within = target
            .namespace
            .iter()
            .map(|name| format!(" of namespace {name}"));
        eprintln!(
            "  {}{}{contents}",
            quoted_name(target),
            within.collect::<String>()
        );
    }
    eprint!("Do you want to continue? (y/N): ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    ensure!(
        matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"),
        "nothing was deleted"
    );
    Ok(())
}

fn is_finished(job: &Job) -> bool {
    job.status.phase.is_some_and(Phase::is_terminal)
}

/// The first three jobs, as namespace and name.
fn first_names<'a>(jobs: impl Iterator<Item = &'a Job>) -> String {
    const MAX_NAMES: usize = 3;
    let mut names: Vec<_> = jobs
        .map(|job| format!("{}/{}", job.namespace(), job.name()))
        .take(MAX_NAMES + 1)
        .collect();
    if names.len() > MAX_NAMES {
        names.truncate(MAX_NAMES);
        names.push("...".to_owned());
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use di_client::Job;

    use super::*;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        verb: Uninstall,
    }

    fn uninstall(flags: &[&str]) -> Uninstall {
        TestCli::parse_from([&["uninstall"], flags].concat()).verb
    }

    fn job(namespace: &str, phase: &str) -> Job {
        let job = di_fixtures::Job::test().named(&phase.to_lowercase());
        Job::from(job.in_namespace(namespace).phase(phase).json())
    }

    /// An installed orchestrator with a namespace and a definition.
    fn remains(phases: &[&str], configs: &[&str]) -> Leftovers {
        let of = |name: &str| ObjectRef {
            name: name.to_owned(),
            ..ObjectRef::from(&job("n", "x"))
        };
        Leftovers {
            variant: InstallVariant::Full,
            own: vec![of("own")],
            namespace: Some(of("namespace")),
            others: Vec::new(),
            definitions: vec![of("definition")],
            jobs: phases.iter().map(|phase| job("n", phase)).collect(),
            configs: configs
                .iter()
                .map(|namespace| ((*namespace).to_owned(), "c".to_owned()))
                .collect(),
        }
    }

    fn deleted_names(plan: &DeletionPlan) -> Vec<&str> {
        plan.own
            .iter()
            .chain(&plan.last)
            .map(|target| target.name.as_str())
            .collect()
    }

    #[test]
    fn user_data_is_kept_by_default() {
        let plan = uninstall(&[])
            .build_plan(remains(&["Succeeded"], &["n"]))
            .unwrap();
        assert_eq!(deleted_names(&plan), ["own", "namespace"]);
        assert!(plan.jobs.is_empty());
        let plan = uninstall(&[])
            .build_plan(remains(&[], &["di-system"]))
            .unwrap();
        assert_eq!(deleted_names(&plan), ["own"]);
        assert!(plan.kept[0].ends_with("kept: it has AggregatorConfigs"));
        let plan = uninstall(&["--delete-crds"]).build_plan(remains(&[], &["di-system"]));
        assert_eq!(
            deleted_names(&plan.unwrap()),
            ["own", "namespace", "definition"]
        );
    }

    #[test]
    fn namespace_with_ended_jobs_is_kept() {
        let ended = |configs: &[&str]| {
            let mut remains = remains(&["Failed"], configs);
            remains.jobs.push(job("di-system", "Succeeded"));
            remains
        };
        for (configs, why) in [
            (&["n"][..], "kept: it has DIJobs"),
            (&["di-system"], "kept: it has DIJobs and AggregatorConfigs"),
        ] {
            let plan = uninstall(&[]).build_plan(ended(configs)).unwrap();
            assert_eq!(deleted_names(&plan), ["own"]);
            assert!(plan.kept[0].ends_with(why), "{:?}", plan.kept);
        }
        let plan = uninstall(&["--delete-jobs"])
            .build_plan(ended(&[]))
            .unwrap();
        assert_eq!(deleted_names(&plan), ["own", "namespace"]);
        assert_eq!(plan.jobs.len(), 2);
    }

    #[test]
    fn webhook_only_uninstall_keeps_jobs_and_other_operator() {
        let mut remains = remains(&["Running"], &[]);
        remains.variant = InstallVariant::WebhookOnly;
        remains.others = vec!["di-operator".to_owned(), "di-server".to_owned()];
        let refused = uninstall(&["--delete-crds"]).build_plan(remains.clone());
        assert!(
            refused.is_err(),
            "jobs would be deleted with their definition"
        );
        let plan = uninstall(&[]).build_plan(remains).unwrap();
        assert_eq!(deleted_names(&plan), ["own"]);
        assert!(plan.jobs.is_empty());
        let why = "kept: it has other Deployments: di-operator, di-server";
        assert!(plan.kept[0].ends_with(why), "{:?}", plan.kept);
    }

    #[test]
    fn jobs_are_deleted_only_with_delete_jobs() {
        for (flags, phases) in [
            (&[][..], &["Running"][..]),
            (&["--delete-crds"], &["Failed"]),
        ] {
            let refused = uninstall(flags).build_plan(remains(phases, &[]));
            let message = refused.err().map(|error| error.to_string());
            assert!(message.is_some_and(|text| text.contains("n/")), "{flags:?}");
            let flags = [flags, &["--delete-jobs"]].concat();
            let plan = uninstall(&flags).build_plan(remains(phases, &[])).unwrap();
            assert_eq!(plan.jobs.len(), 1, "{flags:?}");
        }
    }
}
