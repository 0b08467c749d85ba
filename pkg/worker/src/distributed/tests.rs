use std::{
    io::Write,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use rand::{SeedableRng, rngs::StdRng};

use super::{
    connection::{Connection, Message},
    *,
};
use crate::{
    learner::settings::Settings,
    lifecycle::{
        report::{PollResult, Report},
        status::Status,
        worker::Worker,
    },
    model::model_file::{Model, model_file},
    protocol::{
        env::LEARNER_PORT,
        http,
        tasks::TaskWorker,
        wire::{Envelope, LearnerReport, LearnerTask},
    },
    sampler::{pipeline::Pipeline, sampling::Sampling},
    storage::{Storage, frames},
};

/// Timeouts for slow test machines.
const PATIENT: Timeouts = Timeouts {
    rendezvous: Duration::from_secs(120),
    ack: Duration::from_secs(120),
    message: Duration::from_secs(120),
};

fn new_learner(storage: &Storage) -> Learner {
    let settings = Settings {
        num_epochs: 2,
        ..Settings::default()
    };
    Learner::new(storage.clone(), settings)
}

/// Stores a model, frames that it collected, and the task to train on them.
fn store_task() -> (tempfile::TempDir, Storage, LearnerTask) {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::open(folder.path()).unwrap();
    let mut rng = StdRng::seed_from_u64(7);
    let model = Model::random(&mut rng);
    let path = |name: &str| storage.root().join(name);
    let model_path = path(&model_file(0));
    storage.write(&model_path, &model.encode()).unwrap();
    // Not a whole number of batches.
    let mut sampler = Pipeline::new(Sampling::default()).unwrap();
    let played = sampler.collect(&model.policy, 500, 1).unwrap().trajectories;
    let encoded = frames::encode(&played);
    storage
        .write(&path("frames.safetensors"), &encoded)
        .unwrap();
    let task = LearnerTask {
        run: storage.root().to_owned(),
        frames: vec![path("frames.safetensors")],
        model_path,
        progress: 1.0 / 3.0,
        seed: 5,
    };
    (folder, storage, task)
}

/// A rank configuration, and the listener of rank 0.
fn new_config(world_size: u32) -> (RankConfig, TcpListener) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let config = RankConfig {
        group_name: "pole-aggregator.rl:22272".to_owned(),
        world_size,
        start_rank: 0,
        local_world_size: world_size,
        master_addr: "127.0.0.1".to_owned(),
        master_port: listener.local_addr().unwrap().port(),
    };
    (config, listener)
}

/// Consecutive free ports below the ephemeral range, so that no other process gets them.
fn free_ports(number: u16) -> u16 {
    let first = 20000 + u16::try_from(std::process::id() % 1000).unwrap() * 8;
    let starts = (first..32000).step_by(usize::from(number));
    let is_free = |port: u16| TcpListener::bind(("0.0.0.0", port)).is_ok();
    let mut free = starts.filter(|start| (*start..start + number).all(is_free));
    free.next().unwrap()
}

/// Connects all ranks; each other rank continues on a thread with `then`.
fn connect_ranks<T: Send + 'static>(
    world_size: u32,
    timeouts: Timeouts,
    then: impl Fn(TcpProcessGroup) -> T + Clone + Send + 'static,
) -> (TcpProcessGroup, Vec<thread::JoinHandle<T>>) {
    let (config, listener) = new_config(world_size);
    let others = (1..world_size).map(|rank| {
        let (config, then) = (config.clone(), then.clone());
        thread::spawn(move || then(TcpProcessGroup::join_group(&config, rank, timeouts).unwrap()))
    });
    let others = others.collect();
    (
        TcpProcessGroup::accept_ranks(&listener, &config, timeouts).unwrap(),
        others,
    )
}

/// Polls until something was done.
fn poll_until_done(follower: &mut RankWorker) -> Result<PollResult> {
    loop {
        match follower.poll() {
            Ok(PollResult::NOTHING) => {}
            polled => return polled,
        }
    }
}

/// Runs a task with this number of ranks; returns the model, and the report without its path.
fn train_with(world_size: u32) -> (Model, LearnerReport) {
    let (_folder, storage, task) = store_task();
    let own = new_learner(&storage);
    let (group, others) = connect_ranks(world_size, PATIENT, {
        let own = own.clone();
        move |group| poll_until_done(&mut RankWorker::new(own.clone(), group)).unwrap()
    });
    let report = RankZeroWorker::new(own, group).run_task(task).unwrap();
    for other in others {
        assert_eq!((other.join().unwrap().samples, report.frames), (500, 500));
    }
    let model = Model::decode(&storage.read(&report.model_path).unwrap()).unwrap();
    let report = LearnerReport {
        model_path: PathBuf::new(),
        ..report
    };
    (model, report)
}

/// The largest difference of two models in one parameter.
fn distance(one: &Model, other: &Model) -> f64 {
    let pairs = one
        .policy
        .parameters()
        .iter()
        .zip(other.policy.parameters());
    pairs
        .map(|(one, other)| (one - other).abs())
        .fold(0.0, f64::max)
}

#[test]
fn ranks_train_same_model_as_one_process() {
    let (_folder, storage, task) = store_task();
    let report = new_learner(&storage).run_task(task.clone()).unwrap();
    let alone = Model::decode(&storage.read(&report.model_path).unwrap()).unwrap();
    let before = Model::decode(&storage.read(&task.model_path).unwrap()).unwrap();
    assert!(distance(&alone, &before) > 1e-4, "it learned");
    for world_size in [1, 2, 3] {
        let (model, ddp_report) = train_with(world_size);
        assert_eq!((model.version, model.adam.step), (1, alone.adam.step));
        let distance = distance(&model, &alone);
        assert!(distance < 1e-9, "{world_size} ranks: {distance}");
        assert!((ddp_report.value_loss - report.value_loss).abs() < 1e-9);
        assert_eq!(ddp_report.frames, report.frames);
        assert_eq!(
            train_with(world_size),
            (model, ddp_report),
            "{world_size} ranks, again"
        );
    }
}

#[test]
fn batch_shards_cover_batch() {
    for world_size in [1, 2, 3, 5] {
        for batch in [1, 2, 7, 64] {
            let groups = (0..world_size)
                .map(|rank| TcpProcessGroup::new(rank, world_size, Vec::new(), PATIENT));
            let parts = groups.map(|group| {
                crate::learner::ppo::process_group::ProcessGroup::shard(&group, batch)
            });
            let places: Vec<_> = parts.flatten().collect();
            assert_eq!(places, (0..batch).collect::<Vec<_>>(), "{world_size} ranks");
        }
    }
}

#[test]
fn lost_rank_ends_step_for_all_ranks() {
    let (_folder, storage, task) = store_task();
    let own = new_learner(&storage);
    let (group, others) = connect_ranks(3, PATIENT, {
        let own = own.clone();
        move |mut group| {
            if group.rank() == 1 {
                return poll_until_done(&mut RankWorker::new(own.clone(), group)).map(|_| ());
            }
            // Rank 2 begins the task and exits.
            let (number, call) = loop {
                if let Some(called) = group.poll_task(Duration::from_secs(1))? {
                    break called;
                }
            };
            let loaded = own.load_task(&call.task);
            assert!(group.join_task(number, loaded)?.is_some());
            Ok(())
        }
    });
    let error = RankZeroWorker::new(own, group).run_task(task).unwrap_err();
    assert!(matches!(error, Error::RankLost { rank: 2, .. }), "{error}");
    assert!(error.is_fatal());
    assert_eq!(error.exit_code(), 1);
    let ended: Vec<_> = others
        .into_iter()
        .map(|rank| rank.join().unwrap())
        .collect();
    let error = ended[0].as_ref().unwrap_err();
    assert!(matches!(error, Error::RankLost { rank: 2, .. }), "{error}");
    assert!(ended[1].is_ok());
}

#[test]
fn waiting_ranks_detect_loss_of_rank_0() {
    let (_folder, storage, _) = store_task();
    let own = new_learner(&storage);
    let (group, others) = connect_ranks(3, PATIENT, move |group| {
        poll_until_done(&mut RankWorker::new(own.clone(), group))
    });
    drop(group);
    for other in others {
        let error = other.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::RankLost { rank: 0, .. }), "{error}");
    }
}

#[test]
fn paused_rank_fails_task_only() {
    let (_folder, storage, task) = store_task();
    let own = new_learner(&storage);
    let timeouts = Timeouts {
        ack: Duration::from_millis(100),
        ..PATIENT
    };
    let (resume, resumed) = channel::<()>();
    let resumed = Arc::new(Mutex::new(resumed));
    let (group, others) = connect_ranks(2, timeouts, {
        let own = own.clone();
        move |group| {
            resumed.lock().unwrap().recv().unwrap();
            poll_until_done(&mut RankWorker::new(own.clone(), group))
        }
    });
    let mut leader = RankZeroWorker::new(own, group);
    for _ in 0..2 {
        let error = leader.run_task(task.clone()).unwrap_err();
        assert!(matches!(error, Error::RankAbsent(1)), "{error}");
        assert!(!error.is_fatal());
    }
    resume.send(()).unwrap();
    // The rank may need time to skip the cancelled tasks.
    let report = loop {
        match leader.run_task(task.clone()) {
            Err(Error::RankAbsent(1)) => {}
            done => break done.unwrap(),
        }
    };
    assert_eq!(report.model_version, 1);
    for other in others {
        assert_eq!(other.join().unwrap().unwrap().batches, 1, "it did one");
    }
}

#[test]
fn rank_load_failure_fails_task_with_reason() {
    let (_folder, storage, task) = store_task();
    let elsewhere = tempfile::tempdir().unwrap();
    let (own, other) = (
        new_learner(&storage),
        new_learner(&Storage::open(elsewhere.path()).unwrap()),
    );
    let (group, others) = connect_ranks(2, PATIENT, move |group| {
        poll_until_done(&mut RankWorker::new(other.clone(), group))
    });
    let mut leader = RankZeroWorker::new(own, group);
    for _ in 0..2 {
        let error = leader.run_task(task.clone()).unwrap_err();
        assert!(!error.is_fatal());
        let error = error.to_string();
        assert!(
            error.contains("rank 1 cannot load the task: path")
                && error.contains("model-0.safetensors"),
            "{error}"
        );
    }
    drop(leader);
    for other in others {
        assert!(other.join().unwrap().unwrap_err().is_fatal());
    }
}

#[test]
fn rendezvous_rejects_strangers_and_accepts_reconnects() {
    let (config, listener) = new_config(3);
    let address = listener.local_addr().unwrap();
    let join = |group_name: &str, world_size, rank| {
        let stream = TcpStream::connect(address).unwrap();
        let mut connection = Connection::new(0, stream, PATIENT.message).unwrap();
        let group_name = group_name.to_owned();
        connection
            .send_message(&Message::Join {
                group_name,
                world_size,
                rank,
            })
            .unwrap();
        connection
    };
    // Connections are accepted in order; the last one gets the last free rank.
    let strangers = [
        join("other-aggregator.rl:22272", 3, 1),
        join(&config.group_name, 4, 1),
        join(&config.group_name, 3, 0),
        join(&config.group_name, 3, 3),
    ];
    let mut babbler = TcpStream::connect(address).unwrap();
    babbler.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let before = join(&config.group_name, 3, 1);
    let ranks = [
        join(&config.group_name, 3, 1),
        join(&config.group_name, 3, 2),
    ];
    TcpProcessGroup::accept_ranks(&listener, &config, PATIENT).unwrap();
    for mut connection in strangers.into_iter().chain([before]) {
        assert!(connection.recv_message().is_err());
    }
    for mut rank in ranks {
        assert_eq!(rank.recv_message().unwrap(), Message::Joined);
    }
}

#[test]
fn rendezvous_timeout_names_missing_ranks() {
    let (config, listener) = new_config(3);
    let timeouts = Timeouts {
        rendezvous: Duration::from_millis(300),
        ..PATIENT
    };
    let begin = Instant::now();
    let joining = thread::spawn({
        let config = config.clone();
        move || TcpProcessGroup::join_group(&config, 1, timeouts)
    });
    // Rank 1 may join in time or not.
    let error = TcpProcessGroup::accept_ranks(&listener, &config, timeouts).unwrap_err();
    assert!(matches!(error, Error::RendezvousTimeout { .. }), "{error}");
    assert!(error.to_string().contains('2'), "{error}");
    assert!(begin.elapsed() >= timeouts.rendezvous);
    let error = joining.join().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("not all ranks joined"),
        "{error}"
    );
}

/// Calls a life-cycle route of the rank on this port, once it listens.
async fn call_lifecycle(port: u16, call: &str) -> Report {
    let client = http::new_client().unwrap();
    let url = format!("http://127.0.0.1:{port}/lifecycle/{call}");
    let begin = Instant::now();
    let answer = loop {
        match client.post(&url).send().await {
            Ok(answer) => break answer,
            Err(error) => assert!(begin.elapsed() < PATIENT.rendezvous, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let envelope: Envelope = answer.json().await.unwrap();
    serde_json::from_value(envelope.data).unwrap()
}

#[tokio::test]
async fn ranks_of_several_pods_exit_cleanly() {
    let (_folder, storage, _) = store_task();
    let first_port = free_ports(4);
    let pod = |first: u32, local: u32| {
        let environment = Environment::from_lookup(LEARNER_PORT, |name| match name {
            "KUBERNETES_POD_NAMESPACE" => Some("rl".into()),
            "KUBERNETES_POD_NAME" => Some(format!("pole-ddp-learner-{first:05}")),
            "LEARNER_PORT" => Some(first_port.to_string()),
            _ => None,
        });
        let config = RankConfig {
            group_name: "pole-aggregator.rl:22272".to_owned(),
            world_size: 3,
            start_rank: first,
            local_world_size: local,
            master_addr: "127.0.0.1".to_owned(),
            master_port: first_port + 3,
        };
        let ranks = train_ranks(config, environment.unwrap(), new_learner(&storage), PATIENT);
        tokio::spawn(ranks)
    };
    let (two, one) = (pod(0, 2), pod(2, 1));
    for rank in 0..3 {
        let started = call_lifecycle(first_port + rank, "start").await;
        assert_eq!(started.status, Status::Running);
    }
    assert!(call_lifecycle(first_port + 1, "exit").await.exiting);
    // Rank 1 keeps serving its peers after its exit call: rank 0 in the same process, and so rank
    // 2.
    let address = ("127.0.0.1", first_port + 1);
    while tokio::net::TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(call_lifecycle(first_port + 2, "exit").await.exiting);
    one.await.unwrap().unwrap();
    assert!(!two.is_finished());
    assert!(call_lifecycle(first_port, "exit").await.exiting);
    two.await.unwrap().unwrap();
}
