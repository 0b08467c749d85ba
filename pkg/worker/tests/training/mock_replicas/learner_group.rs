//! Learner groups: an aggregator and its ranks.

use std::{net::TcpListener, time::Duration};

use di_worker_lib::{
    distributed::{RankConfig, TcpProcessGroup, Timeouts, aggregator::Aggregator, train_as_rank},
    learner::{Learner, settings::Settings},
    protocol::{
        env::{AGGREGATOR_PORT, Environment},
        http,
        wire::{Replicas, Role},
    },
};

use super::{Loopback, Machine, MockReplicas, Pod, listen, on_loopback};

/// Timeouts for slow test machines.
const TIMEOUTS: Timeouts = Timeouts {
    rendezvous: Duration::from_secs(60),
    ack: Duration::from_secs(60),
    message: Duration::from_secs(60),
};

impl MockReplicas {
    /// Sets the number of ranks of new learners.
    pub fn learners_have_ranks(&self, ranks: u32) {
        self.inner().ranks = ranks;
    }

    /// Kills a rank of an aggregator.
    pub fn kill_rank(&self, aggregator: &str, rank: usize) {
        let mut inner = self.inner();
        let group = inner.pods.get_mut(aggregator).unwrap();
        assert!(
            group.ranks[rank].0.take().is_some(),
            "the rank was killed before"
        );
    }

    /// Addresses of the ranks of an aggregator, in order.
    pub fn rank_addresses(&self, aggregator: &str) -> Vec<String> {
        let urls = self.ranks_of(aggregator).learners;
        urls.iter().map(|url| on_loopback(url)).collect()
    }

    pub fn ranks_of(&self, aggregator: &str) -> Replicas {
        let inner = self.inner();
        let ranks = inner.pods.get(aggregator).into_iter();
        let ranks = ranks.flat_map(|group| &group.ranks);
        Replicas {
            namespace: "rl".to_owned(),
            coordinator: aggregator.to_owned(),
            collectors: Vec::new(),
            learners: ranks.map(|(_, url)| url.clone()).collect(),
        }
    }

    pub(super) fn learner_group(&self, name: &str, world_size: u32, settings: &Settings) -> Pod {
        let server = self.address.to_string();
        let environment = |port, pod: String| {
            Environment::from_lookup(port, |variable| match variable {
                "KUBERNETES_POD_NAMESPACE" => Some("rl".to_owned()),
                "KUBERNETES_POD_NAME" => Some(pod.clone()),
                "KUBERNETES_SERVER_URL" => Some(server.clone()),
                _ => None,
            })
            .unwrap()
        };
        let meeting = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = RankConfig {
            group_name: name.to_owned(),
            world_size,
            start_rank: 0,
            local_world_size: world_size,
            master_addr: "127.0.0.1".to_owned(),
            master_port: meeting.local_addr().unwrap().port(),
        };
        let mut meeting = Some(meeting);
        let ranks = (0..world_size).map(|rank| {
            let pod = format!("{name}-ddp-{rank}");
            let (listener, url) = listen(&pod);
            let storage = self.storage();
            let learner = Learner::new(storage, settings.clone());
            let (config, meeting) = (config.clone(), meeting.take());
            let program = format!("{name}-rank-{rank}");
            let machine = Machine::start(&self.ended, &program, async move {
                let meet = move || match meeting {
                    Some(listener) => TcpProcessGroup::accept_ranks(&listener, &config, TIMEOUTS),
                    None => TcpProcessGroup::join_group(&config, rank, TIMEOUTS),
                };
                let group = tokio::task::spawn_blocking(meet).await.unwrap().unwrap();
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                train_as_rank(listener, learner, group).await
            });
            (Some(machine), url)
        });
        let ranks = ranks.collect();
        let (listener, url) = listen(name);
        let environment = environment(AGGREGATOR_PORT, name.to_owned());
        let machine = Machine::start(&self.ended, name, async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let client = http::client_with(Loopback::resolver()).unwrap();
            let aggregator = Aggregator::new(client, &environment, Duration::from_millis(50));
            aggregator.run(listener, std::future::pending()).await
        });
        Pod {
            role: Role::Learner,
            url,
            machine: Some(machine),
            ranks,
        }
    }
}
