use di_api::{EntryState, Role};
use di_client::Replica;

/// A line of the tree of a job's replicas.
#[derive(Clone, Debug)]
pub enum Line<'a> {
    /// Those below are of one kind.
    Heading(&'static str, Vec<&'a Replica>),
    /// A replica, behind the branch that leads to it.
    Replica(String, &'a Replica),
}

/// The replicas as a tree: coordinator, collectors, and learners with the ddp learners behind their aggregators.
pub fn lines(replicas: &[Replica]) -> Vec<Line<'_>> {
    let of = |role: Role| replicas.iter().filter(move |replica| replica.role == role);
    let is_behind = |ddp: &Replica, aggregator: &Replica| {
        ddp.aggregator.as_deref() == Some(aggregator.name.as_str())
    };
    let lost = of(Role::DdpLearner)
        .filter(|ddp| !of(Role::Aggregator).any(|aggregator| is_behind(ddp, aggregator)));
    let learners = of(Role::Learner).chain(of(Role::Aggregator)).chain(lost);
    let groups: [(_, Vec<_>); 3] = [
        ("Coordinator", of(Role::Coordinator).collect()),
        ("Collectors", of(Role::Collector).collect()),
        ("Learners", learners.collect()),
    ];
    let mut lines = Vec::new();
    for (heading, group) in groups {
        if group.is_empty() {
            continue;
        }
        lines.push(Line::Heading(heading, group.clone()));
        for (at, replica) in group.iter().enumerate() {
            let is_last = at + 1 == group.len();
            lines.push(Line::Replica(branch("", is_last), replica));
            if replica.role != Role::Aggregator {
                continue;
            }
            let trunk = if is_last { "   " } else { "│  " };
            let behind: Vec<_> = of(Role::DdpLearner)
                .filter(|ddp| is_behind(ddp, replica))
                .collect();
            for (at, ddp) in behind.iter().enumerate() {
                let branch = branch(trunk, at + 1 == behind.len());
                lines.push(Line::Replica(branch, ddp));
            }
        }
    }
    lines
}

fn branch(trunk: &str, is_last: bool) -> String {
    format!("{trunk}{}", if is_last { "└─ " } else { "├─ " })
}

/// How many of these are ready of those that are wanted, as `2/3 ready`.
pub fn ready(replicas: &[&Replica]) -> String {
    let wanted = || replicas.iter().filter(|r| r.state == EntryState::Wanted);
    let ready = wanted().filter(|replica| {
        let pod = replica.pod.as_ref();
        pod.is_some_and(|pod| pod.status == "Running" && pod.ready == pod.containers)
    });
    format!("{}/{} ready", ready.count(), wanted().count())
}
