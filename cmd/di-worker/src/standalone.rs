//! The roles that train without others.

use std::process::ExitCode;

use di_runtime::{
    Result,
    blocking::run_blocking,
    checkpoint::CheckpointStore,
    env, http,
    lifecycle::PauseGate,
    outcome::Outcome,
    serial,
    server::run_with_lifecycle,
    shutdown::Shutdown,
    sweep::{Trial, report_trial},
    training::Goal,
};

use crate::{args::StandaloneArgs, exit_code, open_storage};

/// Trains, and says how it ended.
pub async fn run_serial(seed: u64, args: StandaloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let life = PauseGate::new_running();
    let goal = args.goal.to_goal(seed);
    let training = train_standalone(goal, args, &life, &mut shutdown);
    let outcome = run_with_lifecycle(&life, env::port_from_env(), Box::pin(training)).await?;
    Ok(exit_code(outcome))
}

/// Trains with a seed of a sweep, and tells its coordinator how that ended.
pub async fn run_trial(seed: u64, args: StandaloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let (coordinator, client) = (env::coordinator_url()?, http::new_client()?);
    let gate = PauseGate::new_running();
    tracing::info!("training with seed {seed}");
    let goal = args.goal.to_goal(seed);
    let trial = async {
        let outcome = train_standalone(goal, args, &gate, &mut shutdown).await?;
        if matches!(outcome, Outcome::Interrupted | Outcome::Ended) {
            // By either way its replacement goes on: the sweep waits for each seed.
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

/// Checkpoints, if there are to be any, go to the folder of the job.
async fn train_standalone(
    goal: Goal,
    args: StandaloneArgs,
    gate: &PauseGate,
    shutdown: &mut Shutdown,
) -> Result<Outcome> {
    let sampling = args.sampling.to_sampling();
    let (of, keep) = ((goal.game, goal.seed), args.keep.to_policy());
    let keeper = match args.storage {
        Some(storage) => {
            let Some(storage) = open_storage(storage, shutdown).await? else {
                return Ok(Outcome::Interrupted);
            };
            let folder = storage.root().join(env::job_folder()?);
            let keeper = move || CheckpointStore::open(storage, &folder, of, keep);
            Some(run_blocking(keeper).await?)
        }
        None => None,
    };
    let settings = args.learning.to_settings();
    let shutdown = shutdown.wait_requested();
    let (outcome, _) = serial::run(goal, settings, sampling, keeper, gate, shutdown).await?;
    Ok(outcome)
}
