//! The reference workload: coordinator, collector, learner, aggregator.

mod args;
mod exit_code;
mod standalone;
mod terminal;

use std::{process::ExitCode, time::Duration};

use self::{
    args::{Args, Command, CoordinatorArgs, LearnerArgs, SamplingArgs, StorageArgs},
    exit_code::{TERMINATED, exit_code},
};
use di_worker_lib::{
    Error, Result, chain,
    coordinator::{
        Coordinator,
        progress::Outcome,
        sweep::{SweepResult, collect_trials},
    },
    distributed::{self, RankConfig, Timeouts, aggregator::Aggregator},
    learner::Learner,
    protocol::{
        env::{self, AGGREGATOR_PORT, COLLECTOR_PORT, COORDINATOR_PORT, Environment, LEARNER_PORT},
        http,
        idle::{release_idle, run_idle},
        probe::probe_url,
        server::{listen, serve},
        shutdown::Shutdown,
        tasks::TaskWorker,
    },
    sampler::collector::Collector,
    storage::Storage,
};

/// Time between two polls of an aggregator.
const POLL: Duration = Duration::from_secs(1);

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
    let code = runtime
        .block_on(run_command(args.command))
        .unwrap_or_else(|error| {
            tracing::error!("{}", chain(&error));
            ExitCode::from(error.exit_code())
        });
    // Do not wait for a running computation.
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
        Command::Hold { memory, log_bursts } => {
            let mut shutdown = Shutdown::install()?;
            let bursts = tokio::task::spawn_blocking(move || print_bursts(log_bursts));
            // Non-zero bytes, so that the kernel really allocates the memory.
            let used = vec![1_u8; usize::from(memory) << 20];
            let listener = listen(own_port()?).await?;
            tracing::info!("idle; waiting for a release request or SIGTERM");
            let code = run_idle(listener, shutdown.wait_requested()).await?;
            drop(std::hint::black_box(used));
            if code.is_some() {
                bursts.await.map_err(Error::TaskLost)?;
            }
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

/// Prints bursts of log lines. Each line has its number and is 100 bytes long.
fn print_bursts(bursts: u16) {
    const BURST_LINES: u32 = 120_000;
    for burst in 0..u32::from(bursts) {
        if burst > 0 {
            std::thread::sleep(Duration::from_secs(15));
        }
        for line in burst * BURST_LINES..(burst + 1) * BURST_LINES {
            println!("line {line:<94}");
        }
    }
}

async fn run_coordinator(args: CoordinatorArgs) -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(COORDINATOR_PORT)?;
    let storage = Storage::open(&args.storage.storage)?;
    let listener = listen(environment.port).await?;
    let coordinator = Coordinator::new(args.into(), environment, storage, http::new_client()?);
    let outcome = coordinator.run(listener, shutdown.wait_requested()).await?;
    Ok(exit_code(outcome))
}

/// Exit code of a replica without an error. After a signal it must not be 0: the replica has to be
/// replaced.
fn replica_exit_code(shutdown: &Shutdown) -> ExitCode {
    exit_code(if shutdown.was_requested() {
        Outcome::Interrupted
    } else {
        Outcome::Ended
    })
}

async fn run_collector(storage: StorageArgs, sampling: SamplingArgs) -> Result<ExitCode> {
    let shutdown = Shutdown::install()?;
    let environment = Environment::from_env(COLLECTOR_PORT)?;
    let storage = Storage::open(&storage.storage)?;
    let collector = Collector::new(environment.pod.clone(), storage, sampling.to_sampling())?;
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
    let storage = Storage::open(&args.storage.storage)?;
    let learner = Learner::new(storage, args.learning.to_settings());
    let Some(config) = RankConfig::from_env()? else {
        return serve_replica(&environment, learner, shutdown).await;
    };
    let timeouts = Timeouts {
        rendezvous: args.rendezvous_timeout,
        message: args.rank_timeout,
        ..Timeouts::default()
    };
    tokio::select! {
        ended = distributed::train_ranks(config, environment, learner, timeouts) => ended?,
        () = shutdown.wait_requested() => {}
    }
    Ok(replica_exit_code(&shutdown))
}

async fn run_aggregator() -> Result<ExitCode> {
    let mut shutdown = Shutdown::install()?;
    let environment = Environment::from_env(AGGREGATOR_PORT)?;
    let listener = listen(environment.port).await?;
    let aggregator = Aggregator::new(http::new_client()?, &environment, POLL);
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

/// Variables of replicas, apart from names, addresses and ports.
const REPLICA_VARIABLES: [&str; 5] = [
    "DI_REPLICA_INDEX",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "START_RANK",
    "MASTER_ADDR",
];

/// Prints the variables of the orchestrator only: the others belong to the user.
fn print_environment() {
    let ours = |name: &str| {
        name.starts_with("KUBERNETES_")
            || name.ends_with("_PORT")
            || REPLICA_VARIABLES.contains(&name)
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
