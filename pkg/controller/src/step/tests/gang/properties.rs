//! Properties of gangs after any sequence of changes.

use di_api::Role;
use di_plan::PodPhase;
use proptest::{prelude::*, sample::select};

use super::{gang_job, is_placed, wait};
use crate::step::tests::fake_cluster::World;

#[derive(Clone, Copy, Debug)]
enum Change {
    /// The scheduler assigns nodes, of which this number is free.
    Schedule(usize),
    Run,
    Exit(usize, i32),
    DeletePod(usize),
    RemoveTerminating,
    DeleteGroup,
    SetCollectors(i32),
    SetMinCollectors(i32),
    SetSuspended(bool),
    LoseStatus,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..8_usize).prop_map(Change::Schedule),
        4 => Just(Change::Run),
        3 => (0..8_usize, select(vec![0, 1])).prop_map(|(i, code)| Change::Exit(i, code)),
        3 => (0..8_usize).prop_map(Change::DeletePod),
        5 => Just(Change::RemoveTerminating),
        1 => Just(Change::DeleteGroup),
        3 => (0..5).prop_map(Change::SetCollectors),
        2 => (0..5).prop_map(Change::SetMinCollectors),
        2 => any::<bool>().prop_map(Change::SetSuspended),
        1 => Just(Change::LoseStatus),
    ]
}

fn min_collectors(world: &mut World) -> &mut i32 {
    let scheduling = world.job.spec.scheduling.as_mut().unwrap();
    let gang = scheduling.gang.as_mut().unwrap();
    gang.min_collectors.as_mut().unwrap()
}

fn apply(world: &mut World, change: Change) {
    let replicas = |world: &World, is_on_node: bool| -> Vec<String> {
        let pods = world.pods.values();
        let pods = pods.filter(|pod| pod.is_active() && pod.role != Some(Role::Coordinator));
        let pods = pods.filter(|pod| pod.is_on_node() || !is_on_node);
        pods.map(|pod| pod.name.clone()).collect()
    };
    let pick = |all: &[String], i: usize| (!all.is_empty()).then(|| all[i % all.len()].clone());
    match change {
        Change::Schedule(free) => world.schedule(free),
        Change::Run => {
            let pods = world.pods.values();
            let pods = pods.filter(|pod| pod.is_active() && pod.is_on_node());
            let names: Vec<_> = pods.map(|pod| pod.name.clone()).collect();
            for name in &names {
                world.run(name);
            }
        }
        Change::Exit(i, code) => {
            if let Some(name) = pick(&replicas(world, true), i) {
                world.exit(&name, code, "Ended");
            }
        }
        Change::DeletePod(i) => {
            if let Some(name) = pick(&replicas(world, false), i) {
                world.pods.get_mut(&name).unwrap().deleting = true;
            }
        }
        Change::RemoveTerminating => world.remove_terminating_pods(),
        Change::DeleteGroup => world.gang.groups.clear(),
        Change::SetCollectors(count) => {
            let collectors = world.job.spec.collector.as_mut().unwrap();
            collectors.replicas = count;
            let min_collectors = min_collectors(world);
            *min_collectors = (*min_collectors).min(count);
        }
        Change::SetMinCollectors(count) => {
            let collectors = world.job.spec.collector.as_ref().unwrap();
            let count = count.min(collectors.replicas);
            *min_collectors(world) = count;
        }
        Change::SetSuspended(suspend) => world.job.spec.suspend = suspend,
        Change::LoseStatus => world.job.status = None,
    }
}

/// Checks that the gang can be placed: the group is not larger than the number of its pods.
fn check_group(world: &World) {
    let Some(group) = world.group() else {
        return;
    };
    let plan = world.plan().iter();
    let wanted = plan.filter(|entry| entry.is_wanted() && !entry.done);
    let pod_count = i32::try_from(wanted.count() + 1).unwrap();
    assert!(
        (1..=pod_count).contains(&group.min_member),
        "{group:?} of {pod_count} pods"
    );
    let failed = world.pods.values();
    let mut failed = failed.filter(|pod| pod.phase == PodPhase::Failed && !pod.deleting);
    assert!(failed.all(|pod| !pod.in_gang), "{:?}", world.pod_names());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn gang_can_always_be_placed(changes in proptest::collection::vec(any_change(), 1..40)) {
        let mut world = World::new(gang_job());
        world.serve_gangs();
        for change in changes {
            apply(&mut world, change);
            // The order of creates is checked when they are applied.
            world.settle();
            check_group(&world);
        }
        // In the end there are enough nodes, and everything runs.
        world.job.spec.suspend = false;
        for _ in 0..12 {
            world.remove_terminating_pods();
            wait(&mut world);
            world.settle();
            world.schedule(99);
            apply(&mut world, Change::Run);
        }
        world.settle();
        let wanted = world.plan().iter().filter(|entry| entry.is_wanted() && !entry.done);
        for entry in wanted {
            let pod = world.pods.get(&entry.name);
            prop_assert!(pod.is_some_and(di_plan::PodView::is_on_node), "{:#?}", world.plan());
        }
        prop_assert!(is_placed(&world));
    }
}
