//! The roles that train without others.

use std::process::ExitCode;

use di_runtime::{
    Result,
    beside::beside,
    checkpoint::Keeper,
    env, http,
    life::Gate,
    outcome::Outcome,
    serial,
    server::work_behind,
    shutdown::Shutdown,
    sweep::{Trial, tell},
    training::Goal,
};

use crate::{args::AloneArgs, exit_code, open};

/// Trains, and says how it ended.
pub async fn serial(seed: u64, args: AloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let life = Gate::running();
    let goal = args.goal.goal(seed);
    let training = train(goal, args, &life, &mut shutdown);
    let outcome = work_behind(&life, env::port(), Box::pin(training)).await?;
    Ok(exit_code(outcome))
}

/// Trains with a seed of a sweep, and tells its coordinator how that ended.
pub async fn trial(seed: u64, args: AloneArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let (coordinator, client) = (env::coordinator()?, http::client()?);
    let gate = Gate::running();
    tracing::info!("training with seed {seed}");
    let goal = args.goal.goal(seed);
    let trial = async {
        let outcome = train(goal, args, &gate, &mut shutdown).await?;
        if matches!(outcome, Outcome::Interrupted | Outcome::Ended) {
            // By either way its replacement goes on: the sweep waits for each seed.
            return Ok(exit_code(Outcome::Interrupted));
        }
        let solved = outcome == Outcome::Solved;
        tokio::select! {
            () = tell(&client, &coordinator, Trial { seed, solved }) => {}
            () = gate.exiting() => {}
            () = shutdown.requested() => {}
        }
        Ok(ExitCode::SUCCESS)
    };
    work_behind(&gate, env::port(), Box::pin(trial)).await
}

/// Checkpoints, if there are to be any, go to the folder of the job.
async fn train(
    goal: Goal,
    args: AloneArgs,
    gate: &Gate,
    shutdown: &mut Shutdown,
) -> Result<Outcome> {
    let sampling = args.sampling.sampling();
    let (of, keep) = ((goal.game, goal.seed), args.keep.keep());
    let keeper = match args.storage {
        Some(storage) => {
            let Some(storage) = open(storage, shutdown).await? else {
                return Ok(Outcome::Interrupted);
            };
            let folder = storage.root().join(env::job_folder()?);
            let keeper = move || Keeper::open(storage, &folder, of, keep);
            Some(beside(keeper).await?)
        }
        None => None,
    };
    let settings = args.learning.settings();
    let shutdown = shutdown.requested();
    let (outcome, _) = serial::run(goal, settings, sampling, keeper, gate, shutdown).await?;
    Ok(outcome)
}
