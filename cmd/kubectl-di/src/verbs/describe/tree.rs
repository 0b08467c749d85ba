use std::collections::{HashMap, HashSet};

use di_api::{EntryState, Role};
use di_client::Replica;

/// A line of the replica tree.
#[derive(Clone, Debug)]
pub enum Line<'a> {
    /// The heading of a group of replicas.
    Heading(&'static str, Vec<&'a Replica>),
    /// The branch prefix and the replica.
    Replica(String, &'a Replica),
    /// The branch prefix and the number of ready replicas that are not listed.
    Folded(String, usize),
}

/// The maximum number of replicas of a role that are all listed; beyond it, ready ones are folded.
const FOLD_ABOVE: usize = 50;

/// Builds the replica tree; ddp learners are children of their aggregator, and the other pods of a
/// unit are children of its leader.
pub fn tree_lines(replicas: &[Replica]) -> Vec<Line<'_>> {
    let names: HashSet<&str> = replicas.iter().map(|replica| &*replica.name).collect();
    let (tops, others): (Vec<_>, Vec<_>) = replicas
        .iter()
        .partition(|replica| parent_of(replica).is_none_or(|parent| !names.contains(parent)));
    let mut children: HashMap<&str, Vec<&Replica>> = HashMap::new();
    for replica in others {
        let parent = parent_of(replica).unwrap_or_default();
        children.entry(parent).or_default().push(replica);
    }
    let with_role = |role: Role| {
        let tops = tops.iter().copied();
        tops.filter(move |replica| replica.role == role)
    };
    let folds = |role| replicas.iter().filter(|one| one.role == role).count() > FOLD_ABOVE;
    let children_of = |replica: &Replica| {
        let children = children.get(&*replica.name);
        children.cloned().unwrap_or_default()
    };
    let is_foldable = |replica: &Replica| folds(replica.role) && replica.ready;
    // A replica is folded only if all of its pods are.
    let is_folded = |replica: &&Replica| {
        is_foldable(replica) && children_of(replica).into_iter().all(is_foldable)
    };
    let learners = with_role(Role::Learner)
        .chain(with_role(Role::Aggregator))
        .chain(with_role(Role::DdpLearner));
    let groups: [(_, Vec<_>); 3] = [
        ("Coordinator", with_role(Role::Coordinator).collect()),
        ("Collectors", with_role(Role::Collector).collect()),
        ("Learners", learners.collect()),
    ];
    let mut lines = Vec::new();
    for (heading, group) in groups {
        if group.is_empty() {
            continue;
        }
        lines.push(Line::Heading(heading, group.clone()));
        let (shown, folded) = split_folded(&group, is_folded);
        for (at, replica) in shown.iter().enumerate() {
            let is_last = at + 1 == shown.len() && folded == 0;
            lines.push(Line::Replica(branch_prefix("", is_last), replica));
            let trunk = if is_last { "   " } else { "│  " };
            let (shown, folded) = split_folded(&children_of(replica), is_folded);
            for (at, child) in shown.iter().enumerate() {
                let branch = branch_prefix(trunk, at + 1 == shown.len() && folded == 0);
                lines.push(Line::Replica(branch, child));
            }
            if folded > 0 {
                lines.push(Line::Folded(branch_prefix(trunk, true), folded));
            }
        }
        if folded > 0 {
            lines.push(Line::Folded(branch_prefix("", true), folded));
        }
    }
    lines
}

/// The name of the replica that a replica is a child of.
fn parent_of(replica: &Replica) -> Option<&str> {
    let aggregator = replica.aggregator.as_deref();
    aggregator.or(replica.leader.as_deref())
}

/// Splits a group into the listed replicas and the number of folded ones.
fn split_folded<'a>(
    group: &[&'a Replica],
    is_folded: impl Fn(&&'a Replica) -> bool,
) -> (Vec<&'a Replica>, usize) {
    let mut shown = group.to_vec();
    shown.retain(|replica| !is_folded(replica));
    let folded = group.len() - shown.len();
    (shown, folded)
}

fn branch_prefix(trunk: &str, is_last: bool) -> String {
    format!("{trunk}{}", if is_last { "└─ " } else { "├─ " })
}

/// The number of ready and desired replicas, such as `2/3 ready`; empty if pods cannot be read.
pub fn ready_count(replicas: &[&Replica]) -> String {
    if replicas.iter().any(|replica| replica.unseen) {
        return String::new();
    }
    let desired = replicas.iter().filter(|r| r.state == EntryState::Wanted);
    let ready = replicas.iter().filter(|replica| replica.ready);
    format!("{}/{} ready", ready.count(), desired.count())
}
