//! The reference workload: coordinator, collector, learner, aggregator.

mod standalone;
mod args;
mod terminal;

use std::{path::PathBuf, process::ExitCode};

use args::{Args, Command, CoordinatorArgs, LearnerArgs, SamplingArgs, StorageArgs};
use di_runtime::{
    Error, Result,
    aggregator::{Aggregator, AggregatorTimeouts},
    blocking::run_blocking,
    chain,
    collector::Collector,
    coordinator::Coordinator,
    ddp::{self, Limits, RankConfig},
    env::{self, AGGREGATOR_PORT, COLLECTOR_PORT, COORDINATOR_PORT, Environment, LEARNER_PORT},
    idle::{run_idle, release_idle},
    http,
    learner::Learner,
    outcome::Outcome,
    probe::probe_url,
    server::{listen, serve},
    shutdown::Shutdown,
    storage::Storage,
    sweep::{SweepResult, collect_trials},
    tasks::TaskWorker,
};

/// What a process that ends by SIGTERM exits with, as a shell would say it.
const TERMINATED: u8 = 128 + 15;

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse_or_exit();
    tracing_subscriber::fmt()
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .with_target(false)
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(run_command(args.command)).unwrap_or_else(|error| {
        tracing::error!("{}", chain(&error));
        ExitCode::from(error.exit_code())
    });
    // A computation that still runs must not hold up the exit.
    runtime.shutdown_background();
    Ok(code)
}

async fn run_command(command: Command) -> Result<ExitCode> {
    match command {
        Command::Coordinator(args) => run_coordinator(args).await,
        Command::Collector { storage, sampling } => run_collector(storage, sampling).await,
        Command::Learner(args) => run_learner(args).await,
        Command::Aggregator => run_aggregator().await,
        Command::Serial { seed, alone } => standalone::run_serial(seed, alone).await,
        Command::Trial { seed, alone } => standalone::run_trial(seed, alone).await,
        Command::Sweep { trials } => run_sweep(trials).await,
        Command::Hold { memory } => {
            let mut shutdown = Shutdown::install()?;
            // Other bytes than zeros: the kernel gives those away without having them.
            let used = vec![1_u8; usize::from(memory) << 20];
            let listener = listen(own_port()?).await?;
            tracing::info!("holding until told how to end");
            let code = run_idle(listener, shutdown.wait_requested()).await?;
            drop(std::hint::black_box(used));
            Ok(ExitCode::from(code.unwrap_or(TERMINATED)))
        }
        Command::Release { code } => {
            release_idle(own_port()?, code).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Env => {
            print_environment();
            Ok(ExitCode::SUCCESS)
        }
        Command::Terminal => {
            terminal::show_size().await.map_err(Error::Terminal)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Probe { urls } => Ok(probe_all(&urls).await),
    }
}

async fn run_coordinator(args: CoordinatorArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(COORDINATOR_PORT)?;
    let Some(storage) = open_storage(args.storage.storage.clone(), &mut shutdown).await? else {
        return Ok(exit_code(Outcome::Interrupted));
    };
    let listener = listen(environment.port).await?;
    let coordinator = Coordinator::new(args.into(), environment, storage, http::new_client()?);
    let outcome = coordinator.run(listener, shutdown.wait_requested()).await?;
    Ok(exit_code(outcome))
}

fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        // One that was told to end its training has nothing left to do, and must not be started again.
        Outcome::Solved | Outcome::Ended => ExitCode::SUCCESS,
        Outcome::Unsolved | Outcome::TimedOut => ExitCode::FAILURE,
        Outcome::Interrupted => ExitCode::from(TERMINATED),
    }
}

/// What a replica exits with that has not failed. One that is sent away must not say that its work is done: another is to take its place.
fn replica_exit_code(shutdown: &Shutdown) -> ExitCode {
    exit_code(if shutdown.was_requested() {
        Outcome::Interrupted
    } else {
        Outcome::Ended
    })
}

/// Opens the storage, which may take its time; none if the process is asked to end meanwhile.
async fn open_storage(storage: PathBuf, shutdown: &mut Shutdown) -> Result<Option<Storage>> {
    tokio::select! {
        opened = run_blocking(move || Storage::open(&storage)) => opened.map(Some),
        () = shutdown.wait_requested() => Ok(None),
    }
}

async fn run_collector(storage: StorageArgs, sampling: SamplingArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(COLLECTOR_PORT)?;
    let Some(storage) = open_storage(storage.storage, &mut shutdown).await? else {
        return Ok(exit_code(Outcome::Interrupted));
    };
    let collector = Collector::new(environment.clone(), storage, sampling.to_sampling())?;
    serve_replica(&environment, collector, shutdown).await
}

async fn serve_replica(
    environment: &Environment,
    worker: impl TaskWorker,
    mut shutdown: Shutdown,
) -> Result<ExitCode> {
    let listener = listen(environment.port).await?;
    tracing::info!(
        "{} (index {}) listens on port {}, waiting for tasks from {}",
        environment.pod,
        environment.replica_index,
        environment.port,
        environment
            .coordinator
            .as_deref()
            .unwrap_or("the coordinator")
    );
    serve(listener, worker, shutdown.wait_requested()).await?;
    Ok(replica_exit_code(&shutdown))
}

async fn run_learner(args: LearnerArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(LEARNER_PORT)?;
    let Some(storage) = open_storage(args.storage.storage, &mut shutdown).await? else {
        return Ok(exit_code(Outcome::Interrupted));
    };
    let learner = Learner::new(environment.clone(), storage, args.learning.to_settings());
    let Some(place) = RankConfig::from_env()? else {
        return serve_replica(&environment, learner, shutdown).await;
    };
    let limits = Limits {
        meet: args.meet_timeout,
        step: args.rank_timeout,
        ..Limits::default()
    };
    tokio::select! {
        ended = ddp::train_ranks(place, environment, learner, limits) => ended?,
        () = shutdown.wait_requested() => {}
    }
    Ok(replica_exit_code(&shutdown))
}

async fn run_aggregator() -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(AGGREGATOR_PORT)?;
    let listener = listen(environment.port).await?;
    let aggregator = Aggregator::new(http::new_client()?, &environment, AggregatorTimeouts::default());
    aggregator.run(listener, shutdown.wait_requested()).await?;
    Ok(replica_exit_code(&shutdown))
}

async fn run_sweep(trials: u16) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let listener = listen(own_port()?).await?;
    tracing::info!("waiting for {trials} trials");
    let ended = collect_trials(listener, usize::from(trials), shutdown.wait_requested()).await?;
    Ok(match ended {
        SweepResult::All(trials) if trials.values().any(|solved| !solved) => ExitCode::FAILURE,
        SweepResult::All(_) | SweepResult::Ended => ExitCode::SUCCESS,
        SweepResult::Interrupted => ExitCode::from(TERMINATED),
    })
}

fn own_port() -> Result<u16> {
    env::port_from_env().ok_or(Error::MissingVariable("COORDINATOR_PORT"))
}

/// What replicas are given beside names, addresses and ports.
const OF_REPLICAS: [&str; 5] = [
    "DI_REPLICA_INDEX",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "START_RANK",
    "MASTER_ADDR",
];

/// Prints what the orchestrator gives, and no more: the rest is the user's.
fn print_environment() {
    let ours = |name: &str| {
        name.starts_with("KUBERNETES_") || name.ends_with("_PORT") || OF_REPLICAS.contains(&name)
    };
    for (name, value) in std::env::vars().filter(|(name, _)| ours(name)) {
        println!("{name}={value}");
    }
}

async fn probe_all(urls: &[String]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for url in urls {
        let failed = match probe_url(url).await {
            Ok(answer) => {
                println!("{url} {}\n{}", answer.status, answer.body.trim_end());
                !answer.is_success()
            }
            Err(error) => {
                println!("{url} {}", chain(&error));
                true
            }
        };
        if failed {
            code = ExitCode::FAILURE;
        }
    }
    code
}
