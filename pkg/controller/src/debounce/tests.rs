use di_api::Origin;

use super::*;

fn entry(name: &str, role: Role) -> PlanEntry {
    PlanEntry::new(name.to_owned(), role, Origin::Declared, 0)
}

#[test]
fn burst_of_changes_is_written_after_quiet_or_max_delay() {
    let start = Instant::now();
    // Reconciles, in milliseconds. Each waits for quiet; one at or after `due` finds it due.
    for (reconciles, min_interval, due) in [
        (&[0][..], 0, 400),
        (&[0, 400], 0, 400),
        (&[0, 410, 420], 0, 400),
        (&[0, 399], 0, 799),
        (&[0, 300, 600, 790], 0, 800),
        (&[0, 300, 600, 800, 801], 0, 800),
        (&[0], 1000, 1000),
        (&[0, 300, 900], 1000, 1000),
    ] {
        let after = |ms| start + Duration::from_millis(ms);
        let interval = Duration::from_millis(min_interval);
        let extend = |pending, at: &u64| Some(Debounce::extend(pending, after(*at), interval));
        let pending = reconciles.iter().fold(None, extend);
        let expected = Debounce {
            since: start,
            due: after(due),
        };
        assert_eq!(pending, Some(expected), "{reconciles:?}, {min_interval}");
    }
}

#[test]
fn action_without_persisted_entry_waits_for_debounced_write() {
    let delete = |name: &str| Action::DeletePod {
        name: name.to_owned(),
        uid: "u".to_owned(),
    };
    let (planned, fresh) = (
        entry("planned", Role::Collector),
        entry("fresh", Role::Collector),
    );
    let (mut removing, mut replaced) = (
        entry("removing", Role::Collector),
        entry("replaced", Role::Collector),
    );
    removing.state = EntryState::Removing;
    let old = DIJobStatus {
        plan: vec![planned.clone(), removing.clone(), replaced.clone()],
        ..DIJobStatus::default()
    };
    replaced.state = EntryState::Replaced;
    let mut new = DIJobStatus {
        plan: vec![planned.clone(), removing, replaced, fresh.clone()],
        ..DIJobStatus::default()
    };
    let coordinator = Action::CreatePod(entry("coordinator", Role::Coordinator));
    let persisted = vec![
        coordinator.clone(),
        Action::CreatePod(planned),
        delete("removing"),
    ];
    let others = [
        Action::CreatePod(fresh),
        delete("replaced"),
        delete("unknown"),
        Action::DeleteJob,
    ];
    let all = [persisted.clone(), others.to_vec()].concat();
    let allowed = |old, new: &DIJobStatus| backed_by_persisted_status(old, new, all.clone());
    assert_eq!(allowed(Some(&old), &new), persisted);
    new.coordinator.attempt = 1;
    assert_eq!(allowed(Some(&old), &new), persisted[1..]);
    assert_eq!(allowed(None, &new), []);
}
