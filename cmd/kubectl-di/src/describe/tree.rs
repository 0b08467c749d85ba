use di_api::{EntryState, Role};
use di_client::Replica;

/// A line of the tree of a job's replicas.
#[derive(Clone, Debug)]
pub enum Line<'a> {
    /// Those below are of one kind.
    Heading(&'static str, Vec<&'a Replica>),
    /// A replica, behind the branch that leads to it.
    Replica(String, &'a Replica),
    /// So many more that are ready, behind the branch that leads to them.
    Folded(String, usize),
}

/// The most replicas of a role that are all shown; of more, those are that somebody should look at.
const MANY: usize = 50;

/// The replicas as a tree: coordinator, collectors, and learners with the ddp learners behind their aggregators.
pub fn lines(replicas: &[Replica]) -> Vec<Line<'_>> {
    let of = |role: Role| replicas.iter().filter(move |replica| replica.role == role);
    let is_behind = |ddp: &Replica, aggregator: &Replica| {
        ddp.aggregator.as_deref() == Some(aggregator.name.as_str())
    };
    let lost = of(Role::DdpLearner)
        .filter(|ddp| !of(Role::Aggregator).any(|aggregator| is_behind(ddp, aggregator)));
    let folds = |role| of(role).count() > MANY;
    let behind = |aggregator: &Replica| -> Vec<_> {
        of(Role::DdpLearner)
            .filter(|ddp| is_behind(ddp, aggregator))
            .collect()
    };
    let is_quiet = |replica: &Replica| folds(replica.role) && replica.ready;
    // None that somebody should look at disappears with its aggregator.
    let is_folded = |replica: &&Replica| {
        is_quiet(replica)
            && (replica.role != Role::Aggregator || behind(replica).into_iter().all(is_quiet))
    };
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
        let (shown, folded) = part(&group, is_folded);
        for (at, replica) in shown.iter().enumerate() {
            let is_last = at + 1 == shown.len() && folded == 0;
            lines.push(Line::Replica(branch("", is_last), replica));
            if replica.role != Role::Aggregator {
                continue;
            }
            let trunk = if is_last { "   " } else { "│  " };
            let (shown, folded) = part(&behind(replica), is_folded);
            for (at, ddp) in shown.iter().enumerate() {
                let branch = branch(trunk, at + 1 == shown.len() && folded == 0);
                lines.push(Line::Replica(branch, ddp));
            }
            if folded > 0 {
                lines.push(Line::Folded(branch(trunk, true), folded));
            }
        }
        if folded > 0 {
            lines.push(Line::Folded(branch("", true), folded));
        }
    }
    lines
}

/// Those that are shown, and the number of the others.
fn part<'a>(
    group: &[&'a Replica],
    is_folded: impl Fn(&&'a Replica) -> bool,
) -> (Vec<&'a Replica>, usize) {
    let mut shown = group.to_vec();
    shown.retain(|replica| !is_folded(replica));
    let folded = group.len() - shown.len();
    (shown, folded)
}

fn branch(trunk: &str, is_last: bool) -> String {
    format!("{trunk}{}", if is_last { "└─ " } else { "├─ " })
}

/// How many of these are ready of those that are wanted, as `2/3 ready`; nothing where nobody can tell.
pub fn ready(replicas: &[&Replica]) -> String {
    if replicas.iter().any(|replica| replica.unseen) {
        return String::new();
    }
    let wanted = replicas.iter().filter(|r| r.state == EntryState::Wanted);
    let ready = replicas.iter().filter(|replica| replica.ready);
    format!("{}/{} ready", ready.count(), wanted.count())
}
