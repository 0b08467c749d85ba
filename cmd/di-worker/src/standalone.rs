//! The commands that train in one process.

use std::process::ExitCode;

use di_worker_lib::{
    Result,
    checkpoint::CheckpointStore,
    coordinator::{
        progress::Outcome,
        serial,
        sweep::{Trial, report_trial},
        training::Goal,
    },
    lifecycle::PauseGate,
    protocol::{env, http, server::run_with_lifecycle, shutdown::Shutdown},
    storage::Storage,
};

use crate::{args::StandaloneArgs, exit_code::exit_code};

/// Trains to the end.
pub async fn run_serial(seed: u64, args: StandaloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let gate = PauseGate::new_running();
    let goal = args.goal.to_goal(seed);
    let training = train_standalone(goal, args, &gate, &mut shutdown);
    let outcome = run_with_lifecycle(&gate, env::port_from_env(), Box::pin(training)).await?;
    Ok(exit_code(outcome))
}

/// Trains with one seed of a sweep and reports the result to its coordinator.
pub async fn run_trial(seed: u64, args: StandaloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let (coordinator, client) = (env::coordinator_url()?, http::new_client()?);
    let gate = PauseGate::new_running();
    tracing::info!("training with seed {seed}");
    let goal = args.goal.to_goal(seed);
    let trial = async {
        let outcome = train_standalone(goal, args, &gate, &mut shutdown).await?;
        if matches!(outcome, Outcome::Interrupted | Outcome::Ended) {
            // The replacement of this replica resumes the training: the sweep waits for each seed.
            return Ok(exit_code(Outcome::Interrupted));
        }
        let solved = outcome == Outcome::Solved;
        tokio::select! {
            () = report_trial(&client, &coordinator, Trial { seed, solved }) => {}
            () = gate.wait_for_exit() => {}
            () = shutdown.wait_requested() => {}
        }
        Ok(ExitCode::SUCCESS)
    };
    run_with_lifecycle(&gate, env::port_from_env(), Box::pin(trial)).await
}

/// Trains with optional checkpoints in the folder of the job.
async fn train_standalone(
    goal: Goal,
    args: StandaloneArgs,
    gate: &PauseGate,
    shutdown: &mut Shutdown,
) -> Result<Outcome> {
    let sampling = args.sampling.to_sampling();
    let store = match args.storage {
        Some(storage) => {
            let storage = Storage::open(&storage)?;
            let folder = storage.root().join(env::job_folder()?);
            let keep = args.keep.to_policy();
            Some(CheckpointStore::open(storage, &folder, goal.seed, keep)?)
        }
        None => None,
    };
    let settings = args.learning.to_settings();
    let shutdown = shutdown.wait_requested();
    let (outcome, _) = serial::run(goal, settings, sampling, store, gate, shutdown).await?;
    Ok(outcome)
}
